//! The copier beside `cp -a` and beside its own promises.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

mod asked;
mod corrupted;
mod place;
mod promises;
mod property;
mod snapshot;
mod trees;
