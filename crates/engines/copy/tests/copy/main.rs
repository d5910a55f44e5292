//! Compares the copier with `cp -a` and with its own guarantees.

#![allow(clippy::print_stdout, reason = "skipped tests print the reason")]

mod corrupted;
mod guarantees;
mod interrupted;
mod label;
mod old_files;
mod options;
mod parts;
mod property;
mod snapshot;
mod streams;
mod test_dir;
mod trees;
