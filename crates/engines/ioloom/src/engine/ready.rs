//! The pieces that workers of a window have read and not yet processed, and where workers rest.
//!
//! Each worker has a queue, into which only it pushes; any worker may take the oldest piece of the longest
//! one. The lengths are published, so that a worker looks for work without a lock. While a worker runs a
//! function that may be long, others may also take files whose reads it has begun. A worker that
//! rests is counted: when the list has ended and all rest, none is left that could push, and all exit.

use crate::bell::Bell;
use crate::fetch::Missed;
use crate::loaded::Loaded;
use crate::shared::Shared;
use ioloom_budget::Part;
use ioloom_observe::Gauges;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Ready pieces of all workers.
pub(super) struct Ready<'p, S> {
    queues: Vec<Queue<Loaded<'p, S>>>,
    /// Files of each worker whose reads have begun, while it runs a function.
    offered: Vec<Queue<Missed<'p, S>>>,
    /// Publish the length of each queue to other workers and to the sampler.
    gauges: Arc<Gauges>,
    /// Workers started so far that have a part of the window.
    started: AtomicUsize,
    /// Workers that rest. Written under the lock of the bell, where blocking threads rest, too.
    resting: AtomicUsize,
    /// Whether all workers rested at once after the end of the list.
    over: AtomicBool,
}

struct Queue<T>(Mutex<VecDeque<T>>);

impl<T> Queue<T> {
    fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<'p, S> Ready<'p, S> {
    pub(super) fn new(workers: usize, gauges: Arc<Gauges>) -> Self {
        Self {
            queues: (0..workers).map(|_| Queue::new()).collect(),
            offered: (0..workers).map(|_| Queue::new()).collect(),
            gauges,
            started: AtomicUsize::new(0),
            resting: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Returns the number of queues: one for each worker.
    pub(super) fn workers(&self) -> usize {
        self.queues.len()
    }

    pub(super) fn push(&self, worker: usize, piece: Loaded<'p, S>, bell: &Bell) {
        let mut pieces = self.queues[worker].lock();
        pieces.push_back(piece);
        let len = pieces.len();
        self.gauges.set_ready(worker, len);
        drop(pieces);
        if len > 1 {
            bell.ring();
        }
    }

    /// Counts a worker, before its thread is started.
    pub(super) fn joins(&self) {
        self.started.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes back the count of a worker whose thread could not be started.
    pub(super) fn leaves(&self) {
        self.started.fetch_sub(1, Ordering::AcqRel);
    }

    /// Rests outside the count, with nothing in flight, ready or claimed, until the worker has a part
    /// of the window or the list has ended.
    pub(super) fn rest_without_part(&self, shared: &Shared<'_>, part: &Part) {
        self.started.fetch_sub(1, Ordering::AcqRel);
        // A path may have woken this worker instead of one that can take it.
        if shared.source.is_settled() {
            shared.source.bell().ring();
        }
        let over = || shared.stopping() || shared.source.has_ended();
        let back = || over() || part.is_wanted(&shared.window);
        shared.spare_bell.rest(|_| back().then_some(()));
        self.joins();
    }

    /// Sleeps until there may be a piece to steal or a path to take. Returns false if there will be
    /// neither, or if the run is stopping.
    pub(super) fn rest(&self, shared: &Shared<'_>) -> bool {
        let bell = shared.source.bell();
        let mut counted = false;
        let more = bell.rest(|_| {
            if !counted {
                self.resting.fetch_add(1, Ordering::AcqRel);
                counted = true;
            }
            let more = self.more(shared);
            if more.is_some() {
                self.resting.fetch_sub(1, Ordering::AcqRel);
            }
            more
        });
        if !more {
            shared.wake_resting();
        }
        more
    }

    /// Returns whether a resting worker goes on, or `None` if it sleeps.
    fn more(&self, shared: &Shared<'_>) -> Option<bool> {
        let resting = self.resting.load(Ordering::Acquire);
        let started = self.started.load(Ordering::Acquire);
        assert!(
            resting <= started,
            "a worker rests once: when all rest the run ends, and no piece may be left"
        );
        if self.over.load(Ordering::Acquire) || shared.stopping() {
            return Some(false);
        }
        if shared.offered.load(Ordering::SeqCst) > 0 {
            return Some(true);
        }
        if self.queues.iter().any(|queue| !queue.lock().is_empty()) {
            return Some(true);
        }
        if !shared.source.has_ended() {
            return shared.source.is_settled_surely().then_some(true);
        }
        if resting == started {
            self.over.store(true, Ordering::Release);
            return Some(false);
        }
        None
    }

    pub(super) fn pop(&self, worker: usize) -> Option<Loaded<'p, S>> {
        if self.len(worker) == 0 {
            return None;
        }
        let mut pieces = self.queues[worker].lock();
        let piece = pieces.pop_front();
        self.gauges.set_ready(worker, pieces.len());
        piece
    }

    pub(super) fn len(&self, worker: usize) -> usize {
        self.gauges.ready(worker)
    }

    /// Takes the oldest piece from the longest queue of another worker.
    pub(super) fn steal(&self, thief: usize) -> Option<Loaded<'p, S>> {
        let most = (0..self.queues.len())
            .filter(|worker| *worker != thief)
            .max_by_key(|worker| self.len(*worker))?;
        self.pop(most)
    }

    /// Lets other workers take the files whose reads `worker` has begun, until it withdraws them.
    /// Returns how many they are.
    pub(super) fn offer(
        &self,
        worker: usize,
        missed: &mut VecDeque<Missed<'p, S>>,
        shared: &Shared<'_>,
    ) -> usize {
        let count = missed.len();
        if count > 0 {
            let mut offered = self.offered[worker].lock();
            debug_assert!(offered.is_empty(), "a worker withdraws what it has offered");
            std::mem::swap(&mut *offered, missed);
            shared.offered.fetch_add(count, Ordering::SeqCst);
            drop(offered);
            // Blocking threads rest there too, and do not take any.
            shared.source.bell().ring_all();
        }
        count
    }

    /// Returns to `worker` what others have not taken, and how many files that are.
    pub(super) fn withdraw(
        &self,
        worker: usize,
        missed: &mut VecDeque<Missed<'p, S>>,
        shared: &Shared<'_>,
    ) -> usize {
        debug_assert!(missed.is_empty(), "nothing is read while the function runs");
        let mut offered = self.offered[worker].lock();
        std::mem::swap(&mut *offered, missed);
        shared.offered.fetch_sub(missed.len(), Ordering::SeqCst);
        missed.len()
    }

    /// Takes the oldest file that another worker offers. If there are more, another worker is woken.
    pub(super) fn steal_missed(&self, shared: &Shared<'_>) -> Option<Missed<'p, S>> {
        if shared.offered.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.offered.iter().find_map(|queue| {
            let mut offered = queue.lock();
            let missed = offered.pop_front()?;
            let before = shared.offered.fetch_sub(1, Ordering::SeqCst);
            drop(offered);
            if before > 1 {
                shared.source.bell().ring();
            }
            Some(missed)
        })
    }
}
