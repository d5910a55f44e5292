//! Distributes tasks among workers and detects the end of the walk.
//!
//! A worker keeps its tasks in a stack that no other thread sees. It hands some over only while
//! other workers are idle. Protocol:
//!
//! ```text
//! worker without a task                     worker with tasks, between two entries
//!   lock; tasks in the pool? take some        idle == 0 → go on       (one relaxed load)
//!   else waiting += 1, idle += 1              idle  > 0 → lock, add tasks,
//!        all present workers wait and the          idle -= tasks added, wake that many
//!        pool is empty? → over, wake all
//!        sleep; check again when woken
//! ```
//!
//! `waiting`, `present` and the tasks change only under the lock, so the end is certain. A task is
//! either in the pool or with a worker that does not wait. If all present workers wait and the pool
//! is empty, there is no task left and none can appear. `idle` is a copy of the number of waiting
//! workers for which no task was added. A stale value only delays a handover until the next check,
//! and a worker that never hands over still does its own tasks. No wake-up is lost, because a
//! worker sleeps on a condition variable of the lock under which tasks are added.
//!
//! Workers numbered from `active` rest: they wait like idle ones but get no tasks. Active workers
//! whose threads are not started count as idle. The first handover to one of them starts its
//! thread, so a small tree is walked by few threads and a large one soon by all.

#[cfg(loom)]
use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

struct Inner<T> {
    tasks: Vec<T>,
    /// Workers that exist.
    present: usize,
    /// Workers that sleep or are about to.
    waiting: usize,
    /// Waiting workers that rest because they are not active.
    resting: usize,
    over: bool,
}

/// The shared tasks of a walk.
pub(crate) struct Pool<T> {
    inner: Mutex<Inner<T>>,
    /// Wakes active workers.
    task_added: Condvar,
    /// Wakes resting workers.
    activated: Condvar,
    idle: AtomicUsize,
    active: AtomicUsize,
    stop: AtomicBool,
}

