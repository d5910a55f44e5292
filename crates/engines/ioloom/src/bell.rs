//! Where threads wait for something to do.
//!
//! Protocol: a thread that rests is counted under the lock, then checks what it waits for, then
//! sleeps. A thread that changes what others wait for first makes the change, under the lock that
//! guards it, then reads the count. Either the resting thread sees the change, or the other thread
//! sees the count and notifies under the lock. A change without a lock of its own is sequentially
//! consistent, as the count is, or it is a flag that is seen after at most [`NAP`].

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Longest sleep, which bounds how late a resting thread notices a flag.
const NAP: Duration = Duration::from_millis(50);

/// A place where threads rest until another thread rings.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    resting: Mutex<usize>,
    /// Copy of the count for threads that ring. Written under the lock.
    resting_now: AtomicUsize,
    rung: Condvar,
    /// How often a thread slept.
    sleeps: AtomicU64,
    /// How often all resting threads were woken.
    #[cfg(test)]
    pub(crate) rung_for_all: AtomicU64,
}

impl Bell {
    /// Wakes one resting thread, if there is any.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.resting_now.load(Ordering::SeqCst) > 0 {
            let _resting = self.lock();
            self.rung.notify_one();
        }
    }

    /// Wakes all resting threads.
    pub(crate) fn ring_all(&self) {
        if self.resting_now.load(Ordering::SeqCst) > 0 {
            let _resting = self.lock();
            #[cfg(test)]
            self.rung_for_all.fetch_add(1, Ordering::SeqCst);
            self.rung.notify_all();
        }
    }

    /// Returns how often a thread has slept here.
    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// Returns how many threads rest.
    pub(crate) fn resting(&self) -> usize {
        self.resting_now.load(Ordering::SeqCst)
    }

    /// Rests until `check` returns a value. It gets the number of resting threads, including this
    /// one, and runs under the lock.
    pub(crate) fn rest<T>(&self, mut check: impl FnMut(usize) -> Option<T>) -> T {
        let mut resting = self.lock();
        *resting += 1;
        self.resting_now.store(*resting, Ordering::SeqCst);
        loop {
            if let Some(value) = check(*resting) {
                *resting -= 1;
                self.resting_now.store(*resting, Ordering::SeqCst);
                return value;
            }
            self.sleeps.fetch_add(1, Ordering::Relaxed);
            let slept = self.rung.wait_timeout(resting, NAP);
            resting = slept.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Sleeps until the next ring or [`NAP`], unless `changed` holds already.
    pub(crate) fn nap(&self, changed: impl Fn() -> bool) -> bool {
        let mut naps = 0;
        self.rest(|_| {
            naps += 1;
            (naps > 1 || changed()).then(&changed)
        })
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.resting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
