//! The memory budget: a limit on bytes in flight, loaded or retained.
//!
//! Protocol: `used` counts reserved bytes. While no thread waits, a reservation that fits is a
//! compare-and-swap. A thread whose bytes do not fit queues under the mutex. Only the head of the
//! queue can reserve, so small files cannot starve a large one. Releasing bytes wakes the sleepers.
//! Bytes retained by the user are counted separately, as are idle bytes, which belong to threads
//! that are waiting themselves. When all used bytes are retained or idle, only the user can make
//! room, and a wait returns [`Reserve::Held`]. It does not return while there are releasers: a
//! consumer that runs concurrently, on values received from a channel, may still drop what it
//! retains. Other threads of the user are unknown here, so a wait first allows them a grace period.
//!
//! The system may refuse memory for bytes that fit. A thread then waits for bytes of others
//! ([`Budget::await_release`]), unless all of them wait, too. When it leaves, its bytes
//! count as in use, so the others wait for it.
//!
//! Functions that run reserve in an order of their own ([`Budget::reserve_working`]). Only the first
//! of them counts in `waiting`, which keeps new reads from taking the bytes that it needs: the others
//! cannot use released bytes yet. A reservation above the limit does not count either, because it
//! waits for the end of other reservations and not for bytes.

use crate::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, fence, lock};
use std::time::{Duration, Instant};

/// Result of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// The bytes are reserved.
    Reserved,
    /// The bytes exceed the whole budget.
    TooLarge,
    /// The user retains all used bytes, so the wait would never end.
    Held,
    /// [`Budget::close`] was called.
    Closed,
}

/// Limit on all budgets, and on the bytes that functions reserve above theirs, because users may specify any
/// numbers. The rest of the range is for retained bytes, which exist.
const RESERVED_MAX: u64 = u64::MAX / 2;

/// A limit on bytes.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    grace: Duration,
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
    /// Reservations of running functions.
    working: u64,
    /// Order of arrival of the functions that reserve.
    next_function: u64,
    serving_function: u64,
}

impl Budget {
    /// Creates a budget of `limit` bytes, without a grace period.
    pub fn new(limit: u64) -> Self {
        Self::with_grace(limit, Duration::ZERO)
    }

