//! The loop of a published cache test, compiled without optimisation.
//!
//! The workspace sets `opt-level = 0` for this crate in every profile. `ioloom-memory` compiles the
//! same file again, optimised, as a module, so the compiler is the only difference between the two
//! times. The loop uses an index and `while`, like the C program that it reproduces: at level 0, an
//! iterator would add calls that C does not have.

#[path = "store_lines.rs"]
mod store_lines;

pub use store_lines::{OPT_LEVEL, store_lines};
