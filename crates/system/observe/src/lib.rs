//! Measures where a run spends its time.
//!
//! Each thread owns a [`Meter`]. One clock reading ends one call and starts the next, so a file
//! with five calls costs five readings and five table entries, without locks or atomics. At the
//! end, the thread's processor time and run-queue delay split the wall time into states whose sum
//! is exactly the elapsed time; time without evidence is `unknown`. [`limit`] decides what limited
//! the run, and [`bottleneck`] returns that in one word and one sentence. [`collect`] records more detail: every switch, fault,
//! wake-up and device request, as far as the system permits. [`counters`] observes the machine
//! during the run: page cache, paging, devices, pressure.

mod account;
mod bottleneck;
pub mod collect;
pub mod counters;
mod delay;
mod gauge;
mod largest;
pub mod limit;
mod meter;
mod neighbours;
mod output;
mod split;
mod trace_file;
mod usage;

pub use account::{evidence, merge_calls, states};
pub use bottleneck::bottleneck;
pub use delay::LaterDelay;
pub use gauge::{GaugeCounts, GaugeSampler, GaugeTotals, Gauges};
pub use largest::{Began, Largest};
pub use meter::{Meter, Reads, Step, TIMED_FIRST, TIMED_ONE_IN, ThreadReport};
pub use neighbours::{Moved, Others};
pub use output::{child_was_ready, finishing, helped, reserving, waiting_for_child, writing};
pub use split::Detail;
pub use trace_file::{TraceFile, TraceFileError};
pub use usage::{Usage, UsageDelta};
