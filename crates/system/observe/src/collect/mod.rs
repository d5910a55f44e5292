//! Collects per-thread events from the kernel and the program.
//!
//! A [`Session`] observes threads of this process; each thread registers and gets a [`Recorder`]. A
//! [`Watch`] observes a process tree from outside. Both produce the raw events of one run, which
//! `ioloom_trace` interprets.
//!
//! ```text
//! session = Session::start(level, options)        tries the level, refuses a requested one that fails
//!   each thread: recorder = session.register(…)   opens its own kernel events
//!   barrier
//!   session.begin()      each thread: recorder.begin(), lap(…), lap(…), …, finish()
//! raw = session.stop()                            includes losses, self-tests and costs
//! ```
//!
//! Levels: 0 has spans and the thread clocks; 1 adds every switch and every major fault through a
//! ring per thread; 2 adds wake-ups, the threads on every processor, device requests and kernel
//! locks. An additional thread, with the role `tool` and its own lane, drains the rings.
//!
//! Cost to the program: 24 to 45 ns per span, 1.5 µs for reading the clocks after a long span,
//! about 2 µs per switch at level 1 and 1 µs more at level 2. All memory is bounded and allocated
//! before the run; events that do not fit are counted.

mod assemble;
mod check;
mod drain;
mod gather;
mod in_order;
mod message;
mod probe;
mod recorder;
mod sample;
pub mod selftest;
mod session;
mod watch;

pub(crate) use check::calibrate_own;
pub use check::{ClockTest, Costs};
pub use message::Totals;
pub use probe::{Probe, probe};
pub use recorder::Recorder;
pub(crate) use sample::tree;
pub use session::Session;
pub use watch::Watch;

use ioloom_failure::reason;
use ioloom_model::Level;

/// Limits and sizes for an observation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceOptions {
    /// Maximum number of spans stored per thread; totals continue beyond that.
    pub spans_max: usize,
    /// Maximum number of kernel events stored for all threads together.
    pub events_max: usize,
    /// Per-thread ring size at level 1 in bytes: a power of two.
    pub ring_bytes: usize,
    /// Per-processor ring size at level 2 in KiB.
    pub trace_ring_kib: u32,
    /// Whether to measure the cost of each kind of event at the start (30 ms).
    pub calibrate: bool,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            spans_max: 1 << 18,
            events_max: 8 << 20,
            ring_bytes: ioloom_sys_trace::perf::RING_BYTES,
            trace_ring_kib: 4096,
            calibrate: true,
        }
    }
}

/// Why an observation cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The requested level does not work here.
    #[error("evidence level {} ({}) does not work here: {why}; {remedy}", level.number(), level.name())]
    Level {
        /// The level.
        level: Level,
        /// The system error.
        why: String,
        /// How to make it work.
        remedy: String,
    },
    /// The collecting thread cannot be started.
    #[error("cannot start the event collection thread: {}; use fewer threads", reason(.0))]
    Thread(std::io::Error),
    /// A process cannot be observed.
    #[error("cannot observe process {pid}: {why}")]
    Process {
        /// Process ID.
        pid: u32,
        /// The system error.
        why: String,
    },
}
