//! Workers that each keep a part of the window in flight.
//!
//! The calls of `nowait` may block (it opens files, and reads its oldest miss with a blocking
//! call). It therefore has more workers than permits, and a worker takes a permit to run the
//! function. With the other methods there are P workers and no permits.
//!
//! A worker starts reads until its part of the window is full, runs the function on what is ready,
//! and waits only when nothing is ready. `control::Admission`, which a simulator also drives,
//! decides the next step. Data found in memory is processed at once, while it is in the processor's
//! cache, if functions are short. If they are long it is queued, so that the device has work in the
//! meantime. Each worker has a queue of ready pieces. A worker with nothing ready steals the oldest
//! piece of another queue before it waits. Only the owner reaps completions. While it runs a function
//! that may be long, a worker with nothing left may take files of `nowait` whose reads it has begun.
//!
//! ```text
//! worker 0: issue … issue | reap → queue 0 → compute, compute …
//! worker 1: nothing ready ────────→ steals the oldest of queue 0, computes it
//! ```
//!
//! The buffer of a stolen piece returns to the arena when it is computed. In chunk form a stolen
//! file stays with the thief, which must have room for it in its window; its pieces still come one
//! at a time.
//!
//! A worker never waits for the next path while it has reads in flight or ready pieces. With
//! nothing left it steals, and rests on the bell of the source if all queues are empty. A new path
//! rings, and so does a piece pushed onto a queue that is not empty. (The first piece of an empty
//! queue wakes no worker, because its owner takes it next.) When the list has ended and all workers
//! rest, none is left that could push, and all exit. A file that only its owner can reap, in a ring,
//! waits until the function that the owner is running returns.
//!
//! The window may change during a run (`budget::Window`). A worker computes its part before each step
//! and, if it has none, finishes what it has begun and rests until it has one: it is not counted
//! among the workers whose rest ends the run. Worker 0 always has a part.
//!
//! A worker waits for memory only while it has nothing ready, because ready pieces hold memory.
//!
//! Permits are one word that all workers write. A worker whose files are in memory keeps its permit from
//! one file to the next (for a limited number of files if others wait for one). Each worker decides from
//! its own files, so a slow file system delays only the workers that read from it:
//!
//! ```text
//! first piece at once, nothing blocked   hits + 1; from 64 on, the permit is kept
//! read blocked, miss or failure          hits = 0, the permit is returned
//! opens of this worker typically wait    hits = 0, the permit is returned
//! later piece of a file                  hits do not grow: the pieces of a file are one hit
//! completions taken while some are due   the permit is returned: the oldest miss is read with a blocking call
//! wait for memory, paths or workers      the permit is returned
//! ```
//!
//! The method reports a read that has blocked after it ([`Fetch::take_blocked`]). Before a read that may wait it
//! returns the permit: a large file of which only the beginning is in memory is read to its end without one.
//! Only opens are made with a permit in hand until their typical time shows that they wait.

use super::ready::Ready;
use super::work::{Work, Worker};
use crate::arena::Lease;
use crate::claim::Claim;
use crate::fetch::{Cx, Fetch, Reaped, SHORT_FUNCTION_NS, Started, no_buffer, try_lease};
use crate::loaded::Loaded;
use crate::source::{Item, Next};
use crate::take::Take;
use ioloom_budget::{Part, Permit, Reserve};
use ioloom_control::{Action, Admission};
use ioloom_model::CallKind;
use ioloom_observe::Step;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Consecutive hits after which a worker claims [`HIT_STRIPE`] files at once and keeps its permit.
const HITS_IN_A_ROW: u32 = 64;

/// Functions for which a permit is kept even if others wait for one. If permits changed hands after
/// every file, threads would sleep and wake as often as they work.
const KEPT_LEAST: u32 = 16;

/// Least number of files claimed at once while everything is in memory. Threads that claim one at a time
/// then spend a tenth of their time on shared cache lines: of the list, and of names and inodes.
const HIT_STRIPE: usize = 64;

/// Reads that a worker starts before it checks for completions.
const ISSUES_PER_REAP: u32 = 8;

/// Pause before registered buffers are checked again.
const REGISTERED_PAUSE: Duration = Duration::from_micros(100);

struct Loop<'w, 'e, W: Work> {
    worker: &'w mut Worker<'e, W>,
    fetch: Box<dyn Fetch<'e, W::State> + 'e>,
    ready: &'w Ready<'e, W::State>,
    admission: Admission,
    part: Part,
    /// A file for which there was no memory or no descriptor, to be tried again.
    pending: Option<Item<'e, W::State>>,
    claim: Claim,
    reaped: Reaped<'e, W::State>,
    issued: u32,
    /// Consecutive files that were in memory, whose reads did not block.
    hits: u32,
    /// The permit of the last function, for the next one; `None` while this worker waits.
    kept: Option<Permit<'e>>,
    /// Functions run with the same permit.
    kept_for: u32,
    /// The buffer of the last file, for the next one; `None` while this worker rests or waits for
    /// memory.
    spare: Option<Lease>,
}

