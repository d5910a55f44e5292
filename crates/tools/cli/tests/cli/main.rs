//! The program from end to end, as a user starts it, each time in an empty home directory.
//!
//! A test that needs something that this machine or user lacks prints that and passes.

#![allow(clippy::print_stdout, reason = "skipped tests print why")]

mod errors;
mod fixtures;
mod help;
mod home;
mod kill;
#[cfg(feature = "exchange")]
mod load;
mod media;
mod pagecache;
mod sets;
mod study;
mod sysctl;
mod trace;
mod traces;
mod version;
mod walk;
