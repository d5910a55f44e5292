//! A run: lists, requests, hands over, processes.

use crate::descriptors::requests_max;
use crate::error::{Action, Kind, ObjectError};
use crate::fetch::{Fetch, Fetched};
use crate::gate::Gate;
use crate::hand_over::{Bytes, HandOver, Item, Ready};
use crate::lanes::{Lanes, Open};
use crate::listing::{Listed, unsupported, visit};
use crate::options::{Options, Progress};
use crate::pilot::{INTERVAL, Pilot};
use crate::retries::Retries;
use crate::store::Store;
use crate::work::{Piece, Work, WorkError};
use ioloom_control::Started;
use ioloom_model::Measured;
use ioloom_sys::proc::{self, UsageOf};
use object_store::path::Path;
use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

/// Largest range of one request.
const RANGE: u64 = 8 << 20;
/// Ranges that fit in the memory budget, at least.
const RANGES_LEAST: u64 = 8;
/// Memory that an object counts for with its first range, without its contents: many empty ones would else have no
/// limit.
const ITEM: u64 = 1 << 10;
/// Listed objects that wait for their request.
const LISTED_MAX: usize = 4096;
/// Interval of progress reports.
pub(crate) const REPORT: Duration = Duration::from_millis(100);
/// Time of a function call from which on a second thread is worth its wakeup.
const LONG: Duration = Duration::from_micros(50);
/// Most threads that send requests.
const LANES_MAX: u32 = 4;

/// Requests of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests sent for contents, with those that failed.
    pub sent: u64,
    /// Requests that the server refused because there were too many.
    pub refused: u64,
    /// Requests that were repeated.
    pub repeated: u64,
}

/// The result of a run.
#[derive(Debug)]
pub struct Run<L> {
    /// The state of each thread.
    pub locals: Vec<L>,
    /// Objects that failed, and listings that ended early.
    pub failed: u64,
    /// Whether the run was stopped.
    pub cancelled: bool,
    /// Requests.
    pub requests: Requests,
    /// The measurements.
    pub measured: Measured,
}

impl<L> Run<L> {
    /// Removes the states of threads.
    pub(crate) fn without_locals(self) -> Run<()> {
        let Self { failed, cancelled, requests, measured, .. } = self;
        Run { locals: Vec::new(), failed, cancelled, requests, measured }
    }
}

/// Runs `work` on every object of the store's location.
///
/// # Errors
///
/// Returns an error if the client cannot be started. Failures of objects and of the listing go to
/// [`Work::failed`].
///
/// # Panics
///
/// Resumes a panic of `work` after what is in flight has ended.
pub fn run<W: Work>(
    store: &Store,
    options: &Options<'_>,
    work: &W,
) -> Result<Run<W::Local>, ObjectError> {
    let waiting = Builder::new_current_thread().enable_time().build();
    let waiting = waiting.map_err(|error| store.no_client(&error))?;
    let (began, usage) = (Instant::now(), proc::usage(UsageOf::Process).unwrap_or_default());
    let most = requests_max(&store.location, lanes_max(options), options.window.unwrap_or(1))?;
    let mut pilot = Pilot::new(options, most);
    let gate = Arc::new(gate_of(options, &pilot));
    let (mut lanes, queue, retries) = start(store, options, work, &gate)?;
    let crew = Crew {
        work,
        queue,
        done: Arc::default(),
        broken: AtomicBool::new(false),
        stop: options.stop.clone(),
        stopped: AtomicBool::new(false),
        skipped: AtomicBool::new(false),
        states: Mutex::default(),
    };
    let (locals, cancelled) = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..options.threads.max(1) {
            match std::thread::Builder::new().spawn_scoped(scope, || crew.serve()) {
                Ok(thread) => threads.push(thread),
                // Fewer threads do the same.
                Err(_) if !threads.is_empty() => break,
                Err(error) => return Err(store.no_client(&error)),
            }
        }
        let driven = || waiting.block_on(drive(&crew, &mut lanes, options, &mut pilot));
        // Threads that wait for the queue would never end.
        let cancelled = catch_unwind(AssertUnwindSafe(driven));
        gate.stop();
        crew.queue.close();
        let locals: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        Ok((locals, cancelled))
    })?;
    drop(lanes);
    let cancelled = cancelled.unwrap_or_else(|payload| resume_unwind(payload))
        || crew.skipped.load(Ordering::Relaxed);
    let mut all = Vec::new();
    for local in locals {
        match local {
            Ok(local) => all.push(local),
            Err(payload) => resume_unwind(payload),
        }
    }
    let (counts, ..) = gate.look();
    let done = &crew.done;
    let failed = done.failed.load(Ordering::Relaxed);
    let after = proc::usage(UsageOf::Process).unwrap_or_default();
    let measured = Measured {
        elapsed_ns: began.elapsed().as_nanos() as u64,
        files: done.objects.load(Ordering::Relaxed),
        bytes: done.bytes.load(Ordering::Relaxed),
        errors: failed,
        cpu_user_ns: after.user_ns - usage.user_ns,
        cpu_kernel_ns: after.system_ns - usage.system_ns,
        budget_peak_bytes: counts.memory_max,
        in_flight_mean: pilot.in_flight_mean(),
        in_flight_max: counts.in_flight_max,
        bottleneck: Some(pilot.bottleneck(&gate)),
        tuned: pilot.tuned(&gate),
        ..Measured::default()
    };
    let requests =
        Requests { sent: counts.sent, refused: counts.refused, repeated: retries.taken() };
    Ok(Run { locals: all, failed, cancelled, requests, measured })
}

