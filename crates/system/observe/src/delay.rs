//! The run-queue delay of a thread: for how long it was ready to run without running.
//!
//! Opening the kernel's statistics and reading them for the first time takes as long as reading two
//! small files. A thread that may end before that has paid leaves the first reading to another one
//! ([`LaterDelay`]), which makes it once the run has lasted for a while. Until then the delay is
//! unknown, and it stays unknown in a run that ends earlier.
//!
//! Protocol of [`LaterDelay`]: the other thread stores one reading at most, and the measured thread
//! only loads it. The reading is the whole message, so relaxed accesses suffice.

use ioloom_sys::proc::{ThreadSched, thread_id, thread_run_delay_ns};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first reading of the run-queue delay of a thread, which another thread makes.
#[derive(Debug)]
pub struct LaterDelay {
    thread: u32,
    /// The reading in nanoseconds, or [`UNREAD`].
    from_ns: AtomicU64,
}

const UNREAD: u64 = u64::MAX;

impl LaterDelay {
    /// For the calling thread.
    pub fn of_this_thread() -> Arc<Self> {
        Arc::new(Self { thread: thread_id(), from_ns: AtomicU64::new(UNREAD) })
    }

    /// Reads the delay of the measured thread, from another one and while that one lives.
    pub fn read(&self) {
        if let Some(ns) = thread_run_delay_ns(self.thread) {
            self.from_ns.store(ns, Ordering::Relaxed);
        }
    }

    fn reading_ns(&self) -> Option<u64> {
        let ns = self.from_ns.load(Ordering::Relaxed);
        (ns != UNREAD).then_some(ns)
    }
}

/// The run-queue delay of the calling thread.
pub(crate) enum Delay {
    Unknown,
    Later(Arc<LaterDelay>),
    Known { stat: ThreadSched, start_ns: u64, mark_ns: u64 },
}

impl Delay {
    /// Begins at once. The delay is unknown if the kernel does not count it.
    pub(crate) fn open() -> Self {
        let Ok(mut stat) = ThreadSched::open() else { return Self::Unknown };
        match stat.read() {
            Ok(now) => Self::from(stat, now.run_delay_ns),
            Err(_) => Self::Unknown,
        }
    }

    /// Begins with the reading of another thread.
    pub(crate) fn later(delay: Arc<LaterDelay>) -> Self {
        Self::Later(delay)
    }

    fn from(stat: ThreadSched, ns: u64) -> Self {
        Self::Known { stat, start_ns: ns, mark_ns: ns }
    }

    /// Opens the statistics if another thread has made the first reading.
    fn begin(&mut self) {
        let Self::Later(later) = self else { return };
        let Some(from_ns) = later.reading_ns() else { return };
        *self = ThreadSched::open().map_or(Self::Unknown, |stat| Self::from(stat, from_ns));
    }

    /// Returns the delay since the last call.
    pub(crate) fn lap_ns(&mut self) -> Option<u64> {
        let now_ns = self.now_ns()?;
        let Self::Known { mark_ns, .. } = self else { return None };
        Some(now_ns.saturating_sub(std::mem::replace(mark_ns, now_ns)))
    }

    /// Returns the delay of the thread so far, of which only differences have a meaning.
    pub(crate) fn now_ns(&mut self) -> Option<u64> {
        self.begin();
        let Self::Known { stat, .. } = self else { return None };
        Some(stat.read().ok()?.run_delay_ns)
    }

    /// Returns the delay since `from_ns`, or since the first reading.
    pub(crate) fn since_ns(&mut self, from_ns: Option<u64>) -> Option<u64> {
        let now_ns = self.now_ns()?;
        let Self::Known { start_ns, .. } = self else { return None };
        Some(now_ns.saturating_sub(from_ns.unwrap_or(*start_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_known(delay: &mut Delay) -> bool {
        delay.since_ns(None).is_some()
    }

    #[test]
    fn delay_is_unknown_until_another_thread_has_read_it() {
        let counted = is_known(&mut Delay::open());
        let later = LaterDelay::of_this_thread();
        let mut delay = Delay::later(later.clone());
        assert!(!is_known(&mut delay) && delay.lap_ns().is_none() && delay.now_ns().is_none());
        std::thread::scope(|scope| scope.spawn(|| later.read()).join()).unwrap();
        assert_eq!(is_known(&mut delay), counted);
        assert_eq!(delay.lap_ns().is_some(), counted);
    }

    #[test]
    fn delay_is_that_of_the_measured_thread_since_the_reading() {
        let later = LaterDelay::of_this_thread();
        later.from_ns.store(0, Ordering::Relaxed);
        let Some(all) = Delay::open().now_ns() else { return };
        let since = Delay::later(later).since_ns(None).unwrap();
        assert!(since >= all, "{since} of {all}");
    }
}
