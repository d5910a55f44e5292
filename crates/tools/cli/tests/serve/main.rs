//! `ioloom serve` from outside: killed at any moment, without power, without descriptors, with calls
//! that fail, stopped politely, started wrongly.
//!
//! Where a test needs what this machine or this user has not, it says so and passes.

#![allow(clippy::print_stdout, reason = "skipped tests say so, and others print their counts")]

mod bench;
mod calls;
mod crashed;
mod database;
mod open_files;
mod shown;
