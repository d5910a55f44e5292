//! A classified trace: lanes that can be drawn, summed and stored.

use crate::span::Span;
use ioloom_model::record::Bottleneck;
use ioloom_model::{Evidence, State, StateTable};
use serde::Serialize;

/// Role of kernel workers, such as those of an io_uring.
pub const ROLE_KERNEL_WORKER: &str = "kernel-worker";
/// Role of threads that belong to the observing tool; excluded from sums over all threads.
pub const ROLE_TOOL: &str = "tool";

/// [`Segment::cpu`] if the processor is unknown.
pub const NO_CPU: u16 = u16::MAX;
/// [`Span::file`] if the span has no file.
pub const NO_FILE: u32 = u32::MAX;

/// A classified run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// Description of the run, in one line.
    pub title: String,
    /// Wall-clock start in milliseconds since 1970; 0 if unknown.
    pub started_unix_ms: u64,
    /// Elapsed time in nanoseconds.
    pub elapsed_ns: u64,
    /// Threads by role and number, with kernel workers and tool threads last.
    pub threads: Vec<Thread>,
    /// Block devices that served requests.
    pub devices: Vec<Device>,
    /// Processors and the threads that ran on them.
    pub cores: Vec<Core>,
    /// Counters over time.
    pub series: Vec<Series>,
    /// Phase marks.
    pub marks: Vec<Mark>,
    /// File names, indexed by [`Span::file`]; names that are not UTF-8 are converted lossily. Can
    /// be shorter than the indices in use if names were not stored.
    pub files: Vec<String>,
    /// File sizes in bytes; empty if not stored.
    pub file_bytes: Vec<u64>,
    /// Evidence for the states.
    pub evidence: Evidence,
    /// What limited the run, as in its measurements; `None` if the run was not judged.
    pub limit: Option<Bottleneck>,
}

/// One thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thread {
    /// Thread id.
    pub tid: u32,
    /// Name.
    pub name: String,
    /// Role.
    pub role: String,
    /// Time at which it joined the run.
    pub start_ns: u64,
    /// Time at which it left.
    pub end_ns: u64,
    /// Recorded spans, sorted by start.
    pub spans: Vec<Span>,
    /// States. The segments tile `start_ns..end_ns` without gap or overlap.
    pub segments: Vec<Segment>,
    /// Time per state, with source, quality, `includes` and `why`.
    pub states: StateTable,
    /// Wake-ups of the thread, sorted by time (level 2).
    pub wakes: Vec<Wake>,
}

/// An interval in one state. It ends at the start of the next one, or at the end of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Start.
    pub start_ns: u64,
    /// State.
    pub state: State,
    /// Whether the position within the span is known. Level 0 has only sums: such segments are in
    /// state order and are drawn hatched.
    pub placed: bool,
    /// Processor while running, else [`NO_CPU`].
    pub cpu: u16,
    /// Thread that took over, if preempted; 0 if unknown.
    pub by_tid: u32,
}

/// A wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// Time of the wake-up.
    pub at_ns: u64,
    /// The waking thread; 0 for an interrupt or if unknown.
    pub by_tid: u32,
}

/// A block device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Device {
    /// Name, such as `vda`.
    pub name: String,
    /// Requests, sorted by issue time.
    pub requests: Vec<Request>,
}

/// A device request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Index of the device.
    pub device: u16,
    /// Whether it is a write.
    pub write: bool,
    /// Issue time in nanoseconds after the start of the run.
    pub issue_ns: u64,
    /// Completion time; `None` if it was not observed.
    pub complete_ns: Option<u64>,
    /// First sector (512 bytes).
    pub sector: u64,
    /// Size in bytes.
    pub bytes: u32,
    /// Issuing thread; 0 if unknown.
    pub tid: u32,
}

/// A processor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Core {
    /// Number.
    pub cpu: u16,
    /// Threads that ran on it, sorted by start; gaps are idle time.
    pub runs: Vec<CoreRun>,
}

/// An interval in which a thread ran on a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreRun {
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Thread.
    pub tid: u32,
    /// Whether it belongs to the observed program.
    pub ours: bool,
}

/// A counter over time; each value is valid until the next one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Name: `in flight`, `ready queue`, `memory budget`, ...
    pub name: String,
    /// Unit: `requests`, `files`, `bytes`.
    pub unit: String,
    /// Time and value.
    pub points: Vec<(u64, f64)>,
}

/// A named point in time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Mark {
    /// Time.
    pub at_ns: u64,
    /// Name of the event.
    pub name: String,
}
