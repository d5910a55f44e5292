//! P permits to compute.
//!
//! Protocol: `free` holds the permits that nobody has. Taking one is a compare-and-swap while it
//! is above zero. A thread that finds zero registers in `waiting` under the mutex and looks again
//! before it sleeps; a thread that gives back adds to `free` first and then looks at `waiting`:
//!
//! ```text
//! taker: lock, waiting += 1, free == 0 → sleep     giver: free += 1, waiting == 0 → done
//!                                                          waiting  > 0 → lock, wake one
//! ```
//!
//! Both look after they wrote, with a full fence between, so at least one of them sees the other: no
//! wake is lost.
//!
//! A permit is often held for a microsecond, and its holder may have been pushed out. So a taker
//! first lets others run a few times ([`YIELDS`]) before it sleeps: sleeping and waking cost more
//! than the wait, and a crowd of sleepers that are woken one by one keeps itself alive. For the
//! same reason a giver wakes nobody while a woken thread has not yet run; the woken one passes the
//! wake on when it leaves a permit behind.

use crate::{AtomicU64, Condvar, Mutex, Ordering, fence, lock};

/// How often a taker lets others run before it sleeps. None under the interleaving checker, which
/// would explore every one of them.
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
    free: AtomicU64,
    waiting: AtomicU64,
    /// How often a thread has gone to sleep for a permit. Written under the lock.
    sleeps: AtomicU64,
    /// Whether a thread was woken and has not run since.
    wake_under_way: Mutex<bool>,
    woken: Condvar,
}

/// A permit; given back on drop.
#[derive(Debug)]
pub struct Permit<'a> {
    of: &'a Permits,
}

impl Permits {
    /// A pool of `count` permits, at least one.
    pub fn new(count: u32) -> Self {
        Self {
            free: AtomicU64::new(u64::from(count.max(1))),
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

    /// Takes a permit, waiting for one if none is free.
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
    fn give(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let mut wake_under_way = lock(&self.wake_under_way);
            // Whoever waited may have taken the permit meanwhile: a wake that nobody hears would
            // stay under way for ever. Under the lock the number is that of the sleepers.
            if self.waiting.load(Ordering::SeqCst) > 0 && !*wake_under_way {
                *wake_under_way = true;
                self.woken.notify_one();
            }
        }
    }
}

impl Permits {
    /// How often threads have slept for a permit so far: for whoever counts waits of another kind.
    pub fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// A permit that was [forgotten](Permit::forget) elsewhere, to be dropped here.
    pub fn adopt(&self) -> Permit<'_> {
        Permit { of: self }
    }
}

impl Permit<'_> {
    /// Whether a thread sleeps for a permit: who keeps one from one piece of work to the next gives it
    /// back then. An early look, without order: who comes to sleep meanwhile waits for one piece more.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.of.waiting.load(Ordering::Relaxed) > 0
    }

    /// Lets the permit travel with a piece of work instead of a scope; [`Permits::adopt`] brings
    /// it back.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.of.give();
    }
}
