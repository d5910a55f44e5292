//! `ioloom du` from end to end, compared with GNU du if it is installed.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod gnu;
mod mounts;
mod place;
mod shown;
mod trouble;
