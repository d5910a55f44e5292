//! Loop workers, each with its own share of the window.
//!
//! Methods whose calls may block although they should not (`nowait` opens files, and reads the
//! oldest miss with a call that waits) have more workers than permits and take a permit for the
//! function; with the others there are P workers.
//!
//! A worker starts reads until its share is full, computes what is ready, and waits only when
//! nothing is ready. What was in memory is computed at once, in a buffer that is still warm, as long
//! as functions are short; with long ones it is queued, so that the device has work meanwhile. What it
//! does next is decided by `control::Admission`, the same code that a simulator drives. Ready pieces
//! stand in a queue of their own for each worker, from which workers that have nothing ready take the
//! oldest before they wait; only the owner reaps.
//!
//! ```text
//! worker 0: issue … issue | reap → queue 0 → compute, compute …
//! worker 1: nothing ready ────────→ takes the oldest of queue 0, computes it
//! ```
//!
//! A piece taken from elsewhere is given back to nobody: its buffer returns to the arena when it is
//! computed. In chunk form a stolen file goes on with its thief, which must have room for it in its
//! window; its pieces still come one at a time.
//!
//! The end of the list is not the end of the work: others may have much to compute then. A worker
//! with nothing of its own left takes from their queues, and rests when these are empty. The
//! protocol: who rests counts itself under a lock, looks through all queues, and sleeps. Who pushes
//! a piece looks at that count after it has let the lock of its queue go, so either the one sees the
//! piece or the other the count. The first piece of an empty queue wakes nobody, because its owner
//! takes it at once. When all rest, nobody is left who could push, and all leave. A file that only
//! its owner can reap, because the owner computes, waits for the end of that one call.
//!
//! A worker waits for memory only while it has nothing ready: what is ready holds memory.
//!
//! Permits are one word that all workers write. While everything is in memory a worker keeps its
//! permit from one file to the next, for some files if others sleep for one, and gives it back before
//! it waits for anything: a read, memory, other workers.

use super::work::{Work, Worker};
use crate::arena::Lease;
use crate::fetch::{Cx, Fetch, Reaped, Started, no_buffer};
use crate::loaded::Loaded;
use crate::source::{Claim, Item};
use ioloom_budget::Permit;
use ioloom_control::{Action, Admission};
use ioloom_model::CallKind;
use ioloom_observe::{Gauges, Step};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Longest sleep of a worker that rests: a stop is looked for this often.
const NAP: Duration = Duration::from_millis(50);

/// Functions up to this long, on average, are run on a hit at once: a device does not go idle for
/// so little.
const SHORT_FUNCTION_NS: u64 = 20_000;

/// Files in a row that were in memory, after which a worker takes [`HIT_STRIPE`] of the list at once
/// and keeps its permit.
const HITS_IN_A_ROW: u32 = 64;

/// Functions for which a permit is kept although others sleep for one: in turns of one file each, they
/// would all sleep and wake as often as they work.
const KEPT_LEAST: u32 = 16;

/// Where everything is in memory, threads that take file by file in turn spend a tenth of their time
/// on each other's cache lines: those of the list, and those of neighbouring names and inodes. Where
/// a device is waited for it is the other way round: there all should work on the same directories.
const HIT_STRIPE: usize = 64;

/// Ready pieces of all workers.
pub(super) struct Ready<'p, S> {
    queues: Vec<Queue<'p, S>>,
    /// They tell how long each queue is, to other workers and to a sampler.
    gauges: Arc<Gauges>,
    workers: Mutex<WorkerCounts>,
    /// Its number of resting workers, for whoever pushes: changes under that lock.
    resting_now: AtomicUsize,
    pushed: Condvar,
}

/// How many workers there are.
#[derive(Default)]
struct WorkerCounts {
    started: usize,
    /// Those that rest or have left.
    resting: usize,
}

struct Queue<'p, S>(Mutex<VecDeque<Loaded<'p, S>>>);

