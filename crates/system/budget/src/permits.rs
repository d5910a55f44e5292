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
//!
//! Barging is fast but unfair: a thread that releases a permit and takes the next one at once
//! almost always wins against a thread that first has to wake up. A thread that was woken in vain
//! and has waited for [`STARVED`] therefore sets `starved`, and the next release hands its permit to
//! the waiting threads (`handed`) instead of to the next arrival. Each such permit sits idle while
//! its taker wakes up, which is why barging stays the rule. Under the mutex, `handed` never exceeds
//! `waiting`, and a waiting thread looks at `handed` first, so a permit that was handed over is taken.

use crate::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, fence, lock};
use std::time::{Duration, Instant};

/// Time after which a thread that was woken in vain requests that a permit be handed over. Under loom,
/// which has no clock, the first vain wake-up suffices.
#[cfg(not(loom))]
const STARVED: Duration = Duration::from_millis(5);
#[cfg(loom)]
const STARVED: Duration = Duration::ZERO;

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
    /// Whether a waiting thread requests that the next permit be handed over.
    starved: AtomicBool,
    sleepers: Mutex<Sleepers>,
    woken: Condvar,
}

/// What waiting threads and threads that release a permit agree on.
#[derive(Debug, Default)]
struct Sleepers {
    /// Whether a thread was woken and has not run since.
    wake_under_way: bool,
    /// Number of permits handed over and not taken yet. They count as held.
    handed: u64,
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
            starved: AtomicBool::new(false),
            sleepers: Mutex::new(Sleepers::default()),
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
        let mut sleepers = lock(&self.sleepers);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut asleep_since = None;
        loop {
            if let Some(permit) = self.take_handed(&mut sleepers).or_else(|| self.try_take()) {
                let others = self.waiting.fetch_sub(1, Ordering::SeqCst) > 1;
                if others && self.free.load(Ordering::SeqCst) > 0 {
                    self.wake_one(&mut sleepers);
                }
                return permit;
            }
            match asleep_since {
                None => asleep_since = Some(Instant::now()),
                Some(since) if since.elapsed() >= STARVED => {
                    self.starved.store(true, Ordering::SeqCst);
                }
                Some(_) => {}
            }
            self.sleeps.fetch_add(1, Ordering::Relaxed);
            sleepers = self.woken.wait(sleepers).unwrap_or_else(|poisoned| poisoned.into_inner());
            sleepers.wake_under_way = false;
        }
    }

    /// Takes a permit that was handed over.
    fn take_handed(&self, sleepers: &mut MutexGuard<'_, Sleepers>) -> Option<Permit<'_>> {
        sleepers.handed = sleepers.handed.checked_sub(1)?;
        Some(Permit { of: self })
    }

    /// Wakes a thread unless a woken one has not run yet.
    fn wake_one(&self, sleepers: &mut MutexGuard<'_, Sleepers>) {
        if !sleepers.wake_under_way {
            sleepers.wake_under_way = true;
            self.woken.notify_one();
        }
    }

    #[inline]
    fn release(&self) {
        if self.starved.load(Ordering::Relaxed) && self.hand_over() {
            return;
        }
        let before = self.free.fetch_add(1, Ordering::SeqCst);
        debug_assert!(
            before < self.count,
            "a permit was returned twice: too many threads would compute"
        );
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let mut sleepers = lock(&self.sleepers);
            // The waiting thread may have taken the permit already. A wake-up without a sleeper
            // would stay pending forever. Under the lock, `waiting` is the number of sleepers.
            if self.waiting.load(Ordering::SeqCst) > 0 {
                self.wake_one(&mut sleepers);
            }
        }
    }

    /// Hands the caller's permit to the waiting threads. Returns `false` if none needs it.
    #[cold]
    fn hand_over(&self) -> bool {
        let mut sleepers = lock(&self.sleepers);
        self.starved.store(false, Ordering::SeqCst);
        let waiting = self.waiting.load(Ordering::SeqCst);
        debug_assert!(
            sleepers.handed <= waiting,
            "a permit handed over without a taker would be lost"
        );
        if sleepers.handed == waiting {
            return false;
        }
        sleepers.handed += 1;
        // Not `wake_one`: each permit handed over needs a thread that is awake to take it.
        sleepers.wake_under_way = true;
        self.woken.notify_one();
        true
    }
}

impl Permits {
    /// Returns how often threads have slept while waiting for a permit.
    pub fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// Returns the number of permits.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns how many threads sleep until a permit is free.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_starved_thread_gets_the_next_permit() {
        let permits = &Permits::new(1);
        let hang = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            let mut held = permits.take();
            let (done, until_done) = channel::<()>();
            let waiter = scope.spawn(move || {
                let permit = permits.take();
                until_done.recv().unwrap();
                drop(permit);
            });
            loop {
                assert!(Instant::now() < hang, "the waiting thread never asked for a permit");
                let starved = permits.starved.load(Ordering::SeqCst);
                drop(held);
                match permits.try_take() {
                    None => break,
                    Some(permit) => held = permit,
                }
                assert!(!starved, "a thread that barged in won against a starved one");
                std::thread::sleep(Duration::from_micros(200));
            }
            done.send(()).unwrap();
            waiter.join().unwrap();
        });
        assert_eq!(permits.held(), 0);
    }
}
