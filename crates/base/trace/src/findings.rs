//! Findings: problems shown by a trace, with the supporting numbers.
//!
//! A finding is a rule with thresholds. Each threshold is a named constant with a reason. A rule
//! reports nothing if its numbers were not measured at the level of the trace. Rules use only the
//! trace, not the machine or other runs.
//!
//! The first finding is what limited the run, as its measurements report it. No other finding
//! contradicts it.

mod devices;
mod finding;
mod limit;
mod observed;
mod threads;

pub use finding::Finding;

use crate::lane::Trace;
use crate::shares::{Lanes, is_program_thread};
use crate::utilisation::Utilisation;
use observed::Observed;

/// A rule, which returns at most one finding.
type Rule = fn(&Observed<'_>) -> Option<Finding>;

/// A shorter trace has only the limit as a finding: starting and ending threads takes a large part
/// of it.
const JUDGED_FROM_NS: u64 = 10_000_000;

/// The rules, in report order.
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

/// Applies all rules to a trace. Returns nothing if no rule applies or the numbers were not
/// measured.
pub fn findings(trace: &Trace) -> Vec<Finding> {
    if trace.elapsed_ns == 0 || !trace.threads.iter().any(is_program_thread) {
        return Vec::new();
    }
    let mut found: Vec<Finding> = limit::limit(trace).into_iter().collect();
    if trace.elapsed_ns < JUDGED_FROM_NS {
        return found;
    }
    let lanes = Lanes::new(trace);
    let all = lanes.all(0, u64::MAX);
    let observed = Observed { trace, lanes, all, utilisation: Utilisation::new(trace) };
    found.extend(RULES.iter().filter_map(|rule| rule(&observed)));
    found
}