pub(super) fn run<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    fetch: Box<dyn Fetch<'e, W::State> + 'e>,
    part: Part,
    ready: &Ready<'e, W::State>,
) {
    assert!(worker.number < ready.workers(), "each worker owns a queue, which only it reaps into");
    let admission = Admission::new(0);
    let reaped = Reaped::new();
    let mut this = Loop {
        worker,
        fetch,
        ready,
        admission,
        part,
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
    // After a stop, dropping the ring here waits for what is in flight.
}

impl<'e, W: Work> Loop<'_, 'e, W> {
    /// Takes one step. Returns false when this worker is done.
    fn step(&mut self) -> bool {
        let (shared, me) = (self.worker.shared, self.worker.number);
        if shared.stopping() {
            return false;
        }
        // Other workers may have stolen pieces from the queue.
        while self.admission.ready() as usize > self.ready.len(me) {
            self.admission.taken();
        }
        if self.admission.is_input_empty() && shared.source.is_settled() {
            self.admission.input_changed();
        }
        self.size_window();
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
            Action::AwaitPart => self.await_part(),
            Action::Done if self.ready.workers() == 1 => return false,
            Action::Done | Action::AwaitInput => match self.steal() {
                Some(piece) => self.compute(piece, false),
                None if self.steal_missed() => {}
                None => return self.rest(),
            },
        }
        true
    }

    /// Sets the window of this worker to its part. Without one it gives back what it has taken, unless the
    /// list has ended.
    #[inline]
    fn size_window(&mut self) {
        let used = self.admission.in_flight() + self.admission.ready();
        let room = self.part.room(&self.worker.shared.window, used);
        if room.in_flight == 0 && !self.claim.is_empty() {
            // Read here, the files would exceed the limit.
            self.worker.shared.source.give_back(&mut self.claim);
        }
        let least = u32::from(self.pending.is_some() || !self.claim.is_empty());
        let limit = room.in_flight.max(least);
        if (room.files, limit) != self.admission.window() {
            self.admission.set_window(room.files, limit);
            self.fetch.set_window(limit.max(1));
        }
    }

    #[cold]
    fn await_part(&mut self) {
        let shared = self.worker.shared;
        if shared.source.has_ended() {
            return self.admission.list_ended();
        }
        self.spare = None;
        self.kept = None;
        self.claim.rests();
        self.worker.meter.step_timed();
        self.ready.rest_without_part(shared, &self.part);
        self.worker.meter.lap(CallKind::HandOver, 0);
    }

    /// Rests with nothing to do. Returns false if this worker is done.
    fn rest(&mut self) -> bool {
        let source = self.worker.shared.source;
        let waits_for = if source.has_ended() { CallKind::HandOver } else { CallKind::Input };
        self.spare = None;
        self.kept = None;
        self.worker.meter.step_timed();
        let more = self.ready.rest(self.worker.shared);
        self.worker.meter.lap(waits_for, 0);
        more
    }

    /// Steals a piece, if this worker has room to continue with its file.
    fn steal(&self) -> Option<Loaded<'e, W::State>> {
        let chunks = self.worker.shared.plan.chunk_bytes.is_some();
        if chunks && self.admission.in_flight() >= self.admission.window().1.max(1) {
            return None;
        }
        self.ready.steal(self.worker.number)
    }

    /// Takes over a file whose read another worker has begun. It is then in flight here.
    fn steal_missed(&mut self) -> bool {
        let Some(missed) = self.fetch.missed() else { return false };
        let Some(stolen) = self.ready.steal_missed(self.worker.shared) else { return false };
        missed.push_back(stolen);
        self.not_in_memory();
        self.admission.issued();
        self.publish_in_flight();
        true
    }

    /// Lets other workers take files whose reads were begun here while a function runs that may be long.
    /// Returns how many they are.
    fn offer(&mut self) -> usize {
        let typical = self.worker.meter.typical_ns(CallKind::Compute);
        // The mean of a first function that is long is just this.
        if self.ready.workers() == 1 || typical.is_some_and(|ns| ns < SHORT_FUNCTION_NS) {
            return 0;
        }
        let Some(missed) = self.fetch.missed() else { return 0 };
        self.ready.offer(self.worker.number, missed, self.worker.shared)
    }

    /// Takes back what is left of the `offered` files. The others are in flight elsewhere.
    fn withdraw(&mut self, offered: usize) {
        if offered == 0 {
            return;
        }
        let Some(missed) = self.fetch.missed() else { return };
        let left = self.ready.withdraw(self.worker.number, missed, self.worker.shared);
        (left..offered).for_each(|_| self.admission.failed());
    }

    /// Gives back what is left of a claim that has lasted long, while other workers can take it.
    #[inline(never)]
    fn give_back_if_slow(&mut self) {
        if self.claim.is_slow() {
            self.worker.shared.source.give_back(&mut self.claim);
        }
    }

    /// Returns how this worker claims paths.
    #[inline]
    fn take(&self) -> Take {
        let take = self.worker.shared.take();
        let stripe = if self.is_in_memory() { take.stripe.max(HIT_STRIPE) } else { take.stripe };
        Take { stripe, ..take }
    }

    fn issue(&mut self) {
        let shared = self.worker.shared;
        let take = if self.claim.is_empty() { self.take() } else { Take::NONE };
        let next = match self.pending.take() {
            Some(item) => Next::Item(item),
            None => shared.source.next(&mut self.claim, take),
        };
        let item = match next {
            Next::Item(item) => item,
            Next::Failed(error) => return self.worker.failed(error),
            Next::Empty => return self.admission.input_empty(),
            Next::Ended => {
                shared.list_ended();
                return self.admission.list_ended();
            }
        };
        let spare = self.spare.take();
        let lease = match shared.first_bytes {
            0 => None,
            _ if spare.is_some() => spare,
            bytes => match try_lease(shared, self.fetch.arena(shared), bytes) {
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

    /// Starts a read. `idle`: nothing of this worker is in flight or ready.
    fn start(&mut self, mut item: Item<'e, W::State>, lease: Option<Lease>, idle: bool) {
        self.worker.meter.step_starts(Step::Begin);
        item.began = self.worker.meter.file_begins();
        let shared = self.worker.shared;
        self.admission.issued();
        // The open may block.
        shared.gauges.set(self.worker.number, self.admission.in_flight());
        if lease.is_none() {
            // The read may wait for its first buffer.
            self.kept = None;
        }
        let (meter, kept) = (&mut self.worker.meter, Some(&mut self.kept));
        let mut cx = Cx { shared, meter, may_wait: false, idle, kept };
        let mut started = self.fetch.start(&mut cx, item, lease);
        self.count(&mut started);
        self.compute_all(&mut started);
        self.issued += 1;
        if self.issued >= ISSUES_PER_REAP {
            self.reap(false);
        }
    }

    /// Counts what was started, and takes it unless it is a hit that should be computed at once. In memory
    /// every file is one, and its piece is not moved.
    fn count(&mut self, started: &mut Started<'e, W::State>) {
        if let Started::Ready(_) = started {
            self.admission.completed();
            if self.fetch.take_blocked() {
                self.not_in_memory();
            } else {
                self.hits = self.hits.saturating_add(1);
            }
            if self.computes_hits() {
                self.admission.taken();
                return self.publish_in_flight();
            }
        }
        match std::mem::replace(started, Started::Pending) {
            Started::Ready(loaded) => {
                self.ready.push(self.worker.number, loaded, self.worker.shared.source.bell());
            }
            Started::Pending => {
                self.worker.shared.gauges.missed(self.worker.number);
                self.not_in_memory();
            }
            Started::Failed(error) => {
                self.not_in_memory();
                self.admission.failed();
                self.worker.failed(error);
            }
            // This worker's own files hold the descriptors; finish them first, as with memory.
            Started::Later(item) => {
                self.worker.shared.refused.fetch_add(1, Ordering::Relaxed);
                self.admission.failed();
                self.admission.memory_short();
                self.pending = Some(item);
            }
        }
        self.publish_in_flight();
    }

    /// Reports whether a hit is computed at once. So is the first one: until the time of a function is
    /// known, a single worker would fill the whole window, in buffers that nothing else needs.
    fn computes_hits(&self) -> bool {
        let typical = self.worker.meter.typical_ns(CallKind::Compute);
        typical.is_none_or(|ns| ns <= SHORT_FUNCTION_NS)
    }

    /// Reports whether the files seem to be in memory. Such files are never slow.
    #[inline]
    fn is_in_memory(&self) -> bool {
        self.hits >= HITS_IN_A_ROW
    }

    /// Records that a file was not in memory, or may not have been. The next ones may not be, either.
    fn not_in_memory(&mut self) {
        self.hits = 0;
        self.kept = None;
    }

    fn reap(&mut self, wait: bool) {
        self.issued = 0;
        if !(self.claim.is_empty() || self.is_in_memory()) {
            self.give_back_if_slow();
        }
        if wait || self.admission.in_flight() > 0 {
            // Even without `wait`, the method may read its oldest miss with a blocking call.
            self.kept = None;
        }
        if wait {
            // After a stolen piece this buffer is one more than the part of this worker, and others may
            // wait for the memory.
            self.spare = None;
        }
        self.worker.meter.step_timed();
        let shared = self.worker.shared;
        let meter = &mut self.worker.meter;
        let mut cx = Cx { shared, meter, may_wait: wait, idle: false, kept: None };
        if let Err(error) = self.fetch.reap(&mut cx, wait, &mut self.reaped) {
            shared.fail(error);
        }
        while let Some(result) = self.reaped.pop_front() {
            match result {
                Ok(loaded) => {
                    shared.gauges.waited(self.worker.number);
                    self.admission.completed();
                    self.ready.push(self.worker.number, loaded, self.worker.shared.source.bell());
                }
                Err(error) => {
                    self.admission.failed();
                    self.worker.failed(error);
                }
            }
        }
        self.publish_in_flight();
    }

    /// Publishes the reads in flight, of which decisions and the method keep separate counts.
    fn publish_in_flight(&mut self) {
        let in_flight = self.fetch.in_flight();
        debug_assert_eq!(
            in_flight,
            self.admission.in_flight() as usize,
            "a read that is counted twice or not at all would end the worker early or never"
        );
        self.worker.in_flight(in_flight);
    }

    /// Computes a piece. `own`: it was read here, and finishing it frees memory or a descriptor
    /// here.
    fn compute(&mut self, piece: Loaded<'e, W::State>, own: bool) {
        self.compute_all(&mut Started::Ready(piece));
        if own {
            self.admission.gave_back();
        }
    }

    /// Computes a piece and the pieces that follow it in its file, as long as they are hits.
    fn compute_all(&mut self, next: &mut Started<'e, W::State>) {
        while let Started::Ready(piece) = next {
            let shared = self.worker.shared;
            let permit = self.permit(piece.item.index);
            let offered = self.offer();
            let more = self.worker.compute(piece);
            self.withdraw(offered);
            // The next piece of a file may wait for a buffer. A permit that is held during a read that blocks
            // is one that hundreds of threads with a file in memory wait for.
            let keep = !more && self.is_in_memory();
            let mine = self.kept_for < KEPT_LEAST;
            self.kept = permit.filter(|permit| keep && (mine || !permit.is_wanted()));
            if !more || shared.stopping() {
                self.spare = piece.take_spare(shared).or_else(|| self.spare.take());
                piece.release(&mut self.worker.meter);
                return;
            }
            self.give_back_if_slow();
            // A stolen file stays with the thief.
            self.admission.issued();
            // The read may block.
            shared.gauges.set(self.worker.number, self.admission.in_flight());
            let meter = &mut self.worker.meter;
            let mut cx = Cx { shared, meter, may_wait: false, idle: false, kept: None };
            let Started::Ready(piece) = std::mem::replace(next, Started::Pending) else { return };
            *next = self.fetch.resume(&mut cx, piece);
            let before = self.hits;
            self.count(next);
            // Later pieces are read with blocking calls.
            self.hits = self.hits.min(before);
        }
    }

    /// Returns the permit for a function: the one kept from the last function, or a new one.
    fn permit(&mut self, index: usize) -> Option<Permit<'e>> {
        self.kept_for += 1;
        self.kept.take().or_else(|| {
            self.kept_for = 1;
            let permit = self.worker.shared.permits.as_ref()?.take();
            self.worker.meter.lap(CallKind::HandOver, index);
            Some(permit)
        })
    }

    /// Waits, holding nothing, until a first buffer fits and a descriptor is free.
    fn await_memory(&mut self) {
        let shared = self.worker.shared;
        self.spare = None;
        self.kept = None;
        self.worker.meter.step_timed();
        debug_assert_eq!(
            self.fetch.in_flight(),
            0,
            "a worker that waits for memory must not hold reads that others wait for"
        );
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

    /// All registered buffers of this worker are with pieces that other workers stole, or none are lent
    /// because the user retains too much. They return when those are computed. There is nothing to
    /// sleep on, so check again after a short pause. Too much is waited for until the user drops some,
    /// or the run ends because only the user could.
    fn await_registered(&mut self) {
        let budget = &self.worker.shared.budget;
        match self.steal() {
            Some(piece) => self.compute(piece, false),
            None if budget.used() > budget.limit() => match budget.reserve(1) {
                Reserve::Reserved => budget.release(1),
                Reserve::Held => self.worker.shared.fail_held(),
                Reserve::Closed | Reserve::TooLarge => {}
            },
            None => std::thread::sleep(REGISTERED_PAUSE),
        }
        self.worker.meter.lap(CallKind::Memory, 0);
        self.admission.gave_back();
    }
}
