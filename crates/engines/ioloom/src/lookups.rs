//! Where looking up a path waits, so that each path should be looked up only once.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether looking up a path waits, as the timed lookups of all threads last showed. A lookup that
/// only was preempted is corrected by the next one.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    waiting: AtomicBool,
    cannot_reopen: AtomicBool,
}

/// Time of a lookup that waited. In memory, even a `stat` of a long path takes a tenth.
pub(crate) const LOOKUP_WAITED_NS: u64 = 100_000;

impl Lookups {
    /// Reports whether a lookup is likely to wait.
    #[inline]
    pub(crate) fn wait(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes the time of a lookup, if it was timed.
    #[inline]
    pub(crate) fn took(&self, ns: Option<u64>) {
        let Some(ns) = ns else { return };
        let waited = ns >= LOOKUP_WAITED_NS && !self.cannot_reopen.load(Ordering::Relaxed);
        if waited != self.wait() {
            self.waiting.store(waited, Ordering::Relaxed);
        }
    }

    /// Records that a file that was looked up cannot be opened without another lookup.
    #[cold]
    pub(crate) fn cannot_reopen(&self) {
        self.cannot_reopen.store(true, Ordering::Relaxed);
        self.waiting.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_timed_lookup_decides() {
        let lookups = Lookups::default();
        assert!(!lookups.wait());
        lookups.took(Some(2_000_000));
        lookups.took(None);
        assert!(lookups.wait());
        lookups.took(Some(2_000));
        assert!(!lookups.wait());
        lookups.took(Some(2_000_000));
        lookups.cannot_reopen();
        lookups.took(Some(2_000_000));
        assert!(!lookups.wait(), "two lookups are needed wherever files cannot be opened again");
    }
}
