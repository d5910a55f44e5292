//! What the controller of a run decided, and why.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The decisions of the controller of one run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Tuned {
    /// The last number of files in flight, in one sentence with its reason.
    pub why: String,
    /// The decisions in order; the first is the start value.
    pub decisions: Vec<Decided>,
    /// Decisions that were dropped from the middle of a long run.
    pub decisions_dropped: u64,
    /// The course of the run, in at most 512 points.
    pub points: Vec<TunedPoint>,
    /// Time lost while other numbers and io_uring were tried, compared with the fastest one.
    pub probing_ns: u64,
    /// Time lost because the number that was kept was not the fastest one.
    pub choice_ns: u64,
    /// Effect of the lower I/O priority of a polite run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
}

impl fmt::Display for Tuned {
    /// Formats as one clause: the last number with its reason, how many decisions led there, and the
    /// effect of the priority.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The first decision is the start value.
        let changes = self.decisions.len().saturating_sub(1) as u64 + self.decisions_dropped;
        let s = if changes == 1 { "" } else { "s" };
        write!(f, "{} ({changes} decision{s})", self.why)?;
        self.priority.as_ref().map_or(Ok(()), |effect| write!(f, "; {effect}"))
    }
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// Time since the start of the run.
    pub at_ns: u64,
    /// Most files in flight before.
    pub from: u32,
    /// Most files in flight after.
    pub window: u32,
    /// The reason, with its numbers.
    pub reason: String,
}

/// Means over a part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TunedPoint {
    /// Start of the part, since the start of the run.
    pub at_ns: u64,
    /// Length of the part.
    pub elapsed_ns: u64,
    /// Most files that may be in flight.
    pub window: f64,
    /// Files in flight.
    pub in_flight: f64,
    /// Files completed per second.
    pub files_per_s: f64,
    /// Bytes processed per second.
    pub bytes_per_s: f64,
    /// Share of the compute permits without work, 0 to 1.
    pub idle: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clause_names_number_decisions_and_effect() {
        let decided = |window| Decided { at_ns: 0, from: 512, window, reason: String::new() };
        let why = "32 in flight: start value".to_owned();
        let tuned = Tuned { why, decisions: vec![decided(512), decided(32)], ..Tuned::default() };
        assert_eq!(tuned.to_string(), "32 in flight: start value (1 decision)");
        let priority = Some("no effect on tmpfs".to_owned());
        let polite = Tuned { decisions_dropped: 3, priority, ..tuned };
        let text = "32 in flight: start value (4 decisions); no effect on tmpfs";
        assert_eq!(polite.to_string(), text);
    }
}
