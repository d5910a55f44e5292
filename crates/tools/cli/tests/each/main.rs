//! `ioloom each` from end to end, compared with independent programs.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod bytes;
mod checks;
mod limits;
mod place;
mod programs;
mod scripts;
mod selection;
mod shards;
mod signals;
mod slow;
mod stalled;
mod streaming;
mod trouble;
