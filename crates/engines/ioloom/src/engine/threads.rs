//! The threads of a run, and when to start more of them.
//!
//! The threads of a pinned plan wait at a start gate, so that the run begins when the last of them
//! is ready. The default plan starts with one worker, which waits for no other, and with one per permit
//! as soon as paths wait (but at most one per file of a list), so that a run over two small files costs one
//! thread. They also start when files wait whose reads the first worker has begun, because its function
//! takes long.
//!
//! More threads start only when the running ones wait for reads (`control::Ramp`): workers of a
//! window of calls that block, and blocking threads once files turn up whose filesystem does not
//! support `RWF_NOWAIT`. With everything in the page cache that never happens. The calling thread
//! watches, and reports progress; over a few files, it is the first worker (`few_files`).

use super::blocking_crew::BlockingCrew;
use super::gate::Gate;
use super::pilot::Pilot;
use super::read_waits::ReadWaits;
use super::sharing::Sharing;
use super::traced::{Sampled, Traced};
use super::work::{ProgressNow, RunOptions, Work, Worker};
use super::{blocking, looped, ready, roles};
use crate::error::{Error, START_THREAD};
use crate::fetch;
use crate::shared::Shared;
use ioloom_budget::Part;
use ioloom_control::Ramp;
use ioloom_model::layout::{Driver, Role};
use ioloom_model::{Method, ReadAhead, Tuned};
use ioloom_observe::{LaterDelay, Meter, ThreadReport, Usage, UsageDelta};
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::{self, UsageOf};
use ioloom_sys::{address_space, descriptor_table};
use std::io::ErrorKind;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Scope, ScopedJoinHandle, Thread};
use std::time::Duration;

/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_millis(100);
/// Longest time between two checks of the watching thread, which bounds how late it notices a
/// cancel flag that a signal handler has set.
const WATCH: Duration = Duration::from_millis(40);
/// Age of a run at which the counters of the machine are read, which takes as long as reading a few
/// small files.
const COUNTED_FROM_NS: u64 = 2_000_000;
/// Time after which a run that begins with one worker gets more: longer than a few small files take.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const FIRST_PAUSE_MAX: Duration = Duration::from_millis(5);

/// Waiting paths from which the table of open files is enlarged ahead.
const PATHS_WORTH_ROOM: usize = 512;
/// Most files in flight for which the table of open files is enlarged.
const MANY_FILES: u32 = 4096;
/// Descriptors of the caller and of everything but the files of the run.
const PLACES_OF_OTHERS: u32 = 256;
/// Workers of `nowait` that start while threads wait now and then, and files per wait from which more
/// start. Most opens find their inode in a block that another open has read; only where they do not do
/// more threads pay for their switches.
const NOWAIT_FREELY: u32 = 16;
const NOWAIT_FILES_PER_WAIT: u64 = 1;

/// Address space for the stack of a thread, and for what the program allocates besides buffers.
const ADDRESSES_PER_THREAD: u64 = 16 << 20;
/// Most address space that is left to buffers when a thread starts that the run can do without.
const ADDRESSES_OF_BUFFERS: u64 = 64 << 20;
/// Least address space with which any thread starts.
const ADDRESSES_LEAST: u64 = 4 << 20;

/// Returns whether another thread would take address space that buffers, or threads that run, are going to
/// need. The program cannot go on if the system refuses memory for anything but those.
fn lacks_addresses(shared: &Shared<'_>) -> bool {
    let buffers = shared.plan.memory_bytes.saturating_sub(shared.budget.used());
    let needed = match shared.fewer_threads {
        true => ADDRESSES_PER_THREAD + buffers.min(ADDRESSES_OF_BUFFERS),
        false => ADDRESSES_LEAST,
    };
    address_space::left_bytes().is_some_and(|left| left < needed)
}

/// Returns how many workers of `nowait` start while threads wait now and then, if `at_once` start in any case.
fn nowait_freely(at_once: u32) -> u32 {
    NOWAIT_FREELY.max(at_once.saturating_mul(2))
}

