//! Readers, hybrids and computers around one queue.
//!
//! A reader owns a fetch, which only it reaps, and queues loaded files for threads that compute.
//! `ahead` bounds how far reads run ahead: a permit taken before a file is opened and returned when
//! it was computed. A window of all files has no such bound, only the limits of memory and open
//! files. Reaching one of them ends the run as refused, because waiting would be a different plan
//! from the published one that this form reproduces.
//!
//! A hybrid does both; `order=` says which comes first. Its reads complete in its own fetch. Loaded
//! files pass through the common queue, so that computers share them.
//!
//! ```text
//! reader    permit → open → read … reap → queue ─┐
//! hybrid    permit → open → read … reap → queue ─┼→ pop → function → permit back
//! computer                                       ┘
//! ```
//!
//! A reader may wait for memory, but not while it holds the open limit. A hybrid never waits for
//! memory, because the files that hold it may be in the queue with no other thread to compute them.
//! It naps instead, and so does a reader without room. The next event ends a nap. A thread reads
//! the count of events before it looks for work, so it misses none.
//!
//! A thread that reads leaves the count of readers when the list has ended and it has nothing in
//! flight. A computer ends when that count is zero and the queue is empty.

use super::work::{Work, Worker};
use crate::claim::Claim;
use crate::error::Error;
use crate::fetch::{Cx, Fetch, Reaped, Started, full_of_window, no_buffer};
use crate::keep::GRACE;
use crate::loaded::Loaded;
use crate::shared::Shared;
use crate::source::{Item, Next, Source};
use ioloom_budget::Permits;
use ioloom_model::layout::Role;
use ioloom_model::{CallKind, HybridOrder, ReadAhead, Schedule};
use ioloom_observe::Gauges;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longest nap, which bounds how late a thread notices a stop.
const NAP: Duration = Duration::from_millis(50);

/// What the threads of this schedule share.
pub(super) struct Queues<'p, S> {
    source: &'p Source<'p>,
    state: Mutex<State<'p, S>>,
    /// A file was loaded, or the last reader ended. Computers wait on it.
    loaded: Condvar,
    /// Number of events. Threads nap on the bell of the source until it changes or a path arrives.
    events: AtomicU64,
    /// Files that may still be started; `None` without a bound.
    ahead: Option<Permits>,
    order: HybridOrder,
    gauges: Arc<Gauges>,
}

struct State<'p, S> {
    loaded: VecDeque<Loaded<'p, S>>,
    readers: u32,
}

impl<'p, S> Queues<'p, S> {
    pub(super) fn new(shared: &'p Shared<'p>) -> Self {
        let (readers, ahead, order) = match shared.plan.schedule {
            Schedule::Roles { readers, hybrids, window, order, .. } => {
                let ahead = match window {
                    ReadAhead::Files(n) => Some(Permits::new(n)),
                    ReadAhead::All => None,
                };
                (readers + hybrids, ahead, order)
            }
            _ => (0, None, HybridOrder::ReadFirst),
        };
        let state = State { loaded: VecDeque::new(), readers };
        Self {
            source: shared.source,
            state: Mutex::new(state),
            loaded: Condvar::new(),
            events: AtomicU64::new(0),
            ahead,
            order,
            gauges: shared.gauges.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<'p, S>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, loaded: Loaded<'p, S>) {
        let mut state = self.lock();
        state.loaded.push_back(loaded);
        self.gauges.set_ready_of_all(state.loaded.len());
        self.loaded.notify_one();
        drop(state);
        self.happened();
    }

    /// Counts an event, which ends all naps.
    fn happened(&self) {
        self.events.fetch_add(1, Ordering::SeqCst);
        self.source.bell().ring_all();
    }

    /// Returns the number of events: read before looking for work, then passed to [`Queues::nap`].
    fn events(&self) -> u64 {
        self.events.load(Ordering::SeqCst)
    }

    /// Sleeps until there is an event that `seen` does not count, or a path if `input`. Returns
    /// false on timeout.
    fn nap(&self, seen: u64, input: bool) -> bool {
        let path = || input && self.source.is_settled_surely();
        self.source.bell().nap(|| self.events() != seen || path())
    }

    fn try_pop(&self) -> Option<Loaded<'p, S>> {
        self.take(&mut self.lock())
    }

