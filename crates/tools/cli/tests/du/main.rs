//! `ioloom du` from end to end, compared with GNU du if it is installed.

#![allow(clippy::print_stdout, reason = "skipped tests print why")]

mod gnu;
mod mounts;
mod place;
mod shards;
mod shown;
mod trouble;
