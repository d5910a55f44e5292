//! The loop of a published cache test, compiled without optimisation.
//!
//! The workspace sets `opt-level = 0` for this crate in every profile and compiles the same file
//! again, optimised, as a module of `ioloom-memory`: one source, two compilations, so that the two
//! times differ only by the compiler. The loop uses an index and `while`, like the C program it
//! reproduces; at level 0 an iterator would cost calls that C does not have.

#[path = "store_lines.rs"]
mod store_lines;

pub use store_lines::{OPT_LEVEL, store_lines};