    fn take(&self, state: &mut State<'p, S>) -> Option<Loaded<'p, S>> {
        let loaded = state.loaded.pop_front()?;
        self.gauges.set_ready_of_all(state.loaded.len());
        Some(loaded)
    }

    /// Waits for the next loaded file. Returns `None` if there will be none, or if the run is
    /// stopping.
    fn pop(&self, shared: &Shared<'_>) -> Option<Loaded<'p, S>> {
        let mut state = self.lock();
        loop {
            if shared.stopping() {
                return None;
            }
            if let Some(loaded) = self.take(&mut state) {
                return Some(loaded);
            }
            if state.readers == 0 {
                return None;
            }
            let slept = self.loaded.wait_timeout(state, NAP);
            state = slept.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    fn reader_ends(&self) {
        let mut state = self.lock();
        assert!(state.readers > 0, "a reader ends once: computers end when the count is zero");
        state.readers -= 1;
        self.loaded.notify_all();
        drop(state);
        self.happened();
    }

    fn give_ahead(&self) {
        if let Some(ahead) = &self.ahead {
            drop(ahead.adopt());
        }
        self.happened();
    }
}

pub(super) fn run<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    role: Role,
    fetch: Option<Box<dyn Fetch<'e, W::State> + 'e>>,
    queues: &Queues<'e, W::State>,
) {
    assert!(fetch.is_none() || role.reads(), "a computer reads nothing, so it needs no fetch");
    worker.meter.skip();
    if let Some(fetch) = fetch {
        let mut reading = Reading {
            fetch,
            reaped: Reaped::new(),
            pending: None,
            claim: Claim::default(),
            ended: false,
            input_empty: false,
            may_wait: role != Role::Hybrid,
            held: None,
            window: worker.shared.at_once as usize,
        };
        match role {
            Role::Hybrid => hybrid(worker, &mut reading, queues),
            _ => reader(worker, &mut reading, queues),
        }
        worker.in_flight(0);
    }
    if role != Role::Computer {
        queues.reader_ends();
    }
    if role != Role::Reader {
        while let Some(loaded) = queues.pop(worker.shared) {
            worker.meter.lap(CallKind::HandOver, loaded.item.index);
            compute(worker, queues, loaded);
        }
    }
}

/// Memory that the user retains while this thread waits for some.
struct Held {
    /// Bytes retained at the last look.
    retained: u64,
    /// Events before the last nap.
    events: u64,
    /// When the grace period began.
    since: Instant,
}

/// The reading half of a thread.
struct Reading<'e, S> {
    fetch: Box<dyn Fetch<'e, S> + 'e>,
    reaped: Reaped<'e, S>,
    /// A file that has its permit and waits for memory.
    pending: Option<Item<'e, S>>,
    claim: Claim,
    ended: bool,
    /// Whether no path was available at the last attempt.
    input_empty: bool,
    may_wait: bool,
    held: Option<Held>,
    window: usize,
}

impl<'e, S: Send> Reading<'e, S> {
    /// Starts one file if the window and memory have room. Returns false if there is no room, or if
    /// the list has ended.
    fn start<W: Work<State = S>>(
        &mut self,
        worker: &mut Worker<'e, W>,
        queues: &Queues<'e, S>,
    ) -> bool {
        let shared = worker.shared;
        if self.ended || shared.stopping() || self.fetch.in_flight() >= self.window {
            return false;
        }
        if self.pending.is_none() && !self.take_next(worker, queues) {
            return false;
        }
        if self.pending.is_none() {
            // The entry could not be listed.
            return true;
        }
        let lease = match shared.first_bytes {
            0 => None,
            bytes => match self.fetch.arena(shared).try_lease(bytes) {
                Ok(Some(lease)) => Some(lease),
                Ok(None) if shared.unbounded() => {
                    let files = self.pending.as_ref().map_or(0, |item| item.index);
                    shared.fail(Error::Refused(full_of_window(shared, files)));
                    return false;
                }
                // Files that are ready or large hold the memory; they go first.
                Ok(None) => return false,
                Err(none) => {
                    if let Some(item) = self.pending.take() {
                        worker.failed(no_buffer(shared, &item, bytes, none));
                        queues.give_ahead();
                    }
                    return true;
                }
            },
        };
        let Some(mut item) = self.pending.take() else { return false };
        worker.meter.skip();
        item.began = worker.meter.file_begins();
        let limit = shared.open_limit.as_ref().map(|limit| {
            let permit = limit.take();
            worker.meter.lap(CallKind::HandOver, item.index);
            permit
        });
        // A file that needs more memory is parked, because this thread holds the open limit.
        let idle = self.idle();
        let meter = &mut worker.meter;
        let mut cx = Cx { shared, meter, may_wait: false, idle, kept: None };
        let started = self.fetch.start(&mut cx, item, lease);
        drop(limit);
        match started {
            Started::Ready(loaded) => queues.push(loaded),
            Started::Pending => {}
            Started::Failed(error) => {
                worker.failed(error);
                queues.give_ahead();
            }
            // Files in flight hold the descriptors; this one keeps its permit.
            Started::Later(item) => {
                self.pending = Some(item);
                return false;
            }
        }
        worker.in_flight(self.fetch.in_flight());
        true
    }

    /// Takes the next path and a permit. Returns false if either is unavailable now.
    fn take_next<W: Work<State = S>>(
        &mut self,
        worker: &mut Worker<'e, W>,
        queues: &Queues<'e, S>,
    ) -> bool {
        let shared = worker.shared;
        self.input_empty = false;
        let place = match &queues.ahead {
            None => None,
            Some(ahead) => match ahead.try_take() {
                None => return false,
                place => place,
            },
        };
        match shared.source.next(&mut self.claim, shared.take()) {
            Next::Item(item) => self.pending = Some(item),
            Next::Failed(error) => {
                worker.failed(error);
                return true;
            }
            Next::Empty => {
                self.input_empty = true;
                return false;
            }
            Next::Ended => {
                shared.list_ended();
                self.ended = true;
                return false;
            }
        }
        if let Some(place) = place {
            // It travels with the file and is returned when the file was computed or failed.
            place.forget();
        }
        true
    }

    /// Queues what has completed. Returns true if anything has.
    fn reap<W: Work<State = S>>(
        &mut self,
        worker: &mut Worker<'e, W>,
        queues: &Queues<'e, S>,
        wait: bool,
    ) -> bool {
        let may_wait = wait && self.may_wait;
        let (shared, meter) = (worker.shared, &mut worker.meter);
        let mut cx = Cx { shared, meter, may_wait, idle: false, kept: None };
        if let Err(error) = self.fetch.reap(&mut cx, wait, &mut self.reaped) {
            shared.fail(error);
        }
        let came = !self.reaped.is_empty();
        while let Some(result) = self.reaped.pop_front() {
            match result {
                Ok(loaded) => queues.push(loaded),
                Err(error) => {
                    worker.failed(error);
                    queues.give_ahead();
                }
            }
        }
        worker.in_flight(self.fetch.in_flight());
        came
    }

    /// Sleeps until something happens elsewhere: the window is full of files that other threads
    /// compute, or memory is short.
    fn nap<W: Work<State = S>>(
        &mut self,
        worker: &mut Worker<'e, W>,
        queues: &Queues<'e, S>,
        seen: u64,
    ) {
        let budget = &worker.shared.budget;
        let memory_short = self.pending.is_some() || !self.idle();
        let holding = self.fetch.holding();
        budget.begin_idle(holding);
        let waits_for = if self.input_empty { CallKind::Input } else { CallKind::HandOver };
        let happened = queues.nap(seen, self.input_empty);
        let held = !happened && memory_short && budget.is_held();
        budget.end_idle(holding);
        if self.is_held_too_long(held, budget.retained(), seen) {
            worker.shared.fail_held();
        }
        worker.meter.lap(waits_for, 0);
    }

    /// Reports whether the user has released nothing for the grace period, during which nothing else
    /// happened. A nap ends early when a path arrives, so naps are not counted.
    fn is_held_too_long(&mut self, held: bool, retained: u64, events: u64) -> bool {
        let since = match &self.held {
            Some(last) if last.events == events && last.retained <= retained => last.since,
            _ => Instant::now(),
        };
        self.held = held.then_some(Held { retained, events, since });
        held && since.elapsed() >= GRACE
    }

    fn idle(&self) -> bool {
        self.fetch.in_flight() == 0
    }
}

/// Reads as far ahead as the window allows and queues loaded files.
fn reader<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    reading: &mut Reading<'e, W::State>,
    queues: &Queues<'e, W::State>,
) {
    while !worker.shared.stopping() {
        let seen = queues.events();
        if reading.start(worker, queues) {
            reading.reap(worker, queues, false);
        } else if !reading.idle() {
            reading.reap(worker, queues, true);
        } else if reading.ended {
            assert!(reading.pending.is_none(), "every file that was taken is started");
            return;
        } else {
            reading.nap(worker, queues, seen);
        }
    }
}

/// Reads and computes in the order of the plan.
fn hybrid<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    reading: &mut Reading<'e, W::State>,
    queues: &Queues<'e, W::State>,
) {
    while !worker.shared.stopping() {
        let seen = queues.events();
        let started = match queues.order {
            HybridOrder::ReadFirst | HybridOrder::Alternate => reading.start(worker, queues),
            HybridOrder::ComputeFirst => false,
        };
        let came = reading.reap(worker, queues, false);
        if started && queues.order == HybridOrder::ReadFirst {
            continue;
        }
        if let Some(loaded) = queues.try_pop() {
            worker.meter.lap(CallKind::HandOver, loaded.item.index);
            compute(worker, queues, loaded);
            continue;
        }
        if started || (queues.order == HybridOrder::ComputeFirst && reading.start(worker, queues)) {
            continue;
        }
        if reading.idle() && reading.ended {
            assert!(reading.pending.is_none(), "every file that was taken is started");
            return;
        }
        if !came && !reading.reap(worker, queues, true) {
            reading.nap(worker, queues, seen);
        }
    }
}

fn compute<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    queues: &Queues<'e, W::State>,
    mut loaded: Loaded<'e, W::State>,
) {
    worker.compute(&mut loaded);
    loaded.release(&mut worker.meter);
    queues.give_ahead();
}