fn gate_of(options: &Options<'_>, pilot: &Pilot) -> Gate {
    Gate::new(options.budget(), pilot.limit(0, false)).stopping_after(options.outage)
}

/// Returns how many threads send requests, at most.
fn lanes_max(options: &Options<'_>) -> u32 {
    options.threads.clamp(1, LANES_MAX)
}

/// Opens the first lane of a run. Returns also the queue that it fills, and its retries.
fn start<W: Work>(
    store: &Store,
    options: &Options<'_>,
    work: &W,
    gate: &Arc<Gate>,
) -> Result<(Lanes, Arc<HandOver>, Arc<Retries>), ObjectError> {
    let retries = Arc::new(Retries::with_pause(options.retry_pause));
    let (store_of, gate) = (store.clone(), gate.clone());
    let fetch = Fetch { store: store_of, gate, retries: retries.clone() };
    let queue = Arc::new(HandOver::new(work.begun_max()));
    let bell = queue.clone();
    let lanes = Lanes::start(fetch, lanes_max(options), Arc::new(move || bell.bell()));
    Ok((lanes.map_err(|error| store.no_client(&error))?, queue, retries))
}

/// What has been processed.
#[derive(Debug, Default)]
struct Done {
    objects: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    found: AtomicU64,
    listed: AtomicBool,
}

/// The threads that run the function.
struct Crew<'w, W: Work> {
    work: &'w W,
    queue: Arc<HandOver>,
    done: Arc<Done>,
    /// Whether the function panicked.
    broken: AtomicBool,
    stop: Arc<AtomicBool>,
    /// Whether the flag was seen. A flag that is lowered again starts nothing.
    stopped: AtomicBool,
    /// Whether something that arrived was not processed because the run was stopped.
    skipped: AtomicBool,
    /// States of objects of several ranges.
    states: Mutex<HashMap<usize, W::State>>,
}