    /// Creates a budget of `limit` bytes. A wait returns [`Reserve::Held`] only if the user has
    /// released nothing for the time `grace`.
    pub fn with_grace(limit: u64, grace: Duration) -> Self {
        Self {
            limit: limit.min(RESERVED_MAX),
            grace,
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

    /// Returns the limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of bytes currently reserved.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    /// Reports whether a thread is waiting for bytes.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Returns the number of bytes currently retained by the user.
    pub fn retained(&self) -> u64 {
        self.retained.load(Ordering::SeqCst)
    }

    /// Returns the peak number of reserved bytes.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }

    /// Reserves bytes if they fit now and no thread is waiting.
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

    /// Reserves bytes, waiting in order of arrival if necessary.
    #[inline]
    pub fn reserve(&self, bytes: u64) -> Reserve {
        self.reserve_holding(bytes, 0)
    }

    /// Like [`Budget::reserve`], for a thread that already holds `holding` reserved bytes and
    /// releases them only after this reservation succeeds.
    #[inline]
    pub fn reserve_holding(&self, bytes: u64, holding: u64) -> Reserve {
        if self.try_reserve(bytes) { Reserve::Reserved } else { self.wait(bytes, holding) }
    }

    /// Reports whether only the user can make room: the user retains bytes, there are no releasers,
    /// and all other used bytes belong to waiting threads.
    pub fn is_held(&self) -> bool {
        let retained = self.retained.load(Ordering::SeqCst);
        retained > 0
            && self.releasers.load(Ordering::SeqCst) == 0
            && self.used() <= retained + self.idle.load(Ordering::SeqCst)
    }

    /// Marks a thread's `holding` bytes as idle while it waits for memory by other means.
    pub fn begin_idle(&self, holding: u64) {
        self.idle.fetch_add(holding, Ordering::SeqCst);
        self.wake();
    }

    /// Reverts [`Budget::begin_idle`].
    pub fn end_idle(&self, holding: u64) {
        let before = self.idle.fetch_sub(holding, Ordering::SeqCst);
        debug_assert!(
            before >= holding,
            "released more idle bytes than were marked idle: waits could return Held too soon"
        );
    }

    /// Adds a releaser, which may still drop retained bytes: a value on its way to a consumer, or
    /// an active consumer.
    pub fn add_releaser(&self) {
        self.releasers.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes a releaser.
    pub fn remove_releaser(&self) {
        let before = self.releasers.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(
            before > 0,
            "more releasers removed than added: waits would never return Held"
        );
        self.wake();
    }

    #[cold]
    fn wait(&self, bytes: u64, holding: u64) -> Reserve {
        if bytes > self.limit {
            return Reserve::TooLarge;
        }
        let mut queue = lock(&self.queue);
        let ticket = queue.next_ticket;
        assert!(queue.serving <= ticket, "a ticket was skipped: its thread would wait forever");
        queue.next_ticket += 1;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if holding > 0 {
            self.idle.fetch_add(holding, Ordering::SeqCst);
            self.changed.notify_all();
        }
        fence(Ordering::SeqCst);
        // What the user retained when the grace period began, and when it ends.
        let mut held = None;
        let outcome = loop {
            if self.closed.load(Ordering::SeqCst) {
                break Reserve::Closed;
            }
            if queue.serving == ticket {
                if self.fits(bytes) {
                    break Reserve::Reserved;
                }
                if self.is_held() {
                    let (retained, now) = (self.retained(), Instant::now());
                    let (before, until) = *held.get_or_insert((retained, now + self.grace));
                    if retained < before {
                        held = None;
                        continue;
                    }
                    held = Some((retained, until));
                    if now >= until {
                        break Reserve::Held;
                    }
                    let waited = self.changed.wait_timeout(queue, until - now);
                    queue = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
                    continue;
                }
                held = None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        };
        // A closed budget reserves nothing, so the order no longer matters.
        queue.serving = queue.serving.max(ticket + 1);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.idle.fetch_sub(holding, Ordering::SeqCst);
        self.changed.notify_all();
        outcome
    }

    /// Waits until bytes come back, for a thread that the system refuses memory, and that holds `holding`
    /// reserved bytes until it goes on. Returns false if it need not wait: all used bytes belong to threads
    /// that wait, or to a user who has released none for the grace period, or the budget is closed.
    #[cold]
    pub fn await_release(&self, holding: u64) -> bool {
        let mut queue = lock(&self.queue);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.idle.fetch_add(holding, Ordering::SeqCst);
        self.changed.notify_all();
        fence(Ordering::SeqCst);
        let (mut most, mut until) = (0, None);
        let comes_back = loop {
            let (used, retained) = (self.used(), self.retained());
            if used < most {
                break true;
            }
            most = used;
            let active = used > retained + self.idle.load(Ordering::SeqCst);
            let released = retained > 0 && self.releasers.load(Ordering::SeqCst) > 0;
            if self.closed.load(Ordering::SeqCst) || (!active && retained == 0) {
                break false;
            }
            if active || released {
                queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            }
            let now = Instant::now();
            let until = *until.get_or_insert(now + self.grace);
            if now >= until {
                break false;
            }
            let waited = self.changed.wait_timeout(queue, until - now);
            queue = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.idle.fetch_sub(holding, Ordering::SeqCst);
        // The bytes of this thread may come back now.
        self.changed.notify_all();
        comes_back
    }

    /// Releases reserved bytes.
    #[inline]
    pub fn release(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(
            before >= bytes,
            "released more bytes than reserved: the limit would not hold"
        );
        self.wake();
    }

    /// Counts reserved bytes as retained by the user. They remain used until
    /// [`Budget::release_retained`].
    pub fn retain(&self, bytes: u64) {
        self.retained.fetch_add(bytes, Ordering::SeqCst);
        self.wake();
    }

    /// Charges additional bytes that the user retains without a reservation. This can exceed the
    /// limit by the amount that all permit holders retain at once.
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
            "released more bytes than retained: waits could return too soon"
        );
        self.release(bytes);
    }

    /// Reserves bytes for a function that runs, and so may hold what others wait for. Functions are
    /// served in order of arrival: the first one waits until the bytes fit or no other function has a
    /// reservation. A function with a reservation of its own (`nested`) does not wait. So one function
    /// always goes on, although `used` may exceed the limit by one reservation. Returns the bytes to
    /// release: fewer than `bytes` only if all reservations together would exceed half of the range of
    /// `u64`.
    pub fn reserve_working(&self, bytes: u64, nested: bool) -> u64 {
        let queue = lock(&self.queue);
        let (mut queue, taken) =
            if nested { (queue, self.take_anyway(bytes)) } else { self.wait_working(queue, bytes) };
        queue.working += 1;
        taken
    }

    fn wait_working<'q>(
        &'q self,
        mut queue: MutexGuard<'q, Queue>,
        bytes: u64,
    ) -> (MutexGuard<'q, Queue>, u64) {
        let ticket = queue.next_function;
        assert!(queue.serving_function <= ticket, "a skipped ticket: its function never goes on");
        queue.next_function += 1;
        let mut counted = false;
        let taken = loop {
            let first = queue.serving_function == ticket;
            if first && !counted && bytes <= self.limit {
                // Makes releases wake this thread.
                self.waiting.fetch_add(1, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                counted = true;
            }
            if first && self.fits(bytes) {
                break bytes;
            }
            if (first && queue.working == 0) || self.closed.load(Ordering::SeqCst) {
                break self.take_anyway(bytes);
            }
            queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        };
        // A closed budget makes no function wait, so the order no longer matters.
        queue.serving_function = queue.serving_function.max(ticket + 1);
        if counted {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        if queue.next_function > queue.serving_function {
            self.changed.notify_all();
        }
        (queue, taken)
    }

    /// Reserves bytes even if they exceed the limit. Returns their number: fewer than `bytes` if the sum
    /// would exceed `RESERVED_MAX`.
    fn take_anyway(&self, bytes: u64) -> u64 {
        let mut used = self.used.load(Ordering::SeqCst);
        loop {
            let sum = used.saturating_add(bytes).min(RESERVED_MAX.max(used));
            match self.used.compare_exchange_weak(used, sum, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    self.peak.fetch_max(sum, Ordering::SeqCst);
                    return sum - used;
                }
                Err(now) => used = now,
            }
        }
    }

    /// Releases what [`Budget::reserve_working`] reserved.
    pub fn release_working(&self, bytes: u64) {
        let mut queue = lock(&self.queue);
        assert!(queue.working > 0, "a reservation ends once, or a function would wait for none");
        queue.working -= 1;
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Makes all current and future waits return [`Reserve::Closed`].
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    /// Waits until `arrived` functions have requested a reservation.
    fn await_functions(budget: &Budget, arrived: u64) {
        let hang = Instant::now() + Duration::from_secs(60);
        while lock(&budget.queue).next_function < arrived {
            if Instant::now() > hang {
                budget.close();
                panic!("a function did not get as far as its reservation: {budget:?}");
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_function_that_would_fit_does_not_overtake_an_older_one() {
        for large in [8, 30] {
            let budget = &Budget::new(10);
            budget.reserve_working(6, false);
            let (send, order) = channel();
            std::thread::scope(|scope| {
                for (arrived, bytes) in [(2, large), (3, 3)] {
                    let send = send.clone();
                    scope.spawn(move || {
                        budget.reserve_working(bytes, false);
                        send.send(bytes).unwrap();
                        budget.release_working(bytes);
                    });
                    await_functions(budget, arrived);
                }
                // The function that all wait for may nest.
                budget.reserve_working(100, true);
                budget.release_working(100);
                // The first one neither fits nor is alone.
                let early = order.try_recv().ok();
                budget.release_working(6);
                let guard = Duration::from_secs(60);
                let served = [order.recv_timeout(guard), order.recv_timeout(guard)];
                assert_eq!((early, served), (None, [Ok(large), Ok(3)]));
            });
            assert_eq!((budget.used(), budget.is_waited_for()), (0, false));
        }
    }

    #[test]
    fn a_user_has_a_grace_period_to_release_what_the_system_refuses() {
        for (grace, released) in [(Duration::from_secs(60), true), (Duration::ZERO, false)] {
            let budget = &Budget::with_grace(10, grace);
            budget.charge_retained(4);
            assert_eq!(budget.reserve(2), Reserve::Reserved);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| budget.await_release(2));
                if released {
                    while !budget.is_waited_for() && !waits.is_finished() {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(!waits.is_finished());
                    budget.release_retained(4);
                }
                let comes_back = waits.join().unwrap();
                // A thread that is held up sees only that nothing is left to wait for.
                assert!(comes_back == released || budget.retained() == 0);
            });
        }
    }

    #[test]
    fn reservations_of_any_size_do_not_overflow() {
        for limit in [10, u64::MAX] {
            let budget = Budget::new(limit);
            let first = budget.reserve_working(u64::MAX, false);
            assert!(first >= budget.limit() && !budget.try_reserve(1));
            let nested = budget.reserve_working(u64::MAX, true);
            assert!(!budget.try_reserve(1));
            budget.charge_retained(5);
            assert_eq!(budget.used(), first + nested + 5);
            budget.release_working(nested);
            budget.release_working(first);
            budget.release_retained(5);
            assert_eq!(budget.used(), 0);
            assert!(budget.try_reserve(10));
        }
    }

    #[test]
    fn reads_leave_bytes_only_to_a_function_that_can_use_them() {
        for (bytes, reads) in [(8, false), (30, true)] {
            let budget = &Budget::new(10);
            budget.reserve_working(6, false);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    budget.reserve_working(bytes, false);
                    budget.release_working(bytes);
                });
                await_functions(budget, 2);
                // Under the lock the function is counted, if it will be.
                let queue = lock(&budget.queue);
                let reserved = budget.try_reserve(1);
                drop(queue);
                let must = budget.reserve(1);
                budget.release(1 + u64::from(reserved));
                budget.release_working(6);
                assert_eq!((reserved, must), (reads, Reserve::Reserved), "{bytes} of 10 bytes");
            });
            assert_eq!(budget.used(), 0);
        }
    }
}
