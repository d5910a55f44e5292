//! What the trace shows, in words: each finding with the numbers that led to it.
//!
//! A finding is a rule with thresholds, so each threshold is a named constant with its reason, and a
//! rule whose numbers were not measured at this level stays silent. No rule looks at the machine or
//! at another run: what is said follows from the trace alone.

mod devices;
mod threads;

use crate::lane::Trace;
use crate::shares::{Lanes, Shares, is_program_thread};
use crate::utilisation::Utilisation;
use serde::Serialize;

/// One finding. It is only made from numbers that the trace holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Short stable name, such as `oversubscription`.
    pub id: String,
    /// A heading.
    pub title: String,
    /// What happens, in one sentence.
    pub sentence: String,
    /// What led to it: name of the number, and the number with its unit.
    pub evidence: Vec<(String, String)>,
    /// What to try.
    #[serde(rename = "try")]
    pub try_this: String,
}

/// Everything that the rules look at.
struct Seen<'a> {
    trace: &'a Trace,
    lanes: Lanes<'a>,
    /// Time per state of the program's own threads over the whole run.
    all: Shares,
    utilisation: Utilisation,
}

impl Seen<'_> {
    /// A time of own threads as a part of all their time.
    fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.all.total().max(1) as f64
    }

    /// A time as a part of the run.
    fn of_run(&self, ns: u64) -> f64 {
        ns as f64 / self.trace.elapsed_ns.max(1) as f64
    }
}

/// A rule: silent, or one finding.
type Rule = fn(&Seen<'_>) -> Option<Finding>;

/// The rules, in the order of the report.
const RULES: [Rule; 8] = [
    threads::oversubscription,
    threads::lock_convoy,
    threads::uneven_work,
    devices::disk_idle,
    devices::cpu_idle,
    threads::submission,
    threads::page_faults,
    devices::backlog,
];

/// Looks for the patterns that the module names. Empty if nothing stands out, or if what would
/// stand out was not measured.
pub fn findings(trace: &Trace) -> Vec<Finding> {
    if trace.elapsed_ns == 0 || !trace.threads.iter().any(is_program_thread) {
        return Vec::new();
    }
    let lanes = Lanes::new(trace);
    let all = lanes.all(0, u64::MAX);
    let seen = Seen { trace, lanes, all, utilisation: Utilisation::new(trace) };
    RULES.iter().filter_map(|rule| rule(&seen)).collect()
}

/// A share as per cent.
fn pct(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// One line of evidence.
fn line(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

/// The middle value; `None` of nothing.
fn median(values: &mut [u64]) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}