impl<W: Work> Crew<'_, W> {
    fn serve(&self) -> W::Local {
        let local = catch_unwind(AssertUnwindSafe(|| self.work.local()));
        let mut local = local.unwrap_or_else(|payload| self.break_off(payload));
        let mut long = true;
        while let Some(ready) = self.queue.next(long) {
            // After a panic nothing more is processed.
            if self.broken.load(Ordering::Relaxed) {
                continue;
            }
            if matches!(ready, Ready::Range(..)) && self.is_stopped() {
                self.skipped.store(true, Ordering::Relaxed);
                continue;
            }
            let began = Instant::now();
            let processed = catch_unwind(AssertUnwindSafe(|| self.process(&mut local, ready)));
            long = began.elapsed() > LONG;
            if let Err(payload) = processed {
                self.break_off(payload);
            }
        }
        local
    }

    /// Returns whether the run was stopped.
    fn is_stopped(&self) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.stopped.load(Ordering::Relaxed)
    }

    /// Goes on with a panic when the queue has ended: what is in it holds memory that requests wait for.
    fn break_off(&self, payload: Box<dyn Any + Send>) -> ! {
        self.broken.store(true, Ordering::Relaxed);
        while self.queue.next(false).is_some() {}
        resume_unwind(payload)
    }

    fn states(&self) -> std::sync::MutexGuard<'_, HashMap<usize, W::State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn process(&self, local: &mut W::Local, ready: Ready) {
        let failed = || self.done.failed.fetch_add(1, Ordering::Relaxed);
        match ready {
            Ready::Range(item, offset, bytes, is_last) => {
                let ended = self.range(
                    local,
                    &item,
                    Piece {
                        index: item.index,
                        offset,
                        bytes: &bytes.data,
                        is_last,
                        md5: bytes.md5.as_deref(),
                    },
                );
                self.done.bytes.fetch_add(bytes.data.len() as u64, Ordering::Relaxed);
                drop(bytes);
                let (gave_up, has_ended) = (ended.is_err(), !matches!(ended, Ok(false)));
                match ended {
                    Ok(ended) => {
                        self.done.objects.fetch_add(u64::from(ended), Ordering::Relaxed);
                    }
                    Err(error) => {
                        failed();
                        self.work.function_failed(local, item.index, &item.url, error);
                    }
                }
                self.queue.give_back(&item, gave_up);
                if has_ended {
                    self.queue.ended();
                }
            }
            Ready::Failed(item, error) => {
                failed();
                self.states().remove(&item.index);
                self.work.failed(local, Some(item.index), &error);
                if item.was_begun() {
                    self.queue.ended();
                }
            }
            Ready::Unlisted(error, _held) => {
                failed();
                self.work.failed(local, None, &error);
            }
        }
    }

    /// Processes a range. Returns whether the object has ended.
    fn range(
        &self,
        local: &mut W::Local,
        item: &Item,
        piece: Piece<'_>,
    ) -> Result<bool, WorkError> {
        let mut state = match piece.offset {
            0 => self.work.begin(item.index, &item.url),
            _ => self.states().remove(&item.index).ok_or("the state of the object is missing")?,
        };
        self.work.piece(&mut state, piece)?;
        if piece.is_last {
            self.work.finish(local, state, item.index, &item.url)?;
        } else {
            self.states().insert(item.index, state);
        }
        Ok(piece.is_last)
    }
}

/// Lists and requests until everything was handed over. Returns whether the run was stopped.
async fn drive<W: Work>(
    crew: &Crew<'_, W>,
    lanes: &mut Lanes,
    options: &Options<'_>,
    pilot: &mut Pilot,
) -> bool {
    let open = lanes.open();
    let (first, fetch) = open.next();
    let (sender, receiver) = mpsc::channel(LISTED_MAX);
    let (queue, done) = (crew.queue.clone(), crew.done.clone());
    let listing = first.spawn(list(
        (fetch.store.clone(), options.recursive),
        sender,
        queue.clone(),
        done.clone(),
    ));
    let range = RANGE.min(options.budget() / RANGES_LEAST).max(1);
    let copied_max = crew.work.copied_max().min(options.budget() / 4);
    let sizes = (range, copied_max);
    let mut requests = first.spawn(request(open, fetch.clone(), receiver, queue, sizes));
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported = Instant::now();
    let cancelled = loop {
        tokio::select! {
            ended = &mut requests => {
                if let Err(error) = ended && error.is_panic() {
                    resume_unwind(error.into_panic());
                }
                break crew.is_stopped();
            }
            _ = interval.tick() => {}
        }
        pilot.tick(&fetch.gate, done.objects.load(Ordering::Relaxed));
        lanes.tick(fetch.gate.now_ns());
        crew.queue.ring_if_any();
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            (options.progress)(&progress(&done));
        }
        if crew.is_stopped() || crew.broken.load(Ordering::Relaxed) {
            // Requests in flight end with their task.
            requests.abort();
            fetch.gate.stop();
            break crew.is_stopped();
        }
    };
    // A listing that panicked closed its channel like one that ended.
    listing.abort();
    pass_on(listing.await);
    if fetch.gate.has_given_up() {
        let error = given_up(&fetch.store, Action::Read, options.outage);
        crew.queue.push(Ready::Unlisted(error, None));
    }
    cancelled
}

/// Returns the error of a run that ended because the server refused every request for so long.
pub(crate) fn given_up(store: &Store, action: Action, outage: Duration) -> ObjectError {
    let text = format!(
        "the server refused every request for {} s, and the other objects were not tried",
        outage.as_secs()
    );
    ObjectError::new(action, store.location.url(), Kind::Busy, text)
}

