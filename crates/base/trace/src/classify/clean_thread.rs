//! A recorded thread with sorted lists.

use crate::raw::RawThread;
use crate::span::Span;

/// A thread with sorted lists and with spans clipped to its lifetime.
pub(super) struct CleanThread {
    pub(super) raw: RawThread,
}

impl CleanThread {
    pub(super) fn of(mut raw: RawThread) -> Self {
        raw.end_ns = raw.end_ns.max(raw.start_ns);
        raw.spans = clean_spans(raw.spans, raw.start_ns, raw.end_ns);
        raw.accounts.sort_by_key(|a| a.at_ns);
        raw.switches.sort_by_key(|s| s.at_ns);
        raw.switches.dedup();
        raw.wakes.sort_by_key(|w| w.at_ns);
        raw.faults.sort_by_key(|f| f.at_ns);
        raw.locks.sort_by_key(|l| l.start_ns);
        Self { raw }
    }

    pub(super) fn ns(&self) -> u64 {
        self.raw.end_ns - self.raw.start_ns
    }

    /// Reports whether clock readings show anything about the thread.
    pub(super) fn has_readings(&self) -> bool {
        self.raw.cpu_ns.is_some_and(|ns| ns > 0) || !self.raw.accounts.is_empty()
    }

    /// Returns the span that contains a point in time.
    pub(super) fn span_at(&self, at_ns: u64) -> Option<&Span> {
        let after = self.raw.spans.partition_point(|s| s.start_ns <= at_ns);
        let span = self.raw.spans.get(after.checked_sub(1)?)?;
        (at_ns < span.start_ns.saturating_add(span.ns)).then_some(span)
    }

    /// Returns the first start or end of a span after a point in time. The thread was running then
    /// because it read the clock.
    pub(super) fn boundary_after(&self, at_ns: u64) -> Option<u64> {
        let spans = &self.raw.spans;
        let end = |s: &Span| s.start_ns.saturating_add(s.ns);
        let start = spans.get(spans.partition_point(|s| s.start_ns <= at_ns)).map(|s| s.start_ns);
        let end = spans.get(spans.partition_point(|s| end(s) <= at_ns)).map(end);
        [start, end].into_iter().flatten().min()
    }

    /// Returns the last start or end of a span at or before a point in time.
    pub(super) fn boundary_before(&self, at_ns: u64) -> Option<u64> {
        let spans = &self.raw.spans;
        let end = |s: &Span| s.start_ns.saturating_add(s.ns);
        let start = spans.partition_point(|s| s.start_ns <= at_ns).checked_sub(1);
        let ended = spans.partition_point(|s| end(s) <= at_ns).checked_sub(1);
        [start.map(|i| spans[i].start_ns), ended.map(|i| end(&spans[i]))]
            .into_iter()
            .flatten()
            .max()
    }

    /// Returns the first wake-up in `from..=to`.
    pub(super) fn wake_in(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let wakes = &self.raw.wakes;
        let first = wakes.get(wakes.partition_point(|w| w.at_ns < from_ns))?.at_ns;
        (first <= to_ns).then_some(first)
    }
}

/// Sorts spans, clips them to the lifetime of the thread, and shortens the later of two overlapping
/// spans.
fn clean_spans(mut spans: Vec<Span>, start_ns: u64, end_ns: u64) -> Vec<Span> {
    spans.sort_by_key(|s| s.start_ns);
    let mut free_from = start_ns;
    spans.retain_mut(|span| {
        let end = span.start_ns.saturating_add(span.ns).min(end_ns);
        let inside = span.start_ns <= end_ns && end >= free_from;
        let was_empty = span.ns == 0;
        span.start_ns = span.start_ns.max(free_from);
        span.ns = end.saturating_sub(span.start_ns);
        free_from = free_from.max(end);
        inside && (span.ns > 0 || was_empty)
    });
    spans
}