impl<'p, S> Queue<'p, S> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Loaded<'p, S>>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<'p, S> Ready<'p, S> {
    pub(super) fn new(workers: usize, gauges: Arc<Gauges>) -> Self {
        Self {
            queues: (0..workers).map(|_| Queue(Mutex::new(VecDeque::new()))).collect(),
            gauges,
            workers: Mutex::new(WorkerCounts::default()),
            resting_now: AtomicUsize::new(0),
            pushed: Condvar::new(),
        }
    }

    fn push(&self, worker: usize, piece: Loaded<'p, S>) {
        let mut pieces = self.queues[worker].lock();
        pieces.push_back(piece);
        let len = pieces.len();
        self.gauges.set_ready(worker, len);
        drop(pieces);
        if len > 1 && self.resting_now.load(Ordering::Relaxed) > 0 {
            let _workers = self.lock_workers();
            self.pushed.notify_one();
        }
    }

    fn lock_workers(&self) -> MutexGuard<'_, WorkerCounts> {
        self.workers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// One more worker, told before it is started.
    pub(super) fn joins(&self) {
        self.lock_workers().started += 1;
    }

    /// Sleeps until there may be a piece to take. False: there will be none, or the run is stopping.
    fn rest(&self, stopping: impl Fn() -> bool) -> bool {
        let mut workers = self.lock_workers();
        workers.resting += 1;
        self.resting_now.store(workers.resting, Ordering::Relaxed);
        loop {
            if workers.resting == workers.started {
                self.pushed.notify_all();
                return false;
            }
            if stopping() {
                return false;
            }
            if self.queues.iter().any(|queue| !queue.lock().is_empty()) {
                workers.resting -= 1;
                self.resting_now.store(workers.resting, Ordering::Relaxed);
                return true;
            }
            let slept = self.pushed.wait_timeout(workers, NAP);
            workers = slept.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    fn pop(&self, worker: usize) -> Option<Loaded<'p, S>> {
        if self.len(worker) == 0 {
            return None;
        }
        let mut pieces = self.queues[worker].lock();
        let piece = pieces.pop_front();
        self.gauges.set_ready(worker, pieces.len());
        piece
    }

    fn len(&self, worker: usize) -> usize {
        self.gauges.ready(worker)
    }

    /// The oldest piece of the worker that has the most, if any has one.
    fn steal(&self, thief: usize) -> Option<Loaded<'p, S>> {
        let most = (0..self.queues.len())
            .filter(|worker| *worker != thief)
            .max_by_key(|worker| self.len(*worker))?;
        self.pop(most)
    }
}

/// Reads that are started before completions are looked for.
const ISSUES_PER_REAP: u32 = 8;

/// Pause before a registered buffer is looked for again.
const REGISTERED_PAUSE: Duration = Duration::from_micros(100);

struct Loop<'w, 'e, W: Work> {
    worker: &'w mut Worker<'e, W>,
    fetch: Box<dyn Fetch<'e, W::State> + 'e>,
    ready: &'w Ready<'e, W::State>,
    admission: Admission,
    window: u32,
    /// An item that found no memory or no descriptor, to be tried again.
    pending: Option<Item<'e, W::State>>,
    claim: Claim,
    reaped: Reaped<'e, W::State>,
    issued: u32,
    /// Files in a row that were there at once.
    hits: u32,
    /// The permit of the last function, for the next one; nothing is kept while this worker waits.
    kept: Option<Permit<'e>>,
    /// Functions that were run with the same permit.
    kept_for: u32,
    /// The buffer of the last file, for the next one. Nothing is kept while this worker rests or
    /// waits for memory.
    spare: Option<Lease>,
}

pub(super) fn run<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    fetch: Box<dyn Fetch<'e, W::State> + 'e>,
    window: u32,
    ready: &Ready<'e, W::State>,
) {
    let admission = Admission::new(window);
    let reaped = Reaped::new();
    let mut this = Loop {
        worker,
        fetch,
        ready,
        admission,
        window,
        pending: None,
        claim: Claim::default(),
        reaped,
        issued: 0,
        hits: 0,
        kept: None,
        kept_for: 0,
        spare: None,
    };
    this.worker.meter.skip();
    while this.step() {}
    this.worker.in_flight(0);
    // After a stop the ring is dropped here, which waits for what is in flight.
}

