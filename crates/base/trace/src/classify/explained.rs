//! Result of classifying one thread.

use crate::lane::Segment;
use ioloom_model::State;
use std::collections::BTreeSet;

/// Segments of a thread, with counts for the checks.
#[derive(Default)]
pub(super) struct Explained {
    pub(super) segments: Vec<Segment>,
    /// Whether clock readings were used instead of switches.
    pub(super) by_accounts: bool,
    /// Unmatched switches.
    pub(super) chain_breaks: u64,
    /// Blocked intervals.
    pub(super) blocks: u64,
    /// Blocked intervals without a wake-up although wake-ups were recorded.
    pub(super) unwoken: u64,
    /// Whether the ready time is known.
    pub(super) ready_known: bool,
    /// Whether there was no clock, so only the kinds of spans were used.
    pub(super) no_clock: bool,
    /// Whether later events were dropped before the thread ended.
    pub(super) cut: bool,
    /// States inferred only from the kind of wait.
    pub(super) inferred: BTreeSet<State>,
}
