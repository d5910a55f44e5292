//! The memory budget: bytes that may be in flight, loaded or retained at once.
//!
//! Protocol: `used` counts reserved bytes. A reservation is a compare-and-swap while it fits and no
//! thread waits. A thread whose bytes do not fit queues under the mutex. Only the head of the queue
//! may reserve, so that small files cannot starve a large one. Releasing bytes wakes the sleepers.
//! Bytes retained by the user are counted separately, and so are idle ones, which belong to threads
//! that wait themselves. When all used bytes are retained or idle, only the user can make room, and
//! a wait ends as [`Reserve::Held`]. It does not end while there are releasers: a consumer that
//! works alongside the run, on values that it takes from a channel, may still drop what it retains.

use crate::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, fence, lock};

/// The outcome of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// The bytes are reserved.
    Reserved,
    /// The bytes exceed the whole budget.
    TooLarge,
    /// The user retains all of the budget that is in use, so the wait would never end.
    Held,
    /// [`Budget::close`] was called.
    Closed,
}

/// A limit on bytes.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    retained: AtomicU64,
    idle: AtomicU64,
    releasers: AtomicU64,
    peak: AtomicU64,
    waiting: AtomicU64,
    closed: AtomicBool,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    next_ticket: u64,
    serving: u64,
}

impl Budget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            retained: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            releasers: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            queue: Mutex::new(Queue::default()),
            changed: Condvar::new(),
        }
    }

    /// Returns the limit, bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes reserved now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    /// Returns the bytes retained by the user now.
    pub fn retained(&self) -> u64 {
        self.retained.load(Ordering::SeqCst)
    }

    /// Returns the peak of reserved bytes.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }

    /// Reserves bytes if they fit now and no thread waits.
    #[inline]
    pub fn try_reserve(&self, bytes: u64) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 && self.fits(bytes)
    }

    fn fits(&self, bytes: u64) -> bool {
        let mut used = self.used.load(Ordering::SeqCst);
        loop {
            let Some(sum) = used.checked_add(bytes).filter(|sum| *sum <= self.limit) else {
                return false;
            };
            match self.used.compare_exchange_weak(used, sum, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    self.peak.fetch_max(sum, Ordering::SeqCst);
                    return true;
                }
                Err(now) => used = now,
            }
        }
    }

    /// Reserves bytes, after waiting for room in the order of arrival if necessary.
    #[inline]
    pub fn reserve(&self, bytes: u64) -> Reserve {
        self.reserve_holding(bytes, 0)
    }

    /// Reserves like [`Budget::reserve`] for a thread that holds `holding` reserved bytes, which it
    /// releases only after it got these.
    #[inline]
    pub fn reserve_holding(&self, bytes: u64, holding: u64) -> Reserve {
        if self.try_reserve(bytes) { Reserve::Reserved } else { self.wait(bytes, holding) }
    }

    /// Reports whether only the user can make room: the user retains bytes, there are no releasers,
    /// and all other used bytes belong to threads that wait.
    pub fn is_held(&self) -> bool {
        let retained = self.retained.load(Ordering::SeqCst);
        retained > 0
            && self.releasers.load(Ordering::SeqCst) == 0
            && self.used() <= retained + self.idle.load(Ordering::SeqCst)
    }

    /// Marks the `holding` bytes of a thread as idle while it waits for memory in its own way.
    pub fn begin_idle(&self, holding: u64) {
        self.idle.fetch_add(holding, Ordering::SeqCst);
        self.wake();
    }

    /// Ends what [`Budget::begin_idle`] began.
    pub fn end_idle(&self, holding: u64) {
        let before = self.idle.fetch_sub(holding, Ordering::SeqCst);
        debug_assert!(
            before >= holding,
            "idle bytes end once, or a wait could end as held too soon"
        );
    }

    /// Adds a releaser, which may still drop retained bytes: a value on its way to a consumer, or a
    /// consumer at work.
    pub fn add_releaser(&self) {
        self.releasers.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes a releaser.
    pub fn remove_releaser(&self) {
        let before = self.releasers.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a releaser ends once, or waits would never end as held");
        self.wake();
    }

    #[cold]
    fn wait(&self, bytes: u64, holding: u64) -> Reserve {
        if bytes > self.limit {
            return Reserve::TooLarge;
        }
        let mut queue = lock(&self.queue);
        let ticket = queue.next_ticket;
        assert!(queue.serving <= ticket, "tickets are served in order, so that none waits forever");
        queue.next_ticket += 1;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if holding > 0 {
            self.idle.fetch_add(holding, Ordering::SeqCst);
            self.changed.notify_all();
        }
        fence(Ordering::SeqCst);
        let outcome = loop {
            if self.closed.load(Ordering::SeqCst) {
                break Reserve::Closed;
            }
            if queue.serving == ticket {
                if self.fits(bytes) {
                    break Reserve::Reserved;
                }
                if self.is_held() {
                    break Reserve::Held;
                }
            }
            queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        };
        // A closed budget reserves nothing, so the order no longer matters then.
        queue.serving = queue.serving.max(ticket + 1);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.idle.fetch_sub(holding, Ordering::SeqCst);
        self.changed.notify_all();
        outcome
    }

    /// Releases reserved bytes.
    #[inline]
    pub fn release(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(
            before >= bytes,
            "only reserved bytes are released, or the limit would not hold"
        );
        self.wake();
    }

    /// Counts reserved bytes as retained by the user. They stay used until
    /// [`Budget::release_retained`].
    pub fn retain(&self, bytes: u64) {
        self.retained.fetch_add(bytes, Ordering::SeqCst);
        self.wake();
    }

    /// Charges bytes that the user retains beyond what was reserved. May exceed the limit by what
    /// the holders of permits retain at once.
    pub fn charge_retained(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.peak.fetch_max(used, Ordering::SeqCst);
        self.retain(bytes);
    }

    /// Releases retained bytes.
    pub fn release_retained(&self, bytes: u64) {
        let before = self.retained.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(
            before >= bytes,
            "only retained bytes are released, or waits could end too soon"
        );
        self.release(bytes);
    }

    /// Ends all waits, now and later, as [`Reserve::Closed`].
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let _guard = lock(&self.queue);
        self.changed.notify_all();
    }

    #[inline]
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _guard = lock(&self.queue);
            self.changed.notify_all();
        }
    }
}
