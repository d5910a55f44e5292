//! Collects what the kernel and the program itself say of each thread.
//!
//! A [`Session`] observes threads of this process; each registers itself and gets a [`Recorder`].
//! A [`Watch`] observes a process tree from outside. Both end in the raw events of one run, which
//! `ioloom_trace` explains.
//!
//! ```text
//! session = Session::start(level, options)        probes by use, refuses a pinned level
//!   each thread: recorder = session.register(…)   opens its own kernel events
//!   barrier
//!   session.begin()      each thread: recorder.begin(), lap(…), lap(…), …, finish()
//! raw = session.stop()                            losses, self-tests and costs are in it
//! ```
//!
//! Levels: 0 has spans and the thread's clocks; 1 adds each switch and each major fault through a
//! ring per thread; 2 adds wake-ups, who ran where, device requests and kernel locks. One more
//! thread, with the role `tool` and a lane of its own, empties the rings.
//!
//! Costs to the program: 24 to 45 ns for a span, 1.5 µs for the clocks after a long one, about 2 µs
//! for a switch at level 1 and 1 µs more at level 2. All memory is bounded and made before the run;
//! what does not fit is counted.

mod assemble;
mod check;
mod drain;
mod gather;
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

use ioloom_model::Level;

/// Bounds and sizes of one observation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceOptions {
    /// Spans that each thread may keep; totals go on beyond them.
    pub spans_max: usize,
    /// Kernel events of the threads that are kept in all.
    pub events_max: usize,
    /// Ring of one thread at level 1, bytes: a power of two.
    pub ring_bytes: usize,
    /// Ring of one processor at level 2, KiB.
    pub trace_ring_kib: u32,
    /// Whether the cost of each kind of event is measured at the start (30 ms).
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

/// Why an observation does not start.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The level was asked for and does not work here.
    #[error("evidence level {} ({}) does not work here: {why}; {remedy}", level.number(), level.name())]
    Level {
        /// The level.
        level: Level,
        /// What the system said.
        why: String,
        /// What would make it work.
        remedy: String,
    },
    /// The thread that empties the rings cannot be started.
    #[error("start the thread that collects events: {0}; lower the number of threads")]
    Thread(std::io::Error),
    /// A process cannot be watched.
    #[error("watch process {pid}: {why}")]
    Process {
        /// Its number.
        pid: u32,
        /// What the system said.
        why: String,
    },
}