impl<'e, W: Work> Loop<'_, 'e, W> {
    /// One decision. False: this worker is done.
    fn step(&mut self) -> bool {
        let (shared, me) = (self.worker.shared, self.worker.number);
        if shared.stopping() {
            return false;
        }
        // Others may have taken pieces from the queue.
        while self.admission.ready() as usize > self.ready.len(me) {
            self.admission.taken();
        }
        match self.admission.next() {
            Action::Issue => self.issue(),
            Action::Compute => {
                if let Some(piece) = self.ready.pop(me) {
                    self.worker.meter.step_starts(Step::Compute);
                    self.admission.taken();
                    self.compute(piece, true);
                    self.reap(false);
                }
            }
            Action::Reap => {
                self.reap(false);
                if self.admission.ready() == 0 {
                    match self.steal() {
                        Some(piece) => self.compute(piece, false),
                        None => self.reap(true),
                    }
                }
            }
            Action::AwaitMemory => self.await_memory(),
            Action::Done => match self.steal() {
                Some(piece) => self.compute(piece, false),
                None if self.ready.queues.len() == 1 => return false,
                None => {
                    self.spare = None;
                    self.kept = None;
                    self.worker.meter.step_timed();
                    let more = self.ready.rest(|| shared.stopping());
                    self.worker.meter.lap(CallKind::HandOver, 0);
                    return more;
                }
            },
        }
        true
    }

    /// A piece of another worker, if this one could go on with its file.
    fn steal(&self) -> Option<Loaded<'e, W::State>> {
        let chunks = self.worker.shared.plan.chunk_bytes.is_some();
        if chunks && self.admission.in_flight() >= self.window {
            return None;
        }
        self.ready.steal(self.worker.number)
    }

    fn issue(&mut self) {
        let shared = self.worker.shared;
        let mut take = shared.take();
        if self.hits >= HITS_IN_A_ROW {
            take.stripe = take.stripe.max(HIT_STRIPE);
        }
        let Some(item) = self.pending.take().or_else(|| shared.source.next(&mut self.claim, take))
        else {
            self.admission.list_ended();
            return;
        };
        let spare = self.spare.take();
        let lease = match shared.first_bytes {
            0 => None,
            _ if spare.is_some() => spare,
            bytes => match self.fetch.arena(shared).try_lease(bytes) {
                Ok(Some(lease)) => Some(lease),
                Ok(None) => {
                    self.pending = Some(item);
                    self.admission.memory_short();
                    return;
                }
                Err(none) => {
                    let error = no_buffer(shared, &item, bytes, none);
                    self.worker.failed(error);
                    return;
                }
            },
        };
        self.start(item, lease, false);
    }

    /// `idle`: nothing of this worker is in flight or ready.
    fn start(&mut self, item: Item<'e, W::State>, lease: Option<Lease>, idle: bool) {
        self.worker.meter.step_starts(Step::Begin);
        let shared = self.worker.shared;
        self.admission.issued();
        if lease.is_none() {
            // Its first buffer may be waited for.
            self.kept = None;
        }
        let mut cx = Cx { shared, meter: &mut self.worker.meter, may_wait: false, idle };
        let started = self.fetch.start(&mut cx, item, lease);
        let hit = self.started(started);
        self.compute_all(hit);
        self.issued += 1;
        if self.issued >= ISSUES_PER_REAP {
            self.reap(false);
        }
    }

    /// Counts what was started. A piece that was there at once is returned if it shall be computed at
    /// once too.
    fn started(&mut self, started: Started<'e, W::State>) -> Option<Loaded<'e, W::State>> {
        let mut hit = None;
        match started {
            Started::Ready(loaded) => {
                self.admission.completed();
                self.hits = self.hits.saturating_add(1);
                if self.short_functions() {
                    self.admission.taken();
                    hit = Some(loaded);
                } else {
                    self.ready.push(self.worker.number, loaded);
                }
            }
            Started::Pending => {
                self.worker.shared.gauges.missed(self.worker.number);
                self.hits = 0;
                self.kept = None;
            }
            Started::Failed(error) => {
                self.admission.failed();
                self.worker.failed(error);
            }
            // Our own files hold the descriptors. They go first, as those that hold memory do.
            Started::Later(item) => {
                self.admission.failed();
                self.admission.memory_short();
                self.pending = Some(item);
            }
        }
        let flying = self.fetch.in_flight();
        self.worker.in_flight(flying);
        hit
    }

    /// Whether functions take little time on this worker these days; unknown is no.
    fn short_functions(&self) -> bool {
        let typical = self.worker.meter.typical_ns(CallKind::Compute);
        typical.is_some_and(|ns| ns <= SHORT_FUNCTION_NS)
    }

    fn reap(&mut self, wait: bool) {
        self.issued = 0;
        if wait {
            self.kept = None;
        }
        self.worker.meter.step_timed();
        let shared = self.worker.shared;
        let mut cx = Cx { shared, meter: &mut self.worker.meter, may_wait: wait, idle: false };
        if let Err(error) = self.fetch.reap(&mut cx, wait, &mut self.reaped) {
            shared.fail(error);
        }
        while let Some(result) = self.reaped.pop_front() {
            match result {
                Ok(loaded) => {
                    self.admission.completed();
                    self.ready.push(self.worker.number, loaded);
                }
                Err(error) => {
                    self.admission.failed();
                    self.worker.failed(error);
                }
            }
        }
        let flying = self.fetch.in_flight();
        self.worker.in_flight(flying);
    }

    /// Computes a piece. `own`: it was read here, so a file with more pieces is read on here.
    fn compute(&mut self, piece: Loaded<'e, W::State>, own: bool) {
        self.compute_all(Some(piece));
        if own {
            self.admission.gave_back();
        }
    }

    /// Computes a piece and those that follow it in its file, as long as they are there at once.
    fn compute_all(&mut self, mut next: Option<Loaded<'e, W::State>>) {
        while let Some(mut piece) = next {
            let shared = self.worker.shared;
            let permit = self.permit(piece.item.index);
            let more = self.worker.compute(&mut piece);
            // The next piece of a file may wait for a buffer.
            let keep = !more && self.hits >= HITS_IN_A_ROW;
            let mine = self.kept_for < KEPT_LEAST;
            self.kept = permit.filter(|permit| keep && (mine || !permit.is_wanted()));
            if !more || shared.stopping() {
                self.spare = piece.take_spare(shared).or_else(|| self.spare.take());
                piece.release(&mut self.worker.meter);
                return;
            }
            // A stolen file goes on with its thief.
            self.admission.issued();
            let meter = &mut self.worker.meter;
            let mut cx = Cx { shared, meter, may_wait: false, idle: false };
            let started = self.fetch.resume(&mut cx, piece);
            next = self.started(started);
        }
    }

    /// The permit for a function: the one kept from the last, or one that is waited for.
    fn permit(&mut self, index: usize) -> Option<Permit<'e>> {
        self.kept_for += 1;
        self.kept.take().or_else(|| {
            self.kept_for = 1;
            let permit = self.worker.shared.permits.as_ref()?.take();
            self.worker.meter.lap(CallKind::HandOver, index);
            Some(permit)
        })
    }

    /// Waits until a first buffer fits and a descriptor is free, holding nothing.
    fn await_memory(&mut self) {
        let shared = self.worker.shared;
        self.spare = None;
        self.kept = None;
        self.worker.meter.step_timed();
        let Some(item) = self.pending.take() else {
            self.admission.gave_back();
            return;
        };
        let lease = match shared.first_bytes {
            0 => Ok(None),
            bytes if self.fetch.arena(shared).is_registered() => {
                match self.fetch.arena(shared).try_lease(bytes) {
                    Ok(None) => {
                        self.pending = Some(item);
                        return self.await_registered();
                    }
                    other => other,
                }
            }
            bytes => {
                let lease = self.fetch.arena(shared).lease(bytes, 0);
                self.worker.meter.lap(CallKind::Memory, item.index);
                lease.map(Some)
            }
        };
        self.admission.gave_back();
        match lease {
            Ok(lease) => self.start(item, lease, true),
            Err(none) => {
                let error = no_buffer(shared, &item, shared.first_bytes, none);
                self.worker.failed(error);
            }
        }
    }

    /// All registered buffers of this worker are with pieces that others took. They come back when
    /// those are computed; there is nothing to sleep on, so it is looked for after short pauses.
    fn await_registered(&mut self) {
        match self.steal() {
            Some(piece) => self.compute(piece, false),
            None => std::thread::sleep(REGISTERED_PAUSE),
        }
        self.worker.meter.lap(CallKind::Memory, 0);
        self.admission.gave_back();
    }
}
