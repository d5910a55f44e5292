//! Where the time of a run went.
//!
//! Each thread owns a [`Meter`]: one clock reading ends one call and starts the next, so a file
//! with five calls costs five readings and five table entries, no lock and no atomic. At the end
//! the thread's processor time and run-queue delay split the wall time into states that add up to
//! the elapsed time exactly; what no evidence explains is `unknown`. [`bottleneck`] puts the result
//! into one word and one sentence. [`collect`] looks closer: each switch, fault, wake-up and device
//! request, as far as the system allows. [`counters`] looks at the machine around it: page cache,
//! paging, devices, pressure.

mod account;
mod bottleneck;
pub mod collect;
pub mod counters;
mod gauge;
mod meter;
mod split;
mod usage;

pub use account::{evidence, merge_calls, states};
pub use bottleneck::bottleneck;
pub use gauge::{GaugeSampler, GaugeTotals, Gauges};
pub use meter::{Meter, Reads, Step, TIMED_FIRST, TIMED_ONE_IN, ThreadReport};
pub use split::Detail;
pub use usage::{Usage, UsageDelta};
