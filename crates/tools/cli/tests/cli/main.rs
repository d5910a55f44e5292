//! The program from end to end, as a user starts it, each time in a home of its own.
//!
//! Where a test needs what this machine or this user has not, it says so and passes.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod errors;
mod help;
mod home;
mod kill;
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
