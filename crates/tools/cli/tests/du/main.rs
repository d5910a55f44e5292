//! `ioloom du` from end to end, against GNU du where there is one.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod gnu;
mod mounts;
mod place;
mod shown;
mod trouble;
