//! The input of the rules.

use crate::lane::Trace;
use crate::shares::{Lanes, Shares};
use crate::utilisation::Utilisation;

/// Input of the rules.
pub(super) struct Observed<'a> {
    pub(super) trace: &'a Trace,
    pub(super) lanes: Lanes<'a>,
    /// Time per state of all threads of the program over the whole run.
    pub(super) all: Shares,
    pub(super) utilisation: Utilisation,
}

impl Observed<'_> {
    /// Returns a thread time as a share of the total time of all threads.
    pub(super) fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.all.total().max(1) as f64
    }

    /// Returns a time as a share of the run.
    pub(super) fn of_run(&self, ns: u64) -> f64 {
        ns as f64 / self.trace.elapsed_ns.max(1) as f64
    }
}

/// Returns the median; `None` without values.
pub(super) fn median(values: &mut [u64]) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}
