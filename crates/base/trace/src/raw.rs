//! What the collectors deliver: events as they happened, not yet explained.

use crate::lane::{CoreRun, Mark, Request, Series, Wake};
use crate::span::Span;
use ioloom_model::{Level, State};

/// Name of the series whose last value is the number of usable processors. Levels without core lanes
/// cannot tell it otherwise, and who runs too many threads is judged by it.
pub const PROCESSORS: &str = "processors";
/// Name of the series of items that are read and not yet computed; a queue that only grows is found
/// by it.
pub const READY_QUEUE: &str = "ready queue";

/// Everything that one observation recorded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Raw {
    /// The level that delivered; decides which rules can be used.
    pub level: Option<Level>,
    /// Elapsed time of the run, nanoseconds.
    pub elapsed_ns: u64,
    /// One entry per thread, kernel workers included.
    pub threads: Vec<RawThread>,
    /// Device requests.
    pub requests: Vec<Request>,
    /// Names of the devices, indexed by [`Request::device`].
    pub devices: Vec<String>,
    /// Who held which processor (level 2); others' threads included.
    pub cores: Vec<Vec<CoreRun>>,
    /// Counters over time: window in flight, ready queue, memory budget.
    pub series: Vec<Series>,
    /// Phase marks.
    pub marks: Vec<Mark>,
    /// What a wait inside the user's function is, where the caller knows what the function does:
    /// work that sleeps, for instance.
    pub function_waits: Option<State>,
    /// Sources, losses and self-test of the clock; [`crate::Trace`] completes the checks.
    pub evidence: ioloom_model::Evidence,
}

/// What was recorded of one thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawThread {
    /// Thread id.
    pub tid: u32,
    /// Name.
    pub name: String,
    /// Role: `worker`, `reader`, `hybrid`, `computer`, `kernel-worker`, `tool`.
    pub role: String,
    /// When it entered the run.
    pub start_ns: u64,
    /// When it left.
    pub end_ns: u64,
    /// What it said it did, by start.
    pub spans: Vec<Span>,
    /// Accounts taken at the ends of long spans, by time (level 0 and checks).
    pub accounts: Vec<Account>,
    /// Switches by time (levels 1 and 2).
    pub switches: Vec<Switch>,
    /// Wake-ups of this thread by time (level 2).
    pub wakes: Vec<Wake>,
    /// Page faults that waited for a device, by time (levels 1 and 2).
    pub faults: Vec<Fault>,
    /// Waits for kernel locks, by start (level 2).
    pub locks: Vec<LockWait>,
    /// Processor time between start and end by the thread clock; `None` if unknown.
    pub cpu_ns: Option<u64>,
    /// Run-queue delay between start and end by schedstat; `None` if unknown.
    pub run_delay_ns: Option<u64>,
}

/// The thread's own clocks at one moment, both counted from the thread's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// When.
    pub at_ns: u64,
    /// Processor time so far.
    pub cpu_ns: u64,
    /// Run-queue delay so far; `None` without schedstat.
    pub run_delay_ns: Option<u64>,
}

/// The thread left or got a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// When.
    pub at_ns: u64,
    /// `true`: it left.
    pub out: bool,
    /// On leaving: it still wanted to run.
    pub preempted: bool,
    /// On leaving, level 2: the kernel's state letter was D (uninterruptible).
    pub uninterruptible: bool,
    /// The processor.
    pub cpu: u16,
    /// On leaving, level 2: the thread that took over; 0 for idle or unknown.
    pub next_tid: u32,
}

/// A major page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// When it ended (the kernel counts it then).
    pub at_ns: u64,
    /// Address that was touched.
    pub address: u64,
}

/// A wait for a lock inside the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockWait {
    /// Start.
    pub start_ns: u64,
    /// End; equal to the start when the end was not seen.
    pub end_ns: u64,
}