impl<T> Pool<T> {
    /// Creates a pool in which workers numbered below `active` get tasks.
    pub(crate) fn new(active: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                tasks: Vec::new(),
                present: 0,
                waiting: 0,
                resting: 0,
                over: false,
            }),
            task_added: Condvar::new(),
            activated: Condvar::new(),
            idle: AtomicUsize::new(0),
            active: AtomicUsize::new(active),
            stop: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of waiting workers for which no task was added.
    #[inline]
    pub(crate) fn idle(&self) -> usize {
        self.idle.load(Ordering::Relaxed)
    }

    /// Returns the number of workers that get tasks.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Reports whether the walk was stopped.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Stops the walk: workers finish what they hold without reading more.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Gives tasks to workers numbered below `active` from now on.
    pub(crate) fn set_active(&self, active: usize) {
        let mut inner = self.lock();
        self.active.store(active.max(1), Ordering::Relaxed);
        self.count(&mut inner);
        self.activated.notify_all();
        self.task_added.notify_all();
    }

    /// Registers the first worker, number 0.
    pub(crate) fn arrive(&self) {
        let mut inner = self.lock();
        inner.present += 1;
        self.count(&mut inner);
    }

    /// Unregisters a worker that ended, or whose thread could not be started.
    pub(crate) fn depart(&self) {
        let mut inner = self.lock();
        inner.present -= 1;
        self.end_if_idle(&mut inner);
    }

    /// Handles a failed start of worker `number`: the existing workers continue without it.
    pub(crate) fn not_started(&self, number: usize) {
        self.set_active(number);
        self.depart();
    }

    /// Takes tasks without waiting.
    pub(crate) fn try_take(&self, number: usize, into: &mut Vec<T>) -> bool {
        let mut inner = self.lock();
        let took = self.grab(number, &mut inner, into);
        self.count(&mut inner);
        took
    }

    fn end_if_idle(&self, inner: &mut Inner<T>) {
        if inner.waiting == inner.present && inner.tasks.is_empty() {
            inner.over = true;
            self.task_added.notify_all();
            self.activated.notify_all();
        }
    }

    /// Updates `idle`.
    fn count(&self, inner: &mut Inner<T>) {
        assert!(
            inner.resting <= inner.waiting && inner.waiting <= inner.present,
            "a worker is counted once in each state: the walk ends when all present workers wait"
        );
        let fed = inner.tasks.len() + inner.resting;
        let not_started = self.active().saturating_sub(inner.present);
        self.idle.store((inner.waiting + not_started).saturating_sub(fed), Ordering::Relaxed);
    }

    /// Adds tasks for idle workers. Returns the number of a worker to start if there are more tasks
    /// than waiting workers; it counts as present from now on.
    pub(crate) fn give(&self, tasks: impl IntoIterator<Item = T>) -> Option<usize> {
        let mut inner = self.lock();
        assert!(!inner.over, "a task handed over after the end would be lost");
        let before = inner.tasks.len();
        inner.tasks.extend(tasks);
        let given = inner.tasks.len() - before;
        let takers = inner.waiting - inner.resting;
        let number = (inner.tasks.len() > takers && inner.present < self.active()).then(|| {
            inner.present += 1;
            inner.present - 1
        });
        self.count(&mut inner);
        for _ in 0..given.min(takers) {
            self.task_added.notify_one();
        }
        number
    }

    /// Takes tasks into `into` for worker `number`, after waiting for some if necessary. Returns
    /// false when the walk is over. Leaves a share of the tasks to other waiting workers.
    ///
    /// When no task is left anywhere, the last worker calls `refill` for more before the walk ends.
    /// All others sleep then, so `refill` may take long under the lock.
    pub(crate) fn take(
        &self,
        number: usize,
        into: &mut Vec<T>,
        refill: impl FnOnce() -> Vec<T>,
    ) -> bool {
        let mut refill = Some(refill);
        let mut inner = self.lock();
        if self.grab(number, &mut inner, into) {
            self.count(&mut inner);
            return true;
        }
        inner.waiting += 1;
        loop {
            let rests = number >= self.active();
            inner.resting += usize::from(rests);
            self.count(&mut inner);
            let last = inner.waiting == inner.present && inner.tasks.is_empty() && !inner.over;
            let more = if last {
                refill.take().map(|refill| refill()).unwrap_or_default()
            } else {
                vec![]
            };
            if more.is_empty() {
                self.end_if_idle(&mut inner);
                if inner.over {
                    assert!(inner.tasks.is_empty(), "no task is left when the walk ends");
                    return false;
                }
                let door = if rests { &self.activated } else { &self.task_added };
                inner = door.wait(inner).unwrap_or_else(PoisonError::into_inner);
            } else {
                inner.tasks = more;
                self.task_added.notify_all();
            }
            inner.resting -= usize::from(rests);
            if inner.over {
                return false;
            }
            inner.waiting -= 1;
            if self.grab(number, &mut inner, into) {
                self.count(&mut inner);
                return true;
            }
            inner.waiting += 1;
        }
    }

    fn grab(&self, number: usize, inner: &mut Inner<T>, into: &mut Vec<T>) -> bool {
        // After a stop all workers help to finish the tasks.
        let fed = number < self.active() || self.stopped();
        if inner.tasks.is_empty() || !fed {
            return false;
        }
        let others = inner.waiting.saturating_sub(inner.resting);
        let share = inner.tasks.len().div_ceil(others + 1);
        let from = inner.tasks.len() - share;
        into.extend(inner.tasks.drain(from..));
        true
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    //! Every order in which two or three workers can meet in the pool.

    use super::*;
    use loom::sync::Arc;

    /// Works like a worker of the walk: a task is the number of tasks that it leads to.
    fn worker(pool: &Pool<u32>, number: usize, mut local: Vec<u32>) -> u32 {
        let mut done = 0;
        loop {
            match local.pop() {
                Some(leads_to) => {
                    done += 1;
                    local.extend((0..leads_to).map(|_| 0));
                }
                None if pool.take(number, &mut local, Vec::new) => {}
                None => return done,
            }
            if pool.idle() > 0 && local.len() > 1 {
                let half = local.len() / 2;
                assert_eq!(pool.give(local.drain(..half)), None);
            }
        }
    }

    /// With three workers all orders would take hours; those with few preemptions find most errors.
    fn run(workers: usize, active: usize, first: u32) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = (workers > 2).then_some(2);
        model.check(move || {
            let pool = Arc::new(Pool::new(active));
            for _ in 0..workers {
                pool.arrive();
            }
            let others: Vec<_> = (1..workers)
                .map(|number| {
                    let pool = Arc::clone(&pool);
                    loom::thread::spawn(move || worker(&pool, number, Vec::new()))
                })
                .collect();
            let mut done = worker(&pool, 0, vec![first]);
            for other in others {
                done += other.join().unwrap();
            }
            assert_eq!(done, 1 + first, "every task is done once, and all workers ended");
        });
    }

    #[test]
    fn two_workers_share_and_end() {
        run(2, 2, 3);
    }

    #[test]
    fn three_workers_share_and_end() {
        run(3, 3, 2);
    }

    #[test]
    fn a_resting_worker_does_not_hold_up_the_end() {
        run(2, 1, 2);
    }

    #[test]
    fn refilled_tasks_are_done_once() {
        loom::model(|| {
            let pool = Arc::new(Pool::new(2));
            pool.arrive();
            pool.arrive();
            let refill = Arc::new(Mutex::new(vec![0u32, 0]));
            let work = |number: usize, pool: Arc<Pool<u32>>, refill: Arc<Mutex<Vec<u32>>>| {
                let (mut local, mut done) = (Vec::new(), 0);
                while pool.take(number, &mut local, || std::mem::take(&mut *refill.lock().unwrap()))
                {
                    done += local.drain(..).count();
                }
                done
            };
            let other = {
                let (pool, refill) = (Arc::clone(&pool), Arc::clone(&refill));
                loom::thread::spawn(move || work(1, pool, refill))
            };
            let done = work(0, pool, refill);
            assert_eq!(done + other.join().unwrap(), 2);
        });
    }
}
