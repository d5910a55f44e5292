//! The blocking threads of a run: how many may run, and where the others rest.

use crate::bell::Bell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts blocking threads. A thread that is not needed rests on the bell and is not counted.
#[derive(Debug)]
pub(crate) struct BlockingThreads {
    limit: AtomicU32,
    active: AtomicU32,
    bell: Bell,
}

impl Default for BlockingThreads {
    fn default() -> Self {
        Self { limit: AtomicU32::new(u32::MAX), active: AtomicU32::new(0), bell: Bell::default() }
    }
}

impl BlockingThreads {
    /// Counts a thread that starts.
    pub(crate) fn starts(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets how many threads may run.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Wakes as many resting threads as may run.
    pub(crate) fn call(&self) {
        let (limit, active) =
            (self.limit.load(Ordering::Relaxed), self.active.load(Ordering::Relaxed));
        let room = limit.saturating_sub(active) as usize;
        if room >= self.bell.resting() {
            return self.bell.ring_all();
        }
        (0..room).for_each(|_| self.bell.ring());
    }

    /// Wakes all resting threads, after the end of the run or of the list.
    pub(crate) fn call_all(&self) {
        self.bell.ring_all();
    }

    /// Reports whether more threads run than may.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.active.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed)
    }

    /// Rests until the thread is needed and may run, or the run is over.
    pub(crate) fn rest(&self, needed: impl Fn() -> bool, over: impl Fn() -> bool) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        self.bell.rest(|_| {
            if over() {
                self.starts();
                return Some(());
            }
            (needed() && self.joins()).then_some(())
        });
    }

    fn joins(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |active: u32| (active < limit).then(|| active + 1);
        self.active.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Returns how often a thread has slept here.
    pub(crate) fn sleeps(&self) -> u64 {
        self.bell.sleeps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn only_as_many_threads_return_as_may_run() {
        let helpers = BlockingThreads::default();
        let (needed, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let back = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                helpers.starts();
                scope.spawn(|| {
                    helpers.rest(|| needed.load(Ordering::SeqCst), || over.load(Ordering::SeqCst));
                    back.fetch_add(1, Ordering::SeqCst);
                });
            }
            while helpers.bell.resting() < 4 {
                std::thread::yield_now();
            }
            helpers.set_limit(2);
            needed.store(true, Ordering::SeqCst);
            helpers.call();
            while back.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            assert_eq!((helpers.active.load(Ordering::SeqCst), helpers.is_over()), (2, false));
            helpers.set_limit(1);
            assert!(helpers.is_over());
            assert_eq!(helpers.bell.resting(), 2);
            over.store(true, Ordering::SeqCst);
            helpers.call_all();
        });
        assert_eq!(back.into_inner(), 4);
    }
}
