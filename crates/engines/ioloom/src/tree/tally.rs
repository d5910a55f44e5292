//! What a walk has found so far, shared by its threads, the run and reports of progress.

use super::Walked;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counts of a walk.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Entries sent to the run so far.
    pub(super) found: AtomicU64,
    /// Counts of the threads that have ended.
    walked: Mutex<Walked>,
}

impl Tally {
    /// Returns the number of entries found so far.
    pub(crate) fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// Returns the counts, which are complete when the walk has ended.
    pub(crate) fn walked(&self) -> Walked {
        *self.walked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the counts of a thread that ends.
    pub(super) fn add(&self, walked: &Walked) {
        self.walked.lock().unwrap_or_else(PoisonError::into_inner).add(walked);
    }
}
