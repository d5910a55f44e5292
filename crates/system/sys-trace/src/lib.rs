//! Safe wrappers for kernel tracing: perf event rings and tracefs pages.
//!
//! Both deliver records through memory that the kernel writes while the program reads it. All
//! `unsafe` code that maps and reads this memory is in this crate. The wrappers return plain
//! records, which the crate `observe` interprets. A build without this crate lacks only kernel
//! evidence.

pub mod perf;
pub mod tracefs;
