//! The engine: every method under every schedule, below the public interface.
//!
//! A method is a [`Fetch`](crate::fetch::Fetch): it starts reads and brings loaded files. A
//! schedule is a loop that drives one: [`blocking`] (threads, and a window of blocking calls),
//! [`looped`] (loop workers with a window) and [`roles`]. Six methods and three schedules give the
//! whole table of `model::table` without a special case for a pair.
//!
//! What all threads share stands in [`Shared`]; what one thread owns in [`Worker`]. Order of waits,
//! which keeps the whole free of deadlock: a thread that waits for memory holds neither a permit
//! nor the open limit, and the holder of a permit waits for nothing of ours.

mod blocking;
mod looped;
mod measure;
mod roles;
mod work;

pub use work::{Executed, Options, Piece, Work};

use crate::arena::Arena;
use crate::cancel::Cancel;
use crate::error::Error;
use crate::fetch::{self, Data, Loaded};
use crate::source::{Source, Take};
use ioloom_ledger::{Budget, Permits};
use ioloom_model::{CallKind, Method, Plan, ReadAhead, Schedule, table};
use ioloom_observe::{Gauges, Meter, Sampler, ThreadReport, Usage, UsageDelta};
use ioloom_sys::clock::monotonic_ns;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
pub(crate) use work::Worker;

/// The first read of a file whose size is not known asks for this much, bytes.
const FIRST_READ: u64 = 64 << 10;
const FIRST_READ_MIN: u64 = 4 << 10;
/// Requests that one io_uring takes.
const RING_MAX: u64 = 32_768;

/// What all threads of a run share.
pub(crate) struct Shared<'e> {
    pub(crate) plan: Plan,
    pub(crate) source: &'e Source<'e>,
    pub(crate) arena: Arc<Arena>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) permits: Option<Permits>,
    pub(crate) open_limit: Option<Permits>,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) cancel: Cancel,
    pub(crate) stop: AtomicBool,
    /// Threads that take paths.
    takers: usize,
    /// Files that may hold a buffer at once.
    pub(crate) at_once: u64,
    /// Bytes of the first buffer of a file.
    pub(crate) first_bytes: u64,
    /// Largest file in whole-file form, bytes.
    pub(crate) whole_max: u64,
    pub(crate) files: AtomicU64,
    pub(crate) bytes: AtomicU64,
    live: AtomicUsize,
    fatal: Mutex<Option<Error>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Shared<'_> {
    /// Whether threads should take no new file.
    #[inline]
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }

    /// How threads take paths from the list.
    pub(crate) fn take(&self) -> Take {
        Take { stripe: self.plan.stripe as usize, threads: self.takers }
    }

    /// Whether reads may run ahead of compute without a bound of their own.
    pub(crate) fn unbounded(&self) -> bool {
        matches!(self.plan.schedule, Schedule::Roles { window: ReadAhead::All, .. })
    }

    /// Ends the run because of an error; the first one counts.
    pub(crate) fn fail(&self, error: Error) {
        let mut fatal = self.fatal.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        fatal.get_or_insert(error);
        drop(fatal);
        self.end();
    }

    /// Ends the run because the function panicked; the first payload is resumed at the end.
    pub(crate) fn panicked(&self, payload: Box<dyn Any + Send>) {
        let mut panic = self.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        panic.get_or_insert(payload);
        drop(panic);
        self.end();
    }

    /// Ends the run because the bytes that the user keeps leave no room.
    pub(crate) fn fail_held(&self) {
        let (kept, budget) = (self.budget.kept(), self.budget.limit());
        self.fail(Error::BudgetHeld { kept, budget });
    }

    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.budget.close();
    }
}

/// The threads of a plan and their roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Worker,
    Reader,
    Hybrid,
    Computer,
}

impl Role {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Reader => "reader",
            Self::Hybrid => "hybrid",
            Self::Computer => "computer",
        }
    }
}

fn team(plan: &Plan) -> Vec<Role> {
    let many = |role, n: u32| std::iter::repeat_n(role, n as usize);
    match plan.schedule {
        Schedule::Threads { n } => many(Role::Worker, n).collect(),
        Schedule::Window { window, permits } => {
            let threads = match plan.method {
                Method::Read | Method::DirectRead => window,
                // A worker without room in the window would have nothing to do.
                _ => permits.unwrap_or(1).min(window),
            };
            many(Role::Worker, threads).collect()
        }
        Schedule::Roles { readers, hybrids, computers, .. } => many(Role::Reader, readers)
            .chain(many(Role::Hybrid, hybrids))
            .chain(many(Role::Computer, computers))
            .collect(),
    }
}

