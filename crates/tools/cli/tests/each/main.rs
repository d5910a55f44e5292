//! `ioloom each` from end to end, as a user starts it, against programs that are not ours.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod bytes;
mod checks;
mod place;
mod programs;
mod trouble;
