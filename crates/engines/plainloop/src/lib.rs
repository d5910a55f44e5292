//! The loop of a published cache test, compiled without optimisation.
//!
//! The workspace sets `opt-level = 0` for this crate in every profile and compiles the same file
//! again, optimised, as a module of `ioloom-memory`: one source, two compilations, so that the two
//! times differ by the compiler alone. The loop is written with an index and `while`, as the C
//! program that it follows has it; an iterator would cost calls at level 0 that C does not have.

#[path = "store_lines.rs"]
mod store_lines;

pub use store_lines::{OPT_LEVEL, store_lines};