/// Files that may hold a buffer at once under a plan.
fn files_at_once(plan: &Plan, source: &Source<'_>) -> u64 {
    match plan.schedule {
        Schedule::Threads { n } => u64::from(n),
        Schedule::Window { window, .. } => u64::from(window),
        Schedule::Roles { window: ReadAhead::Files(n), hybrids, computers, .. } => {
            u64::from(n) + u64::from(hybrids + computers)
        }
        Schedule::Roles { window: ReadAhead::All, .. } => source.len().unwrap_or(1) as u64,
    }
}

/// Refuses what this run cannot hold, before anything is opened; else the bytes of a first buffer.
fn first_bytes(plan: &Plan, at_once: u64) -> Result<u64, Error> {
    if plan.method == Method::Null || plan.method.is_mmap() {
        return Ok(0);
    }
    if let Some(chunk) = plan.chunk_bytes {
        return Ok(chunk);
    }
    // Half of the budget for first buffers, the other half for files that turn out to be large.
    let room = plan.memory_bytes / 2 / at_once.max(1);
    let first = FIRST_READ.min(room / FIRST_READ_MIN * FIRST_READ_MIN);
    if first < FIRST_READ_MIN {
        return Err(Error::Refused(format!(
            "{plan}: {at_once} files at once need a memory budget of at least {}; give memory=",
            ioloom_model::units::format_size(at_once * FIRST_READ_MIN * 2)
        )));
    }
    Ok(first)
}

fn refuse_too_many_files(plan: &Plan, at_once: u64, threads: usize) -> Result<(), Error> {
    let ring = match plan.schedule {
        Schedule::Roles { window: ReadAhead::All, .. } => at_once,
        _ => u64::from(window_of(plan, 0, at_once)),
    };
    if plan.method.needs_ring() && ring > RING_MAX {
        return Err(Error::Refused(format!(
            "{plan}: {ring} requests in flight, a ring takes at most {RING_MAX}; use a smaller \
             window"
        )));
    }
    let limit = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
    // A thread has its own account in /proc open, and its ring.
    let per_thread = 1 + u64::from(plan.method.needs_ring());
    let wanted = at_once + threads as u64 * per_thread;
    // Standard streams, rings, /proc files and what the caller has open.
    const OWN: u64 = 64;
    if matches!(plan.method, Method::Null) || wanted + OWN <= limit {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{plan}: {wanted} files open at once and {OWN} of our own, the limit is {limit}; raise it (ulimit -n) or use a \
         smaller window"
    )))
}

/// Runs a plan over a packed list of paths: the laboratory's way in.
pub fn run<W: Work>(
    list: ioloom_walk::PathList,
    files_max: Option<u64>,
    plan: Plan,
    options: &Options<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    execute(&Source::list(list, plan.read_order, files_max), plan, options, work)
}

/// Runs a plan over paths as they come.
pub fn run_stream<W: Work>(
    paths: impl Iterator<Item = std::path::PathBuf> + Send,
    plan: Plan,
    options: &Options<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    execute(&Source::stream(paths, plan.read_order), plan, options, work)
}

