//! Memory as an instrument: regions with a known size of pages, and loads that wait for each other.
//!
//! The compiler may reorder and remove loads that nothing depends on, so the loops that measure
//! latency are here, where each step needs the result of the step before. All of them stay inside
//! one region that they own: whatever a caller does, no address outside of it is touched.

mod chain;
mod region;
mod timing_loops;

pub use chain::{CHAIN_COUNTS, Chain, Layout, Step};
pub use region::{HUGE_BYTES, Pages, Region};
pub use timing_loops::{dependent_adds, independent_work, spin_pair};
