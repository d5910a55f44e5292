//! End-to-end tests of the program, each in an empty home directory.
//!
//! Tests with unmet requirements print a message and pass.

#![allow(clippy::print_stdout, reason = "skipped tests print why")]

mod advise;
mod errors;
mod fixtures;
mod guide;
mod help;
mod home;
mod kill;
#[cfg(feature = "exchange")]
mod load;
mod media;
mod pagecache;
mod predict;
mod sets;
mod study;
mod sysctl;
mod trace;
mod traces;
mod verify;
mod version;
mod walk;