/// Returns how many of `at_once` workers start on demand for a list of `files`. More would find no file.
fn first_of_short_list(at_once: usize, files: usize) -> usize {
    at_once.min(files.max(2))
}

fn name_of(role: Role, number: usize) -> String {
    format!("ioloom-{}-{number}", role.name())
}

/// The result of a thread; `None` after a panic.
pub(super) type ThreadResult<L> = Option<(ThreadReport, L, u64)>;

/// The handles of started threads.
pub(super) type Handles<'scope, L> = Vec<ScopedJoinHandle<'scope, ThreadResult<L>>>;

/// What every thread of a run needs.
pub(super) struct Threads<'e, W: Work> {
    pub(super) shared: &'e Shared<'e>,
    pub(super) roles: &'e [Role],
    pub(super) options: &'e RunOptions<'e>,
    pub(super) work: &'e W,
    pub(super) gate: &'e Gate,
    pub(super) queues: &'e roles::Queues<'e, W::State>,
    pub(super) ready: &'e ready::Ready<'e, W::State>,
    /// The thread that watches the others, once it is known.
    pub(super) watcher: &'e OnceLock<Thread>,
    pub(super) left: &'e Left<W::Local>,
    pub(super) traced: Option<&'e Traced>,
    /// The run-queue delay of the thread, if another one reads it.
    pub(super) delay: Option<&'e Arc<LaterDelay>>,
}

impl<W: Work> Clone for Threads<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Work> Copy for Threads<'_, W> {}

/// The results of all threads; times are on the monotonic clock.
pub(super) struct Finished<L> {
    pub(super) locals: Vec<L>,
    pub(super) reports: Vec<ThreadReport>,
    pub(super) start: u64,
    pub(super) ended: u64,
    pub(super) usage: UsageDelta,
    pub(super) sampled: Sampled,
    pub(super) tuned: Option<Tuned>,
}

impl<L> Finished<L> {
    /// Adds the result of a thread.
    pub(super) fn add(&mut self, result: ThreadResult<L>) {
        let Some((report, local, end)) = result else { return };
        self.ended = self.ended.max(end);
        self.reports.push(report);
        self.locals.push(local);
    }

    /// Waits for threads and adds their results.
    pub(super) fn join(&mut self, handles: Handles<'_, L>) {
        for handle in handles {
            self.add(handle.join().expect("panics are caught"));
        }
    }

    /// Sets the resources used since `before`.
    pub(super) fn used(&mut self, before: &Usage) {
        self.usage = Usage::used_since(before, self.ended.saturating_sub(self.start));
    }
}

/// What the watching thread of a run over a few files leaves to the calling thread, which does not join it.
pub(super) struct Left<L>(Mutex<Option<LeftBehind<L>>>);

struct LeftBehind<L> {
    results: Vec<ThreadResult<L>>,
    before: Usage,
    tuned: Option<Tuned>,
}

impl<L> Default for Left<L> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<L> Left<L> {
    pub(super) fn leave(&self, results: Vec<ThreadResult<L>>, before: Usage, tuned: Option<Tuned>) {
        let state = LeftBehind { results, before, tuned };
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(state);
    }

    /// Adds what the watcher has left, after its end, to the results of a run.
    pub(super) fn add_to(&self, all: &mut Finished<L>) {
        let state = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let Some(LeftBehind { results, before, tuned }) = state else { return };
        results.into_iter().for_each(|result| all.add(result));
        all.tuned = tuned;
        all.used(&before);
    }
}

