//! The kinds of events available in an observation, which determine the applicable rules.

use crate::raw::Raw;
use crate::span::SpanKind;
use ioloom_model::{Level, State};

/// The kinds of events available in an observation.
pub(super) struct Capabilities {
    pub(super) level: Level,
    /// Wake-ups were recorded.
    pub(super) wakes: bool,
    /// Major faults were recorded.
    pub(super) faults: bool,
    /// Waits for kernel locks were recorded.
    pub(super) locks: bool,
    /// A thread records page accesses as spans.
    pub(super) fault_spans: bool,
    /// A thread maps files.
    pub(super) maps: bool,
    /// Name of the switch source.
    pub(super) switch_source: &'static str,
    /// State of a wait within the user's function.
    pub(super) function_waits: State,
    /// Time until which every event was kept.
    pub(super) until_ns: u64,
}

impl Capabilities {
    pub(super) fn of(raw: &Raw) -> Self {
        let level = raw.level.unwrap_or(raw.evidence.level);
        let sources = &raw.evidence.sources;
        // Without a list of sources, the level determines the available ones.
        let has = |words: &[&str], lowest: Level| {
            level >= lowest
                && (sources.is_empty()
                    || sources.iter().any(|s| {
                        let mut parts = s.name.split(|c: char| !c.is_ascii_alphanumeric());
                        parts.any(|part| words.contains(&part))
                    }))
        };
        let any_span = |kinds: &[SpanKind]| {
            let mut spans = raw.threads.iter().flat_map(|t| &t.spans);
            spans.any(|s| kinds.contains(&s.kind))
        };
        let perf = sources.is_empty() || sources.iter().any(|s| s.name == "perf.switch");
        Self {
            level,
            wakes: has(&["waking", "wakeup"], Level::Kernel)
                || (level == Level::Kernel && raw.threads.iter().any(|t| !t.wakes.is_empty())),
            faults: has(&["fault", "faults"], Level::Switch)
                || raw.threads.iter().any(|t| !t.faults.is_empty()),
            locks: has(&["lock", "contention"], Level::Kernel)
                || raw.threads.iter().any(|t| !t.locks.is_empty()),
            fault_spans: any_span(&[SpanKind::Fault]),
            maps: any_span(&[SpanKind::Fault, SpanKind::Map]),
            switch_source: if perf { "perf.switch" } else { "tracefs.sched_switch" },
            function_waits: raw.function_waits.unwrap_or(State::Unknown),
            until_ns: raw.complete_until_ns.unwrap_or(u64::MAX),
        }
    }

    /// Returns the state of a thread that is blocked in a span, if nothing else is known.
    pub(super) fn blocked_in(&self, kind: SpanKind) -> State {
        if kind == SpanKind::Compute { self.function_waits } else { kind.blocked_state() }
    }
}
