//! `ioloom serve` from outside: killed at any moment, without power, without descriptors, with calls
//! that fail, stopped politely, started wrongly.
//!
//! Where a test needs what this machine or this user has not, it says so and passes.

#![allow(clippy::print_stdout, reason = "a skipped test says so, and others tell their counts")]

mod bench;
mod calls;
mod crashed;
mod database;
mod open_files;
mod shown;