/// Runs a plan over all paths of `source`.
pub(crate) fn execute<W: Work>(
    source: &Source<'_>,
    plan: Plan,
    options: &Options<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    table::check(&plan).map_err(Error::Refused)?;
    if plan.method.is_mmap() && !options.mmap {
        return Err(Error::Refused(format!(
            "{plan}: a mapping of a file that is cut while it is read ends the process, so the \
             library does not map; use another method, or the laboratory"
        )));
    }
    if let (Schedule::Roles { window: ReadAhead::All, .. }, None) = (plan.schedule, source.len()) {
        return Err(Error::Refused(format!(
            "{plan}: a window of all files needs their number, and a stream of paths does not tell \
             it; give a list, or a number for w="
        )));
    }
    let at_once = files_at_once(&plan, source);
    let team = team(&plan);
    refuse_too_many_files(&plan, at_once, team.len())?;
    let first_bytes = first_bytes(&plan, at_once)?;
    let budget = Arc::new(Budget::new(plan.memory_bytes));
    let whole_max = whole_max(&plan, &team, at_once, first_bytes);
    let shared = Shared {
        plan,
        source,
        arena: Arena::new(budget.clone(), plan.buffers, at_once.min(1 << 20) as usize, whole_max),
        permits: permits(&plan),
        open_limit: match plan.schedule {
            Schedule::Roles { open_limit, .. } => open_limit.map(Permits::new),
            _ => None,
        },
        gauges: Arc::new(Gauges::new(team.len())),
        cancel: options.cancel.clone(),
        stop: AtomicBool::new(false),
        takers: team.iter().filter(|role| **role != Role::Computer).count(),
        at_once,
        first_bytes,
        whole_max,
        files: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        live: AtomicUsize::new(team.len()),
        fatal: Mutex::new(None),
        panic: Mutex::new(None),
        budget,
    };
    run_team(&shared, &team, options, work)
}

/// The largest buffer that always finds its place: what first buffers can never take. In chunk form
/// nobody has two buffers, so it is all.
fn whole_max(plan: &Plan, team: &[Role], at_once: u64, first_bytes: u64) -> u64 {
    let first = match (plan.method, plan.chunk_bytes) {
        (_, Some(_)) => 0,
        (Method::UringRegistered, None) => {
            let reading = team.iter().enumerate().filter(|(_, role)| **role != Role::Computer);
            let buffers: u64 =
                reading.map(|(number, _)| u64::from(window_of(plan, number, at_once))).sum();
            buffers * fetch::REGISTERED_BYTES as u64
        }
        _ => at_once * crate::arena::rounded(first_bytes),
    };
    plan.memory_bytes.saturating_sub(first) / FIRST_READ_MIN * FIRST_READ_MIN
}

fn permits(plan: &Plan) -> Option<Permits> {
    match (plan.schedule, plan.method) {
        (Schedule::Window { permits, .. }, Method::Read | Method::DirectRead) => {
            Some(Permits::new(permits.unwrap_or(1)))
        }
        _ => None,
    }
}

fn run_team<W: Work>(
    shared: &Shared<'_>,
    team: &[Role],
    options: &Options<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    let gate = Gate::default();
    let queues = roles::Queues::new(shared);
    let ready = looped::Ready::new(team.len());
    let main = std::thread::current();
    let (mut reports, mut locals) = (Vec::new(), Vec::new());
    let (mut start, mut ended, mut in_flight) = (0, 0, Vec::new());
    let mut usage = UsageDelta::default();
    std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(team.len());
        for (number, role) in team.iter().copied().enumerate() {
            let name = format!("ioloom-{}-{number}", role.word());
            let place = Place { number, role, gate: &gate, queues: &queues, ready: &ready };
            let (main, builder) = (&main, std::thread::Builder::new().name(name.clone()));
            let spawned = builder.spawn_scoped(scope, move || {
                // Panics of what the user gave beside the function: accumulators, path iterators.
                let out =
                    catch_unwind(AssertUnwindSafe(|| thread(shared, &place, name, options, work)));
                let out = out.map_err(|payload| shared.panicked(payload)).ok();
                if shared.live.fetch_sub(1, Ordering::AcqRel) == 1 {
                    main.unpark();
                }
                out
            });
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    shared.live.fetch_sub(1, Ordering::AcqRel);
                    shared.fail(Error::System { operation: "start a thread", source });
                }
            }
        }
        gate.wait_until_ready(handles.len());
        let before = Usage::now(options.block_device);
        start = monotonic_ns();
        let sampler = options.sample.then(|| Sampler::start(shared.gauges.clone(), start));
        gate.open(start);
        watch(shared, options);
        for handle in handles {
            let out = handle.join().expect("panics are caught");
            let Some((report, local, end)) = out else { continue };
            ended = ended.max(end);
            reports.push(report);
            locals.push(local);
        }
        usage = Usage::now(options.block_device).since(&before);
        in_flight = sampler.and_then(Result::ok).map(Sampler::stop).unwrap_or_default();
    });
    let elapsed_ns = ended.saturating_sub(start);
    let panic = shared.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    if let Some(payload) = panic {
        std::panic::resume_unwind(payload);
    }
    let fatal = shared.fatal.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    if let Some(error) = fatal {
        return Err(error);
    }
    Ok(Executed {
        locals,
        elapsed_ns,
        files: shared.files.load(Ordering::Relaxed),
        bytes: shared.bytes.load(Ordering::Relaxed),
        reports,
        usage,
        in_flight,
        budget_peak_bytes: shared.budget.peak(),
        cancelled: shared.cancel.is_cancelled(),
        plan: shared.plan,
    })
}

