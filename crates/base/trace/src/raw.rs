//! Recorded events as delivered by the collectors.

use crate::lane::{CoreRun, Mark, Request, Series, Wake};
use crate::span::Span;
use ioloom_model::{Level, State};

/// Name of the series whose last value is the number of usable processors. Without core lanes, this
/// is needed to detect more runnable threads than processors.
pub const PROCESSORS: &str = "processors";
/// Name of the series that counts items read but not yet computed. It reveals a queue that only
/// grows.
pub const READY_QUEUE: &str = "ready queue";

/// Name of the source of spans that are samples of another program.
pub const SAMPLES: &str = "proc.samples";

/// All recorded events of one observation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Raw {
    /// Observation level, which determines the applicable rules.
    pub level: Option<Level>,
    /// Elapsed time of the run in nanoseconds.
    pub elapsed_ns: u64,
    /// One entry per thread, including kernel workers.
    pub threads: Vec<RawThread>,
    /// Device requests.
    pub requests: Vec<Request>,
    /// Device names, indexed by [`Request::device`].
    pub devices: Vec<String>,
    /// Threads that ran on each processor (level 2), including those of other programs.
    pub cores: Vec<Vec<CoreRun>>,
    /// Counters over time: window in flight, ready queue, memory budget.
    pub series: Vec<Series>,
    /// Phase marks.
    pub marks: Vec<Mark>,
    /// State of a wait within the user's function, if the caller knows what the function does (for
    /// example, it sleeps).
    pub function_waits: Option<State>,
    /// Time of the first event that was dropped because a limit was reached; `None` if all were kept. The
    /// states of threads are unknown from then on.
    pub complete_until_ns: Option<u64>,
    /// Sources, losses and the clock self-test. [`crate::classify()`] adds the other checks.
    pub evidence: ioloom_model::Evidence,
}

/// Recorded events of one thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawThread {
    /// Thread id.
    pub tid: u32,
    /// Name.
    pub name: String,
    /// Role: `worker`, `reader`, `hybrid`, `computer`, `kernel-worker`, `tool`.
    pub role: String,
    /// Time at which it joined the run.
    pub start_ns: u64,
    /// Time at which it left.
    pub end_ns: u64,
    /// Recorded spans, sorted by start.
    pub spans: Vec<Span>,
    /// Clock readings at the ends of long spans, sorted by time (level 0 and checks).
    pub accounts: Vec<Account>,
    /// Context switches, sorted by time (levels 1 and 2).
    pub switches: Vec<Switch>,
    /// Wake-ups of this thread, sorted by time (level 2).
    pub wakes: Vec<Wake>,
    /// Page faults that waited for a device, sorted by time (levels 1 and 2).
    pub faults: Vec<Fault>,
    /// Waits for kernel locks, sorted by start (level 2).
    pub locks: Vec<LockWait>,
    /// Processor time between start and end, from the thread clock; `None` if unknown.
    pub cpu_ns: Option<u64>,
    /// Run-queue delay between start and end, from schedstat; `None` if unknown.
    pub run_delay_ns: Option<u64>,
}

/// Readings of the thread's clocks, both relative to the start of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Time of the reading.
    pub at_ns: u64,
    /// Processor time so far.
    pub cpu_ns: u64,
    /// Run-queue delay so far; `None` without schedstat.
    pub run_delay_ns: Option<u64>,
}

/// A context switch: the thread was scheduled out or in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// Time of the switch.
    pub at_ns: u64,
    /// Whether the thread was scheduled out.
    pub out: bool,
    /// If scheduled out: whether it was still runnable.
    pub preempted: bool,
    /// If scheduled out, at level 2: whether its kernel state was D (uninterruptible).
    pub uninterruptible: bool,
    /// The processor.
    pub cpu: u16,
    /// If scheduled out, at level 2: the thread that took over; 0 for idle or if unknown.
    pub next_tid: u32,
}

/// A major page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// End time, when the kernel counts the fault.
    pub at_ns: u64,
    /// Accessed address.
    pub address: u64,
}

/// A wait for a kernel lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockWait {
    /// Start.
    pub start_ns: u64,
    /// End time; equal to the start if it was not observed.
    pub end_ns: u64,
}
