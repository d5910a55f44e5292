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

use crate::{AtomicU64, Condvar, Mutex, Ordering, fence, lock};

/// A pool of permits.
#[derive(Debug)]
pub struct Permits {
    free: AtomicU64,
    waiting: AtomicU64,
    sleepers: Mutex<()>,
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
            sleepers: Mutex::new(()),
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
        let mut guard = lock(&self.sleepers);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        loop {
            if let Some(permit) = self.try_take() {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                return permit;
            }
            guard = self.woken.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    #[inline]
    fn give(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _guard = lock(&self.sleepers);
            self.woken.notify_one();
        }
    }
}

impl Permits {
    /// A permit that was [forgotten](Permit::forget) elsewhere, to be dropped here.
    pub fn adopt(&self) -> Permit<'_> {
        Permit { of: self }
    }
}

impl Permit<'_> {
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