fn progress(done: &Done) -> Progress {
    Progress {
        objects: done.objects.load(Ordering::Relaxed),
        bytes: done.bytes.load(Ordering::Relaxed),
        found: done.found.load(Ordering::Relaxed),
        complete: done.listed.load(Ordering::Relaxed),
    }
}

async fn list(
    (store, recursive): (Store, bool),
    sender: mpsc::Sender<Result<Listed, ObjectError>>,
    queue: Arc<HandOver>,
    done: Arc<Done>,
) {
    let send = |listed: Result<Listed, ObjectError>| {
        done.found.fetch_add(1, Ordering::Relaxed);
        let sender = sender.clone();
        async move { sender.send(listed).await.is_ok() }
    };
    match visit(&store, recursive, send).await {
        Ok(()) => done.listed.store(true, Ordering::Relaxed),
        Err(error) => queue.push(Ready::Unlisted(error, None)),
    }
}

/// The place of a request, also of one that panics.
struct InFlight<'f>(&'f Fetch);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}

/// Starts requests for what is listed, and waits for the last one.
async fn request(
    open: Arc<Open>,
    fetch: Arc<Fetch>,
    mut listed: mpsc::Receiver<Result<Listed, ObjectError>>,
    queue: Arc<HandOver>,
    (range, copied_max): (u64, u64),
) {
    let mut flight = JoinSet::new();
    let mut index = 0;
    'listed: loop {
        let next = match listed.try_recv() {
            Ok(next) => Some(next),
            Err(_) => {
                fetch.gate.wait_for_list(true);
                listed.recv().await
            }
        };
        // Also after the end of the list: from then on requests wait for the server.
        fetch.gate.wait_for_list(false);
        let Some(next) = next else { break };
        let (path, Listed { key, size, e_tag, .. }) = match parsed(&fetch.store, next) {
            Ok(parsed) => parsed,
            Err(error) => {
                let Some(()) = fetch.gate.hold(ITEM).await else { break };
                let held = Bytes::new(ITEM, fetch.gate.clone());
                queue.push(Ready::Unlisted(error, Some(held)));
                continue;
            }
        };
        let url = fetch.store.location.url_of(&key);
        let mut item = Item::new(index, url, path, (size, e_tag));
        if size > range && size <= copied_max {
            if fetch.gate.hold(size).await.is_none() {
                break;
            }
            item = item.holding(Bytes::new(size, fetch.gate.clone()));
        }
        let item = Arc::new(item);
        index += 1;
        let mut offset = 0;
        loop {
            let end = size.min(offset + range);
            let charged = end - offset + if offset == 0 { ITEM } else { 0 };
            let Some(started) = fetch.gate.enter(charged).await else { break 'listed };
            let bytes = Bytes::new(charged, fetch.gate.clone());
            let (queue, owner) = (queue.clone(), item.clone());
            let (lane, fetch) = open.next();
            let one = async move {
                let in_flight = InFlight(&fetch);
                if !owner.is_over() {
                    fetch_one(&fetch, &queue, &owner, offset..end, (bytes, started)).await;
                }
                drop(in_flight);
            };
            flight.spawn_on(one, &lane);
            while let Some(ended) = flight.try_join_next() {
                pass_on(ended);
            }
            offset = end;
            if offset >= size || item.is_over() {
                break;
            }
        }
    }
    while let Some(ended) = flight.join_next().await {
        pass_on(ended);
    }
}

/// Returns a listed object with its parsed key, or why it cannot be read.
fn parsed(
    store: &Store,
    listed: Result<Listed, ObjectError>,
) -> Result<(Path, Listed), ObjectError> {
    let listed = listed?;
    match Path::parse(&listed.key) {
        Ok(path) => Ok((path, listed)),
        Err(_) => Err(unsupported(&store.location, &listed.key)),
    }
}

/// Passes on a panic of a task, whose object would else be lost without a word.
fn pass_on(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        resume_unwind(error.into_panic());
    }
}

async fn fetch_one(
    fetch: &Fetch,
    queue: &HandOver,
    item: &Arc<Item>,
    range: std::ops::Range<u64>,
    (bytes, started): (Bytes, Started),
) {
    let offset = range.start;
    match fetch.range(item, range, bytes, started).await {
        Fetched::Bytes(bytes, whole) => queue.arrived(item, offset, bytes, whole),
        Fetched::Failed(error) => queue.failed(item, error),
        Fetched::Stopped => {}
    }
}
