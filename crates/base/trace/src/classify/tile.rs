//! Builds segments that tile a thread by construction: the cursor only moves forward.

use crate::lane::{NO_CPU, Segment};
use crate::span::{Span, SpanKind};
use ioloom_model::State;

/// Properties of a segment other than its state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement {
    pub(super) placed: bool,
    pub(super) cpu: u16,
    pub(super) by_tid: u32,
}

impl Placement {
    pub(super) const PLACED: Self = Self { placed: true, cpu: NO_CPU, by_tid: 0 };
    pub(super) const ESTIMATED: Self = Self { placed: false, cpu: NO_CPU, by_tid: 0 };
}

/// Builds the segments of one thread.
pub(super) struct Tiler {
    segments: Vec<Segment>,
    at_ns: u64,
    end_ns: u64,
}

impl Tiler {
    pub(super) fn new(start_ns: u64, end_ns: u64) -> Self {
        Self { segments: Vec::new(), at_ns: start_ns, end_ns }
    }

    /// Fills from the cursor to a point in time. A point before the cursor has no effect.
    pub(super) fn until(&mut self, to_ns: u64, state: State, placement: Placement) {
        let to_ns = to_ns.min(self.end_ns);
        if to_ns <= self.at_ns {
            return;
        }
        let Placement { placed, cpu, by_tid } = placement;
        let segment = Segment { start_ns: self.at_ns, state, placed, cpu, by_tid };
        let same = self.segments.last().is_some_and(|last| {
            *last == Segment { start_ns: last.start_ns, ..segment } && segment.placed
        });
        if !same {
            self.segments.push(segment);
        }
        self.at_ns = to_ns;
    }

    /// Fills the rest and returns the segments.
    pub(super) fn finish(mut self, state: State, placement: Placement) -> Vec<Segment> {
        self.until(self.end_ns, state, placement);
        self.segments
    }
}

/// A span, or a gap between spans.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// `None` if outside any span.
    pub(super) kind: Option<SpanKind>,
    /// State of a thread blocked in it.
    pub(super) blocked: State,
}

impl Piece {
    pub(super) fn ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// Returns spans and gaps that tile `start..end`. The spans must be sorted and must not overlap.
/// `blocked` returns the state of a wait in a span.
pub(super) fn pieces(
    spans: &[Span],
    start_ns: u64,
    end_ns: u64,
    blocked: impl Fn(SpanKind) -> State,
) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(spans.len() + 1);
    let gap = |start_ns, end_ns| Piece { start_ns, end_ns, kind: None, blocked: State::Unknown };
    let mut at_ns = start_ns;
    for span in spans.iter().filter(|s| s.ns > 0) {
        if span.start_ns > at_ns {
            pieces.push(gap(at_ns, span.start_ns));
        }
        at_ns = span.start_ns + span.ns;
        let (kind, blocked) = (Some(span.kind), blocked(span.kind));
        pieces.push(Piece { start_ns: span.start_ns, end_ns: at_ns, kind, blocked });
    }
    if end_ns > at_ns {
        pieces.push(gap(at_ns, end_ns));
    }
    pieces
}
