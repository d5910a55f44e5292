//! Safe wrappers of kernel tracing: perf event rings and tracefs pages.
//!
//! Both deliver records in memory that the kernel writes while the program reads, so the `unsafe`
//! code that maps and reads them lives here and nowhere else. The wrappers return plain records;
//! `observe` gives them a meaning. A build without this crate has no kernel evidence and loses
//! nothing else.

pub mod perf;
pub mod tracefs;