/// The start line: threads set themselves up, then all begin at one moment.
#[derive(Default)]
struct Gate {
    state: Mutex<(usize, Option<u64>)>,
    changed: Condvar,
}

impl Gate {
    /// A thread is set up; returns the moment of the start.
    fn arrive(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.0 += 1;
        self.changed.notify_all();
        loop {
            if let Some(start_ns) = state.1 {
                return start_ns;
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn wait_until_ready(&self, threads: usize) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while state.0 < threads {
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn open(&self, start_ns: u64) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.1 = Some(start_ns);
        self.changed.notify_all();
    }
}

/// What one thread is told.
struct Place<'e, 'p, S> {
    number: usize,
    role: Role,
    gate: &'e Gate,
    queues: &'e roles::Queues<'p, S>,
    ready: &'e looped::Ready<'p, S>,
}

/// One thread of a run, from its set-up to its account.
fn thread<'e, W: Work>(
    shared: &'e Shared<'e>,
    place: &Place<'e, 'e, W::State>,
    name: String,
    options: &Options<'_>,
    work: &'e W,
) -> (ThreadReport, W::Local, u64) {
    let window = window_of(&shared.plan, place.number, shared.at_once);
    let fetch = match place.role {
        Role::Computer => None,
        _ => match fetch::make::<W::State>(shared, window) {
            Ok(fetch) => Some(fetch),
            Err(error) => {
                shared.fail(error);
                None
            }
        },
    };
    let start_ns = place.gate.arrive();
    let mut worker = Worker::new(shared, place.number, work, start_ns, options.detail);
    match (shared.plan.schedule, fetch) {
        (Schedule::Roles { .. }, fetch) => roles::run(&mut worker, place.role, fetch, place.queues),
        (_, None) => {}
        (Schedule::Window { .. }, Some(fetch)) if shared.permits.is_none() => {
            looped::run(&mut worker, fetch, window, place.ready);
        }
        (_, Some(fetch)) => blocking::run(&mut worker, fetch),
    }
    worker.end(name, place.role)
}

/// Lets a computed piece go; unmapping is a call of its own.
fn release<S>(meter: &mut Meter, piece: Loaded<'_, S>) {
    let (mapped, index) = (matches!(piece.data, Data::Map(_)), piece.item.index);
    drop(piece);
    if mapped {
        meter.lap(CallKind::Unmap, index);
    } else {
        meter.skip();
    }
}

/// Requests that thread `number` of a plan may have in flight: the shares of all add up to L.
fn window_of(plan: &Plan, number: usize, files_at_once: u64) -> u32 {
    let share =
        |total: u32, threads: u32| total / threads + u32::from((number as u32) < total % threads);
    match plan.schedule {
        Schedule::Threads { .. } => 1,
        Schedule::Window { window, permits } => match plan.method {
            Method::Read | Method::DirectRead => 1,
            _ => share(window, permits.unwrap_or(1).min(window)).max(1),
        },
        // Any reader may use all of what is common.
        Schedule::Roles { window: ReadAhead::Files(n), .. } => n,
        Schedule::Roles { window: ReadAhead::All, .. } => files_at_once.min(RING_MAX) as u32,
    }
}

/// Tells progress until the last thread has ended.
fn watch(shared: &Shared<'_>, options: &Options<'_>) {
    while shared.live.load(Ordering::Acquire) > 0 {
        std::thread::park_timeout(Duration::from_millis(100));
        if let Some(progress) = options.progress {
            progress(
                shared.files.load(Ordering::Relaxed),
                shared.bytes.load(Ordering::Relaxed),
                shared.source.len().map(|n| n as u64),
            );
        }
        if shared.cancel.is_cancelled() {
            shared.budget.close();
        }
    }
}
