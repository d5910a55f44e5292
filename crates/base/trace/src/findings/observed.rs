//! The input of the rules.

use crate::lane::Trace;
use crate::raw::SAMPLES;
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

/// A finding about a limit with a smaller share would contradict the limit of the run.
const SHARE_MIN_PERCENT: u32 = 10;

impl Observed<'_> {
    /// Reports whether `word` has a notable share in the limit of the run; true if the run was not
    /// judged by shares.
    pub(super) fn allows(&self, word: &str) -> bool {
        let shares = self.trace.limit.as_ref().map(|limit| &limit.shares);
        shares.is_none_or(|shares| {
            shares.is_empty() || shares.get(word).is_some_and(|p| *p >= SHARE_MIN_PERCENT)
        })
    }

    /// Reports whether spans come from samples of another program rather than from the program.
    pub(super) fn is_sampled(&self) -> bool {
        self.trace.evidence.sources.iter().any(|source| source.name == SAMPLES)
    }

    /// Reports whether `word` is the limit of the run or close to it.
    pub(super) fn is_limited_by(&self, word: &str) -> bool {
        let limit = self.trace.limit.as_ref();
        limit.is_some_and(|limit| limit.word == word || limit.close.as_deref() == Some(word))
    }

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
