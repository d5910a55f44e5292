//! The memory budget: bytes that may be in flight, ready or kept at once.
//!
//! Protocol: `used` counts reserved bytes. A reservation is a compare-and-swap while it fits and
//! nobody waits. Who does not fit takes a place in a queue under the mutex; only the head of the
//! queue may reserve, so that a large file is not passed for ever by small ones. Giving back wakes
//! the sleepers. Kept bytes are counted apart, and so are idle ones, which belong to threads that
//! wait themselves: when everything that is used is kept or idle, nobody but the user can make
//! room, and waiting ends as [`Reserve::Held`]. Not while there is hope: a user who works beside the
//! run, on values that it takes from a channel, may yet drop what it keeps.

use crate::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, fence, lock};

/// How a reservation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// The bytes are reserved.
    Reserved,
    /// More than the whole budget was asked for.
    TooLarge,
    /// All of the budget that is in use is kept by the user: waiting would never end.
    Held,
    /// [`Budget::close`] was called.
    Closed,
}

/// A bound on bytes.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    kept: AtomicU64,
    idle: AtomicU64,
    hopes: AtomicU64,
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
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            hopes: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            queue: Mutex::new(Queue::default()),
            changed: Condvar::new(),
        }
    }

    /// The limit, bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes reserved now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    /// Bytes kept by the user now.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::SeqCst)
    }

    /// The most that was reserved at once, bytes.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }

    /// Reserves if it fits now and nobody waits.
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

    /// Reserves, waiting for room in the order of arrival.
    #[inline]
    pub fn reserve(&self, bytes: u64) -> Reserve {
        self.reserve_holding(bytes, 0)
    }

    /// Reserves like [`Budget::reserve`] for a thread that holds `holding` reserved bytes, which it
    /// will not give back before it has got these.
    #[inline]
    pub fn reserve_holding(&self, bytes: u64, holding: u64) -> Reserve {
        if self.try_reserve(bytes) { Reserve::Reserved } else { self.wait(bytes, holding) }
    }

    /// Whether the user keeps bytes, nobody beside the run may yet drop them, and all others that are
    /// used belong to threads that wait.
    pub fn is_held(&self) -> bool {
        let kept = self.kept.load(Ordering::SeqCst);
        kept > 0
            && self.hopes.load(Ordering::SeqCst) == 0
            && self.used() <= kept + self.idle.load(Ordering::SeqCst)
    }

    /// A thread that holds `holding` bytes begins to wait for memory in a way of its own.
    pub fn begin_idle(&self, holding: u64) {
        self.idle.fetch_add(holding, Ordering::SeqCst);
        self.wake();
    }

    /// It goes on.
    pub fn end_idle(&self, holding: u64) {
        self.idle.fetch_sub(holding, Ordering::SeqCst);
    }

    /// One more reason to wait for kept bytes: a value on its way to a consumer, or a consumer at
    /// work.
    pub fn begin_hope(&self) {
        self.hopes.fetch_add(1, Ordering::SeqCst);
    }

    /// One reason less.
    pub fn end_hope(&self) {
        self.hopes.fetch_sub(1, Ordering::SeqCst);
        self.wake();
    }

    #[cold]
    fn wait(&self, bytes: u64, holding: u64) -> Reserve {
        if bytes > self.limit {
            return Reserve::TooLarge;
        }
        let mut queue = lock(&self.queue);
        let ticket = queue.next_ticket;
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
        // A closed budget serves nobody, so the order no longer matters then.
        queue.serving = queue.serving.max(ticket + 1);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.idle.fetch_sub(holding, Ordering::SeqCst);
        self.changed.notify_all();
        outcome
    }

    /// Gives reserved bytes back.
    #[inline]
    pub fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        self.wake();
    }

    /// Counts bytes as kept by the user. They stay used until [`Budget::give_kept`].
    pub fn keep(&self, bytes: u64) {
        self.kept.fetch_add(bytes, Ordering::SeqCst);
        self.wake();
    }

    /// Charges bytes that the user keeps beyond what was reserved; may pass the limit by what the
    /// holders of permits keep at once.
    pub fn charge_kept(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.peak.fetch_max(used, Ordering::SeqCst);
        self.keep(bytes);
    }

    /// Gives kept bytes back.
    pub fn give_kept(&self, bytes: u64) {
        self.kept.fetch_sub(bytes, Ordering::SeqCst);
        self.give(bytes);
    }

    /// Ends all waiting, now and later, as [`Reserve::Closed`].
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
