//! The library from outside: the same bytes from every plan, every kind of input, every policy.

#![allow(clippy::print_stderr, reason = "what a machine lacks is told as skipped")]

mod bytes;
mod inputs;
mod layout;
mod memory;
mod policy;
mod properties;
mod support;
mod tail;
mod trace;
