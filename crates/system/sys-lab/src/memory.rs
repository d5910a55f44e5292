//! Memory for measurements: regions with a chosen page size, and dependent loads.
//!
//! The compiler may reorder or remove loads that nothing depends on. In the loops here, each step
//! needs the result of the previous step, so they measure latency. Each loop stays inside the
//! region that it owns: no argument can make it touch an address outside.

mod chain;
mod region;
mod timing_loops;

pub use chain::{CHAIN_COUNTS, Chain, Layout, Step};
pub use region::{HUGE_BYTES, Pages, Region};
pub use timing_loops::{dependent_adds, independent_work, spin_pair};