/// The threads that run, and when to start more of them.
pub(super) struct Crew<'e> {
    shared: &'e Shared<'e>,
    /// Threads that start without waits: one per permit, or all.
    at_once: usize,
    /// Time until the next check while fewer of them run.
    pause: Duration,
    /// Numbers below this one have started, of workers or whatever roles the plan has.
    started: usize,
    workers: Ramp,
    /// Numbers of workers, or of whatever roles the plan has.
    workers_max: usize,
    blocking: Option<BlockingCrew<'e>>,
    waits: ReadWaits<'e>,
    pilot: Option<Pilot<'e>>,
    /// Absent if no worker can be superfluous.
    sharing: Option<Sharing>,
    /// Places that the table of open files may need, until they are asked for.
    places: Option<u32>,
}

impl<'e> Crew<'e> {
    pub(super) fn new<W: Work>(threads: Threads<'e, W>) -> Self {
        let shared = threads.shared;
        let layout = &shared.layout;
        let workers_max = (layout.threads_max() - layout.max_of(Role::Blocking)) as usize;
        let at_once = layout.threads_first();
        let starts = match shared.source.len() {
            Some(files) if shared.on_demand => first_of_short_list(at_once as usize, files),
            _ => at_once as usize,
        };
        let workers = match shared.plan.method {
            // A worker waits for the oldest of its window, and then for nothing for a long time.
            Method::Nowait => {
                let ramp = Ramp::new(starts as u32, workers_max as u32, 256);
                ramp.reluctant_from(nowait_freely(at_once), NOWAIT_FILES_PER_WAIT)
            }
            // A thread that waits less leaves its processor idle for less time than a thread costs.
            _ => Ramp::new(starts as u32, workers_max as u32, 8),
        };
        let pilot = Pilot::new(shared);
        Self {
            shared,
            at_once: starts,
            pause: FIRST_PAUSE,
            started: 0,
            workers,
            workers_max,
            blocking: BlockingCrew::new(shared, pilot.is_some()),
            waits: ReadWaits::new(shared),
            pilot,
            sharing: Sharing::of(shared, workers_max),
            places: match layout.window {
                ReadAhead::Files(files) => {
                    Some(files.min(MANY_FILES).saturating_add(PLACES_OF_OTHERS))
                }
                ReadAhead::All => Some(MANY_FILES),
            },
        }
    }

    /// Starts the threads that begin together.
    pub(super) fn begin(&mut self, start: &mut impl FnMut(Range<usize>)) {
        let first = if self.shared.on_demand { 1 } else { self.at_once };
        self.grow(first, start);
    }

    /// Notes that the calling thread is the first worker.
    pub(super) fn first_has_started(&mut self) {
        self.started = 1;
    }

    /// Ends the controller, if the plan has one, and returns what it did.
    pub(super) fn tuned(&mut self) -> Option<Tuned> {
        self.pilot.take().map(|pilot| pilot.finish(self.shared.polite.effect()))
    }

    fn grow(&mut self, to: usize, start: &mut impl FnMut(Range<usize>)) {
        let to = to.min(self.workers_max);
        start(self.started..to);
        self.started = self.started.max(to);
    }

    /// Starts the threads that are needed now.
    fn check(&mut self, start: &mut impl FnMut(Range<usize>)) {
        let shared = self.shared;
        self.waits.watcher += 1;
        if shared.stopping() {
            return;
        }
        if shared.source.waiting() >= PATHS_WORTH_ROOM
            && let Some(places) = self.places.take()
        {
            descriptor_table::make_room_ahead(places);
        }
        if self.started < self.at_once {
            // Until the first worker has taken a file, a second one would be no earlier.
            let begun = shared.source.len().is_none_or(|files| shared.source.waiting() < files);
            let waiting = begun && shared.source.waiting() > 0;
            let offered = shared.offered.load(Ordering::Relaxed) > 0;
            if (waiting || offered) && shared.source.bell().resting() == 0 {
                self.grow(self.at_once, start);
            }
            self.pause = (self.pause * 2).min(FIRST_PAUSE_MAX);
            return;
        }
        let Ok(usage) = proc::usage(UsageOf::Process) else { return };
        let (files, waits) = (shared.gauges.files(), self.waits.for_reads(&usage));
        if let Some(sharing) = &mut self.sharing {
            sharing.check(shared, files + shared.failed.load(Ordering::Relaxed));
        }
        if !self.workers.is_full() {
            let done = files + shared.failed.load(Ordering::Relaxed);
            let is_few = self.sharing.as_ref().is_some_and(Sharing::is_few);
            if is_few || shared.methods.is_ring() {
                // Workers with rings wait for them, and more workers would rest.
                self.workers.skip(done, waits);
            } else {
                let more = self.workers.decide(done, waits);
                self.grow(self.started + more as usize, start);
            }
        }
        if let Some(pilot) = &mut self.pilot {
            let helpers = pilot.check(&usage, waits, self.started as u32);
            shared.blocking.set_limit(helpers);
        }
        if let Some(blocking) = &mut self.blocking {
            blocking.check((files, waits), start);
        }
    }

