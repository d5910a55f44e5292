//! The blocking threads of a run: how many may run, where the others rest, and how long files take.

use crate::bell::Bell;
use ioloom_control::Crowding;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Counts blocking threads. A thread that is not needed rests on the bell and is not counted.
#[derive(Debug)]
pub(crate) struct BlockingThreads {
    limit: AtomicU32,
    active: AtomicU32,
    bell: Bell,
    times: Times,
}

/// Times from before the open to after the first read.
#[derive(Debug)]
struct Times {
    shortest_ns: AtomicU64,
    /// Files count in the sums below if they began after this moment.
    from_ns: AtomicU64,
    files: AtomicU64,
    total_ns: AtomicU64,
}

impl Default for BlockingThreads {
    fn default() -> Self {
        let times = Times {
            shortest_ns: AtomicU64::new(u64::MAX),
            from_ns: AtomicU64::new(u64::MAX),
            files: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
        };
        Self {
            limit: AtomicU32::new(u32::MAX),
            active: AtomicU32::new(0),
            bell: Bell::default(),
            times,
        }
    }
}

impl BlockingThreads {
    /// Counts a thread that starts.
    pub(crate) fn starts(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back the count of a thread that could not be started.
    pub(crate) fn leaves(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns how many threads run, without those that rest.
    pub(crate) fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// Sets how many threads may run.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Records that a file was opened and its first piece read.
    pub(crate) fn took(&self, began_ns: u64, ended_ns: u64) {
        let (times, ns) = (&self.times, ended_ns.saturating_sub(began_ns));
        times.shortest_ns.fetch_min(ns, Ordering::Relaxed);
        if began_ns >= times.from_ns.load(Ordering::Relaxed) {
            times.total_ns.fetch_add(ns, Ordering::Relaxed);
            times.files.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Forgets the sums, and counts files that begin after `now_ns`. A file that ends meanwhile may
    /// count half; the mean of many changes little.
    pub(crate) fn count_from(&self, now_ns: u64) {
        self.times.from_ns.store(now_ns, Ordering::Relaxed);
        self.times.files.store(0, Ordering::Relaxed);
        self.times.total_ns.store(0, Ordering::Relaxed);
    }

    /// Returns what the files since [`BlockingThreads::count_from`] show.
    pub(crate) fn crowding(&self) -> Crowding {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let times = &self.times;
        Crowding::of(load(&times.files), load(&times.total_ns), load(&times.shortest_ns))
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
