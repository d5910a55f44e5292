//! What workers share: the tasks that were given away, who waits for one, and when all is done.
//!
//! A worker keeps its tasks for itself, in a stack that no other thread sees. Only when somebody is
//! hungry does it give some away. The protocol:
//!
//! ```text
//! worker without a task                     worker with tasks, between two entries
//!   lock; a task here? take it                hungry == 0 → go on       (one relaxed load)
//!   else waiting += 1, hungry += 1            hungry  > 0 → lock, put tasks here,
//!        all present wait and nothing is            hungry -= what was put, ring for each
//!        here? → over, wake all
//!        sleep; woken: look again
//! ```
//!
//! `waiting`, `present` and the tasks change only under the lock, so the end is certain: a task is
//! either here or with a worker that does not wait; if all present workers wait and nothing is
//! here, no task is left anywhere and none can come. `hungry` is a copy of "waiting workers that
//! nothing was put here for"; reading it late only delays a gift until the next look, and a worker
//! that never gives still does its own tasks. So no wake can be lost: the sleeper sleeps on the
//! condition variable of the lock under which tasks are put.
//!
//! Workers beyond `active` rest: they wait like the hungry ones, but are not fed. Workers that are
//! wanted but not yet born count as hungry: the first gift to one of them makes its thread start, so
//! that a small tree is walked by few threads and a large one soon by all.

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
    /// Of these, those that sleep or are about to.
    waiting: usize,
    /// Of the waiting, those that rest because they are beyond the active ones.
    resting: usize,
    over: bool,
}

/// The shared part of a walk.
pub(crate) struct Pool<T> {
    inner: Mutex<Inner<T>>,
    /// For workers that would take a task.
    task_added: Condvar,
    /// For workers that rest.
    activated: Condvar,
    idle: AtomicUsize,
    active: AtomicUsize,
    stop: AtomicBool,
}

impl<T> Pool<T> {
    /// A pool in which workers numbered below `active` are fed.
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

    /// Workers that wait for a task and that nothing was put here for.
    #[inline]
    pub(crate) fn idle(&self) -> usize {
        self.idle.load(Ordering::Relaxed)
    }

    /// Workers that are fed.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Whether the walk is to end early.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the walk early: workers finish what they hold without reading more.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Feeds workers numbered below `active` from now on.
    pub(crate) fn set_active(&self, active: usize) {
        let mut inner = self.lock();
        self.active.store(active.max(1), Ordering::Relaxed);
        self.count(&mut inner);
        self.activated.notify_all();
        self.task_added.notify_all();
    }

    /// The first worker comes, number 0.
    pub(crate) fn arrive(&self) {
        let mut inner = self.lock();
        inner.present += 1;
        self.count(&mut inner);
    }

    /// A worker goes, or its thread could not be started.
    pub(crate) fn depart(&self) {
        let mut inner = self.lock();
        inner.present -= 1;
        self.end_if_idle(&mut inner);
    }

    /// Worker `number` could not be started: as many as there are have to do.
    pub(crate) fn not_started(&self, number: usize) {
        self.set_active(number);
        self.depart();
    }

    /// Takes what lies here, without waiting.
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

    /// Brings `hungry` up to date.
    fn count(&self, inner: &mut Inner<T>) {
        let fed = inner.tasks.len() + inner.resting;
        let not_started = self.active().saturating_sub(inner.present);
        self.idle.store((inner.waiting + not_started).saturating_sub(fed), Ordering::Relaxed);
    }

    /// Puts tasks here for those who are hungry. Returns the number of a worker that is to be
    /// started, if more tasks lie here than workers wait; it counts as present from now on.
    pub(crate) fn give(&self, tasks: impl IntoIterator<Item = T>) -> Option<usize> {
        let mut inner = self.lock();
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

    /// Takes tasks into `into` for worker `number`, waiting for some; false when all is over. A
    /// worker that comes first leaves their share to the others that wait.
    ///
    /// The last worker to come, when no task is left anywhere, asks `late` for more before all is
    /// over. Everybody else sleeps then, so `late` may take its time under the lock.
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
        // After a stop everybody helps to finish what lies here.
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

    /// A worker as the walk has it: a task is a number of tasks that it leads to.
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

    /// With three workers every order would take hours; orders with few interruptions show most.
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
            assert_eq!(done, 1 + first, "every task is done once, and everybody came home");
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
    fn what_comes_late_is_done_once() {
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
