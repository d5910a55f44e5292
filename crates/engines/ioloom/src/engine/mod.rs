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
mod team;
mod traced;
mod work;

pub use traced::Tracing;
pub use work::{Executed, Piece, RunOptions, Work};

use crate::arena::{Arena, Lease};
use crate::cancel::Cancel;
use crate::error::Error;
use crate::fetch::{self, Data, Loaded};
use crate::source::{Source, Take};
use ioloom_budget::{Budget, Permits};
use ioloom_model::{Buffers, CallKind, Method, Plan, ReadAhead, Schedule, table};
use ioloom_observe::{Gauges, Meter};
use std::any::Any;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
pub(crate) use work::Worker;

/// The first read of a file whose size is not known asks for this much, bytes.
const FIRST_READ: u64 = 64 << 10;
const FIRST_READ_MIN: u64 = 4 << 10;
/// Workers of a `nowait` window for each permit. They block in opens and in the read of their oldest
/// miss, so fewer leave processors idle; more only share the same window.
const NOWAIT_WORKERS: u32 = 8;
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
    /// What a first buffer is charged, and whether threads may go on with theirs.
    first_charge: u64,
    spares: bool,
    /// Largest file in whole-file form, bytes.
    pub(crate) whole_max: u64,
    /// Reads that blocked because a file system could not say whether they would.
    pub(crate) unanswered: AtomicU64,
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

    /// The first buffer of a piece that is done, for the same thread's next file. Not where buffers
    /// are scarce, wanted fresh, kept by the user, or where the next path may be long in coming:
    /// there it goes back to all.
    pub(crate) fn spare<S>(&self, done: &mut Loaded<'_, S>) -> Option<Lease> {
        match &done.data {
            Data::Buffer(lease)
                if self.spares && !lease.is_kept() && lease.charged() == self.first_charge => {}
            _ => return None,
        }
        match std::mem::replace(&mut done.data, Data::Empty) {
            Data::Buffer(lease) => Some(lease),
            _ => None,
        }
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
                Method::Nowait => (permits.unwrap_or(1) * NOWAIT_WORKERS).min(window),
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
        "{plan}: {at_once} files open at once, {} for its threads and {OWN} others, the limit is \
         {limit}; raise it (ulimit -n) or use a smaller window",
        wanted - at_once
    )))
}

/// Runs a plan over a packed list of paths: the laboratory's way in.
pub fn run<W: Work>(
    list: &ioloom_walk::PathList,
    files_max: Option<u64>,
    plan: Plan,
    options: &RunOptions<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    let budget = Arc::new(Budget::new(plan.memory_bytes));
    execute(
        &Source::list(Cow::Borrowed(list), plan.read_order, files_max),
        plan,
        budget,
        options,
        work,
    )
}

/// Runs a plan over paths as they come.
pub fn run_stream<W: Work>(
    paths: impl Iterator<Item = std::path::PathBuf> + Send,
    plan: Plan,
    options: &RunOptions<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    let budget = Arc::new(Budget::new(plan.memory_bytes));
    execute(&Source::stream(paths, plan.read_order), plan, budget, options, work)
}

/// Runs a plan over all paths of `source`. The budget is that of the plan; who works beside the run
/// has it too.
pub(crate) fn execute<W: Work>(
    source: &Source<'_>,
    plan: Plan,
    budget: Arc<Budget>,
    options: &RunOptions<'_>,
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
    let whole_max = whole_max(&plan, &team, at_once, first_bytes);
    let first_charge = crate::arena::rounded(first_bytes);
    let spares = plan.buffers == Buffers::Pool
        && source.len().is_some()
        && at_once.saturating_mul(first_charge) <= plan.memory_bytes;
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
        first_charge,
        spares,
        whole_max,
        unanswered: AtomicU64::new(0),
        live: AtomicUsize::new(0),
        fatal: Mutex::new(None),
        panic: Mutex::new(None),
        budget,
    };
    team::run(&shared, &team, options, work)
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
        (Schedule::Window { permits, .. }, Method::Read | Method::DirectRead | Method::Nowait) => {
            Some(Permits::new(permits.unwrap_or(1)))
        }
        _ => None,
    }
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
            Method::Nowait => share(window, (permits.unwrap_or(1) * NOWAIT_WORKERS).min(window)),
            _ => share(window, permits.unwrap_or(1).min(window)).max(1),
        },
        // Any reader may use all of what is common.
        Schedule::Roles { window: ReadAhead::Files(n), .. } => n,
        Schedule::Roles { window: ReadAhead::All, .. } => files_at_once.min(RING_MAX) as u32,
    }
}
