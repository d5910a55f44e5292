//! End-to-end tests of `ioloom serve`: kills, power failures, exhausted descriptors, failing system
//! calls, clean shutdowns and usage errors.
//!
//! Tests with unmet requirements print a message and pass.

#![allow(clippy::print_stdout, reason = "skipped tests print why, and others print counts")]

mod bench;
mod calls;
mod clock;
mod crashed;
mod database;
mod handed_over;
mod open_files;
mod operated;
mod shown;
mod stores;