    /// Returns the time until the next check.
    fn pause(&self) -> Duration {
        if self.started < self.at_once {
            return self.pause;
        }
        let mut pause = WATCH;
        if !self.workers.is_full() {
            pause = pause.min(Duration::from_nanos(self.workers.pause_ns()));
        }
        if let Some(pilot) = &self.pilot {
            pause = pause.min(Duration::from_nanos(pilot.pause_ns()));
        }
        let blocking = self.blocking.as_ref().and_then(BlockingCrew::pause);
        blocking.map_or(pause, |soon| soon.min(pause))
    }
}

impl<'e, W: Work> Threads<'e, W> {
    /// Starts the threads with these numbers.
    pub(super) fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, 'e>,
        numbers: Range<usize>,
        handles: &mut Handles<'scope, W::Local>,
    ) {
        for number in numbers {
            let shared = self.shared;
            if shared.no_more_threads.load(Ordering::Relaxed) {
                return;
            }
            // The first one does all the work if no other can start.
            let is_first = number == 0;
            if !is_first && lacks_addresses(shared) {
                if !shared.fewer_threads {
                    let source = ErrorKind::OutOfMemory.into();
                    return shared.fail(Error::System { operation: START_THREAD, source });
                }
                shared.no_more_threads.store(true, Ordering::Relaxed);
                return shared.wake_resting();
            }
            let role = self.roles[number];
            self.joins(role);
            let builder = std::thread::Builder::new().name(name_of(role, number));
            let spawned = builder.spawn_scoped(scope, move || self.caught(number));
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(_) if shared.fewer_threads && !is_first => {
                    return self.goes_without(role);
                }
                Err(source) => {
                    shared.live.fetch_sub(1, Ordering::AcqRel);
                    shared.fail(Error::System { operation: START_THREAD, source });
                    return;
                }
            }
        }
    }

    /// Counts a thread that is about to run.
    pub(super) fn joins(self, role: Role) {
        let shared = self.shared;
        shared.live.fetch_add(1, Ordering::AcqRel);
        if role == Role::Worker {
            shared.window.joins();
            self.ready.joins();
        }
        if role == Role::Blocking {
            shared.blocking.starts();
        }
    }

    /// Runs a thread on the calling one. Catches panics of the caller's other code: accumulators, path
    /// iterators.
    pub(super) fn caught(self, number: usize) -> ThreadResult<W::Local> {
        let (shared, role) = (self.shared, self.roles[number]);
        let out =
            catch_unwind(AssertUnwindSafe(|| self.thread(number, role, name_of(role, number))));
        let out = out.map_err(|payload| shared.panicked(payload)).ok();
        let is_last = shared.live.fetch_sub(1, Ordering::AcqRel) == 1;
        fence(Ordering::SeqCst);
        if is_last && let Some(watcher) = self.watcher.get() {
            watcher.unpark();
        }
        out
    }

    /// Takes back the counts of a thread that the system refused to start, in a run whose other threads
    /// do the work. No further thread is tried. Those that rest look again: they may be all there are.
    fn goes_without(self, role: Role) {
        let shared = self.shared;
        shared.no_more_threads.store(true, Ordering::Relaxed);
        if role == Role::Worker {
            shared.window.leaves();
            self.ready.leaves();
        }
        if role == Role::Blocking {
            shared.blocking.leaves();
        }
        shared.live.fetch_sub(1, Ordering::AcqRel);
        shared.wake_resting();
    }

    /// Runs one thread, from its setup to its report.
    fn thread(self, number: usize, role: Role, name: String) -> (ThreadReport, W::Local, u64) {
        let shared = self.shared;
        let window = shared.layout.window_of(number, shared.at_once);
        let fetch = match role {
            Role::Computer => None,
            _ => match fetch::make::<W::State>(shared, number, window) {
                Ok(fetch) => Some(fetch),
                Err(error) => {
                    shared.fail(error);
                    None
                }
            },
        };
        let recorder = self.traced.map(|traced| (traced.register(&name, role.name()), traced));
        if role.reads() {
            shared.polite.begin_thread();
        }
        let start_ns = self.gate.arrive();
        let detail = self.options.detail;
        let meter = match self.delay {
            Some(delay) => Meter::start_quickly(start_ns, detail, delay.clone()),
            None => Meter::start(start_ns, detail),
        };
        let mut worker = Worker::new(shared, number, self.work, meter);
        if let Some((recorder, traced)) = recorder {
            worker.trace(recorder, traced);
        }
        match (shared.layout.driver_of(role), fetch) {
            (Driver::Queued, fetch) => roles::run(&mut worker, role, fetch, self.queues),
            (_, None) => {}
            (Driver::Windowed, Some(fetch)) => {
                let part = Part::new(number as u32, self.cap(window));
                looped::run(&mut worker, fetch, part, self.ready);
            }
            (Driver::Sequential, Some(fetch)) => blocking::run(&mut worker, role, fetch),
        }
        worker.end(name, role, self.traced)
    }

    /// Returns the most files that a worker whose method was made for `window` may have in flight.
    fn cap(self, window: u32) -> u32 {
        let shared = self.shared;
        match (shared.plan.method, shared.source.len()) {
            // With a short list no worker starts more than its part, or later ones would have none.
            (Method::Nowait, Some(files)) => {
                let workers = nowait_freely(shared.layout.threads_first());
                u32::try_from(files.div_ceil(workers as usize)).unwrap_or(u32::MAX)
            }
            (Method::Nowait, None) => u32::MAX,
            _ => window,
        }
    }

    /// Starts threads as they are needed and reports progress, once more when the last thread has ended.
    pub(super) fn watch(
        self,
        crew: &mut Crew<'e>,
        before: &mut Usage,
        start: &mut impl FnMut(Range<usize>),
    ) {
        let shared = self.shared;
        let mut progress = self.options.progress;
        let start_ns = monotonic_ns();
        let mut reported_ns = start_ns;
        let mut over = false;
        while !over {
            over = shared.live.load(Ordering::Acquire) == 0;
            if !over {
                std::thread::park_timeout(crew.pause());
                crew.check(start);
            }
            if shared.cancel.is_cancelled() {
                shared.wake_all();
            }
            let now_ns = monotonic_ns();
            if now_ns - start_ns >= COUNTED_FROM_NS && !before.is_complete() {
                before.complete();
            }
            if let Some(report) = progress
                && (over || now_ns - reported_ns >= PROGRESS.as_nanos() as u64)
            {
                reported_ns = now_ns;
                let now = ProgressNow {
                    files: shared.gauges.files(),
                    failed: shared.failed.load(Ordering::Relaxed),
                    bytes: shared.gauges.bytes(),
                    total: shared.source.len().map(|n| n as u64),
                };
                let report = || report(now);
                if let Err(payload) = catch_unwind(AssertUnwindSafe(report)) {
                    // Ends the run as a panic of the function does; there are no more reports.
                    shared.panicked(payload);
                    progress = None;
                }
            }
        }
    }
}
