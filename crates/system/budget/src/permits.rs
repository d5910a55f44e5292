//! Compute permits.
//!
//! Protocol: `free` counts the available permits. Taking one is a compare-and-swap while it is
//! above zero. A thread that finds zero registers in `waiting` under the mutex and checks again
//! before it sleeps. A thread that returns a permit first increments `free` and then checks
//! `waiting`:
//!
//! ```text
//! take: lock, waiting += 1, free == 0 → sleep     release: free += 1, waiting == 0 → done
//!                                                           waiting  > 0 → lock, wake one
//! ```
//!
//! Both check after writing, with a full fence in between, so at least one of them sees the other
//! and no wake-up is lost.
//!
//! A permit is often held for only a microsecond, and its holder may have been preempted. So a
//! thread first yields a few times ([`YIELDS`]) before it sleeps: sleeping and waking cost more
//! than the wait, and a convoy of sleepers woken one by one perpetuates itself. For the same
//! reason, releasing a permit wakes no thread while a woken one has not yet run; the woken thread
//! passes the wake-up on if it leaves a permit available.

use crate::{AtomicU64, Condvar, Mutex, Ordering, fence, lock};

/// Number of yields before a thread sleeps. Zero under loom, which would explore every yield.
#[cfg(not(loom))]
const YIELDS: u32 = 4;
#[cfg(loom)]
const YIELDS: u32 = 0;

#[cfg(loom)]
use loom::thread::yield_now;
#[cfg(not(loom))]
use std::thread::yield_now;

/// A pool of permits.
#[derive(Debug)]
pub struct Permits {
    count: u64,
    free: AtomicU64,
    waiting: AtomicU64,
    /// Number of sleeps so far. Written under the lock.
    sleeps: AtomicU64,
    /// Whether a thread was woken and has not run since.
    wake_under_way: Mutex<bool>,
    woken: Condvar,
}

/// A permit, returned on drop.
#[derive(Debug)]
pub struct Permit<'a> {
    of: &'a Permits,
}

impl Permits {
    /// Creates `count` permits, at least one.
    pub fn new(count: u32) -> Self {
        let count = u64::from(count.max(1));
        Self {
            count,
            free: AtomicU64::new(count),
            waiting: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            wake_under_way: Mutex::new(false),
            woken: Condvar::new(),
        }
    }

    /// Takes a permit if one is free.
    #[inline]
    pub fn try_take(&self) -> Option<Permit<'_>> {
        let mut free = self.free.load(Ordering::SeqCst);
        while free > 0 {
            match self.free.compare_exchange_weak(
                free,
                free - 1,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return Some(Permit { of: self }),
                Err(now) => free = now,
            }
        }
        None
    }

    /// Takes a permit, waiting if none is free.
    #[inline]
    pub fn take(&self) -> Permit<'_> {
        match self.try_take() {
            Some(permit) => permit,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> Permit<'_> {
        for _ in 0..YIELDS {
            yield_now();
            if let Some(permit) = self.try_take() {
                return permit;
            }
        }
        let mut wake_under_way = lock(&self.wake_under_way);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        loop {
            if let Some(permit) = self.try_take() {
                let others = self.waiting.fetch_sub(1, Ordering::SeqCst) > 1;
                if others && self.free.load(Ordering::SeqCst) > 0 && !*wake_under_way {
                    *wake_under_way = true;
                    self.woken.notify_one();
                }
                return permit;
            }
            self.sleeps.fetch_add(1, Ordering::Relaxed);
            wake_under_way =
                self.woken.wait(wake_under_way).unwrap_or_else(|poisoned| poisoned.into_inner());
            *wake_under_way = false;
        }
    }

    #[inline]
    fn release(&self) {
        let before = self.free.fetch_add(1, Ordering::SeqCst);
        debug_assert!(
            before < self.count,
            "a permit was returned twice: too many threads would compute"
        );
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let mut wake_under_way = lock(&self.wake_under_way);
            // The waiting thread may have taken the permit already. A wake-up without a sleeper
            // would stay pending forever. Under the lock, `waiting` is the number of sleepers.
            if self.waiting.load(Ordering::SeqCst) > 0 && !*wake_under_way {
                *wake_under_way = true;
                self.woken.notify_one();
            }
        }
    }
}

impl Permits {
    /// Returns how often threads have slept while waiting for a permit.
    pub fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// Returns how many permits are held.
    pub fn held(&self) -> u64 {
        self.count - self.free.load(Ordering::Relaxed).min(self.count)
    }

    /// Restores a [forgotten](Permit::forget) permit, which is then returned on drop.
    pub fn adopt(&self) -> Permit<'_> {
        Permit { of: self }
    }
}

impl Permit<'_> {
    /// Reports whether a thread is sleeping on a permit, so that a thread that keeps one between
    /// pieces of work can return it. The load is relaxed: a thread that falls asleep at this moment
    /// may wait for one more piece of work.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.of.waiting.load(Ordering::Relaxed) > 0
    }

    /// Ties the permit to a piece of work instead of a scope; [`Permits::adopt`] restores it.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.of.release();
    }
}
