//! Spans: operations recorded by a thread.

use ioloom_model::{CallKind, State};

/// The kind of a span. The first ten are operations on a file, named as in source study 000. The
/// others are waits that only the program itself can distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SpanKind {
    /// Opening a file.
    Open,
    /// Reading its metadata.
    Stat,
    /// Waiting for memory from the budget.
    Memory,
    /// The read call, or the submission of an asynchronous read.
    Read,
    /// Mapping a file.
    Map,
    /// Waiting for a completion.
    Completion,
    /// Waiting for a queue or a permit.
    HandOver,
    /// The user's function.
    Compute,
    /// Unmapping a file.
    Unmap,
    /// Closing a file.
    Close,
    /// Touching pages of a mapping.
    Fault,
    /// Writing to a file.
    Write,
    /// Making writes durable.
    Flush,
    /// Waiting for another thread: a lock or a condition.
    Sync,
    /// Waiting for an event: a socket, a pipe, a poll.
    Event,
    /// Sleeping voluntarily.
    Sleep,
    /// Waiting in the kernel for ring completions.
    RingWait,
    /// Listing a directory.
    List,
    /// Anything else.
    Other,
    /// Waiting for the next path of the input list.
    Input,
}

impl SpanKind {
    /// All kinds, in the order of their codes in trace files: new kinds are added at the end.
    pub const ALL: [Self; 20] = [
        Self::Open,
        Self::Stat,
        Self::Memory,
        Self::Read,
        Self::Map,
        Self::Completion,
        Self::HandOver,
        Self::Compute,
        Self::Unmap,
        Self::Close,
        Self::Fault,
        Self::Write,
        Self::Flush,
        Self::Sync,
        Self::Event,
        Self::Sleep,
        Self::RingWait,
        Self::List,
        Self::Other,
        Self::Input,
    ];

    /// Returns the name, as in source study 000 if it has one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Stat => "stat",
            Self::Memory => "memory",
            Self::Read => "read call",
            Self::Map => "map",
            Self::Completion => "completion",
            Self::HandOver => "hand-over",
            Self::Compute => "compute",
            Self::Unmap => "unmap",
            Self::Close => "close",
            Self::Fault => "fault",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Sync => "wait",
            Self::Event => "event",
            Self::Sleep => "sleep",
            Self::RingWait => "ring wait",
            Self::List => "list",
            Self::Other => "other",
            Self::Input => "input",
        }
    }

    /// Returns the state of a thread that is blocked in such a span, if nothing else is known.
    pub const fn blocked_state(self) -> State {
        match self {
            Self::Open
            | Self::Stat
            | Self::Read
            | Self::Map
            | Self::Completion
            | Self::Unmap
            | Self::Close
            | Self::Write
            | Self::Flush
            | Self::List => State::Io,
            Self::RingWait => State::AsyncIo,
            Self::Fault => State::Paging,
            Self::Memory | Self::HandOver | Self::Sync => State::Sync,
            Self::Event | Self::Input => State::Event,
            Self::Sleep => State::Sleep,
            Self::Compute | Self::Other => State::Unknown,
        }
    }
}

impl From<CallKind> for SpanKind {
    fn from(kind: CallKind) -> Self {
        match kind {
            CallKind::Open => Self::Open,
            CallKind::Stat => Self::Stat,
            CallKind::Memory => Self::Memory,
            CallKind::Read => Self::Read,
            CallKind::Map => Self::Map,
            CallKind::Completion => Self::Completion,
            CallKind::HandOver => Self::HandOver,
            CallKind::Compute => Self::Compute,
            CallKind::Unmap => Self::Unmap,
            CallKind::Close => Self::Close,
            CallKind::Input => Self::Input,
        }
    }
}

/// One span of one thread. Spans of a thread are sorted by start and do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Start in nanoseconds after the start of the run.
    pub start_ns: u64,
    /// Length in nanoseconds.
    pub ns: u64,
    /// Operation.
    pub kind: SpanKind,
    /// Index into the trace's files, or [`crate::NO_FILE`].
    pub file: u32,
}
