//! Messages from recording threads to the collecting thread.

use ioloom_sys_trace::perf::Ring;
use ioloom_trace::raw::Account;
use ioloom_trace::{Span, SpanKind};

/// A message to the collecting thread.
pub(super) enum Message {
    /// A thread has registered, with its ring if it has one.
    Thread(u32, Option<Ring>),
    /// A thread has finished recording.
    Finished(Box<Finished>),
    /// The run is over.
    Stop,
}

/// Exact totals for one kind of span, including spans that were not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Number of spans.
    pub count: u64,
    /// Their total time in nanoseconds.
    pub ns: u64,
}

/// The recording of a finished thread, with times on the monotonic clock.
#[derive(Debug, Clone, Default)]
pub(super) struct Finished {
    pub(super) tid: u32,
    pub(super) name: String,
    pub(super) role: String,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) spans: Vec<Span>,
    pub(super) spans_lost: u64,
    pub(super) accounts: Vec<Account>,
    pub(super) accounts_lost: u64,
    pub(super) cpu_ns: u64,
    pub(super) run_delay_ns: Option<u64>,
    pub(super) totals: [Totals; SpanKind::ALL.len()],
}
