//! The explained trace: lanes that can be drawn, summed and stored.

use crate::span::Span;
use ioloom_model::{Evidence, State, StateTable};
use serde::Serialize;

/// [`Segment::cpu`] when the processor is not known.
pub const NO_CPU: u16 = u16::MAX;
/// [`Span::file`] without a file.
pub const NO_FILE: u32 = u32::MAX;

/// One run, explained.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// What ran, in one line.
    pub title: String,
    /// Wall-clock start, milliseconds since 1970; 0 when not known.
    pub started_unix_ms: u64,
    /// Elapsed time, nanoseconds.
    pub elapsed_ns: u64,
    /// Threads by role and number, kernel workers and the tool's own last.
    pub threads: Vec<Thread>,
    /// Block devices that served requests.
    pub devices: Vec<Device>,
    /// Processors with who held them.
    pub cores: Vec<Core>,
    /// Counters over time.
    pub series: Vec<Series>,
    /// Phase marks.
    pub marks: Vec<Mark>,
    /// Names of files, indexed by [`Span::file`]; raw bytes may be non-UTF-8 and are shown lossily.
    /// May be shorter than the indices in use when names were not kept.
    pub files: Vec<String>,
    /// Sizes of the same files, bytes; empty when not kept.
    pub file_bytes: Vec<u64>,
    /// What it rests on.
    pub evidence: Evidence,
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
    /// When it entered the run.
    pub start_ns: u64,
    /// When it left.
    pub end_ns: u64,
    /// What it said it did, by start.
    pub spans: Vec<Span>,
    /// Its states: the segments tile `start_ns..end_ns` without gap or overlap.
    pub segments: Vec<Segment>,
    /// Sum per state with source, quality, `includes` and `why`.
    pub states: StateTable,
    /// Who woke it when, by time (level 2).
    pub wakes: Vec<Wake>,
}

/// A stretch of one state; it ends where the next one starts, the last at the thread's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Start.
    pub start_ns: u64,
    /// State.
    pub state: State,
    /// Whether the position inside its span is known. Level 0 knows sums only: such segments stand
    /// in the order of the states and are drawn hatched.
    pub placed: bool,
    /// Processor while running, else [`NO_CPU`].
    pub cpu: u16,
    /// Preempted: the thread that took over. 0 unknown.
    pub by_tid: u32,
}

/// A wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// When.
    pub at_ns: u64,
    /// Who; 0 for an interrupt or unknown.
    pub by_tid: u32,
}

/// A block device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Device {
    /// Name, such as `vda`.
    pub name: String,
    /// Its requests by issue time.
    pub requests: Vec<Request>,
}

/// One device request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Index of the device.
    pub device: u16,
    /// Whether it writes.
    pub write: bool,
    /// Issued, nanoseconds after the start of the run.
    pub issue_ns: u64,
    /// Completed; `None` when the end was never seen.
    pub complete_ns: Option<u64>,
    /// First sector (512 bytes).
    pub sector: u64,
    /// Bytes.
    pub bytes: u32,
    /// Thread that issued it; 0 unknown.
    pub tid: u32,
}

/// One processor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Core {
    /// Number.
    pub cpu: u16,
    /// Who held it, by start; gaps are idle.
    pub runs: Vec<CoreRun>,
}

/// A thread on a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreRun {
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Thread.
    pub tid: u32,
    /// Whether it belongs to the watched program.
    pub ours: bool,
}

/// A counter over time; each value holds until the next.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Name: `in flight`, `ready queue`, `memory budget`, ...
    pub name: String,
    /// Unit: `requests`, `files`, `bytes`.
    pub unit: String,
    /// Time and value.
    pub points: Vec<(u64, f64)>,
}

/// A named moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Mark {
    /// When.
    pub at_ns: u64,
    /// What happened.
    pub name: String,
}
