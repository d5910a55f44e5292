//! What a walk has found so far, shared by its threads, the run and reports of progress.

use super::Walked;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the end of a run waits for its walk, which a directory that does not answer may hold up.
const END_WAIT: Duration = Duration::from_millis(20);

/// Counts of a walk.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Whether the walk runs, and what ends it.
    running: Mutex<bool>,
    ended: Condvar,
    pub(super) stop: Arc<AtomicBool>,
    /// Whether files may be missing, because the walk was cancelled before the run.
    cut: AtomicBool,
    /// Entries sent to the run so far.
    pub(super) found: AtomicU64,
    /// Counts of what was found.
    walked: Mutex<Walked>,
}

impl Tally {
    /// Returns the number of entries found so far.
    pub(crate) fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// Records that the walk starts. Returns false if its run has ended already.
    pub(super) fn starts(&self) -> bool {
        let mut running = lock(&self.running);
        assert!(!*running, "a walk starts once");
        *running = !self.stop.load(Ordering::Relaxed);
        *running
    }

    /// Records that the walk has ended.
    pub(super) fn ends(&self) {
        *lock(&self.running) = false;
        self.ended.notify_all();
    }

    /// Records that a cancel ended the walk before all files were found.
    pub(super) fn cuts(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Reports whether a cancel ended the walk before all files were found.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Ends the walk of a run that has ended, and waits for it for a moment.
    pub(crate) fn finish(&self) {
        let running = lock(&self.running);
        self.stop.store(true, Ordering::Relaxed);
        drop(self.ended.wait_timeout_while(running, END_WAIT, |running| *running));
    }

    /// Returns the counts, which are complete when the walk has ended.
    pub(crate) fn walked(&self) -> Walked {
        *lock(&self.walked)
    }

    /// Adds the counts of a thread since its last call.
    pub(super) fn add(&self, walked: &Walked) {
        lock(&self.walked).add(walked);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
