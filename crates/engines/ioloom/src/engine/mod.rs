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
use ioloom_model::layout::{Layout, RING_MAX, layout};
use ioloom_model::{Buffers, CallKind, Method, Plan, ReadAhead, Schedule};
use ioloom_observe::{Gauges, Meter};
use std::any::Any;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
pub(crate) use work::Worker;

/// The first read of a file whose size is not known asks for this much, bytes.
const FIRST_READ: u64 = 64 << 10;
const FIRST_READ_MIN: u64 = 4 << 10;
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
    pub(crate) layout: Layout,
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

fn refuse_too_many_files(plan: &Plan, layout: &Layout, at_once: u64) -> Result<(), Error> {
    let ring = match layout.window {
        ReadAhead::All => at_once,
        ReadAhead::Files(_) => u64::from(layout.window_of(0, at_once)),
    };
    if plan.method.needs_ring() && ring > u64::from(RING_MAX) {
        return Err(Error::Refused(format!(
            "{plan}: {ring} requests in flight, a ring takes at most {RING_MAX}; use a smaller \
             window"
        )));
    }
    let limit = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
    // A thread has its own account in /proc open, and its ring.
    let per_thread = 1 + u64::from(plan.method.needs_ring());
    let wanted = at_once + u64::from(layout.threads_max()) * per_thread;
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
    let layout = layout(&plan).map_err(Error::Refused)?;
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
    let at_once = layout.files_at_once(source.len().unwrap_or(1) as u64);
    refuse_too_many_files(&plan, &layout, at_once)?;
    let first_bytes = first_bytes(&plan, at_once)?;
    let whole_max = whole_max(&plan, &layout, at_once, first_bytes);
    let first_charge = crate::arena::rounded(first_bytes);
    let spares = plan.buffers == Buffers::Pool
        && source.len().is_some()
        && at_once.saturating_mul(first_charge) <= plan.memory_bytes;
    let shared = Shared {
        plan,
        source,
        arena: Arena::new(budget.clone(), plan.buffers, at_once.min(1 << 20) as usize, whole_max),
        permits: layout.permits.map(Permits::new),
        open_limit: layout.open_limit.map(Permits::new),
        gauges: Arc::new(Gauges::new(layout.threads_max() as usize)),
        cancel: options.cancel.clone(),
        stop: AtomicBool::new(false),
        takers: layout.roles().filter(|role| role.reads()).count(),
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
        layout,
    };
    team::run(&shared, options, work)
}

/// The largest buffer that always finds its place: what first buffers can never take. In chunk form
/// nobody has two buffers, so it is all.
fn whole_max(plan: &Plan, layout: &Layout, at_once: u64, first_bytes: u64) -> u64 {
    let first = match (plan.method, plan.chunk_bytes) {
        (_, Some(_)) => 0,
        (Method::UringRegistered, None) => {
            let reading = layout.roles().enumerate().filter(|(_, role)| role.reads());
            let buffers: u64 =
                reading.map(|(number, _)| u64::from(layout.window_of(number, at_once))).sum();
            buffers * fetch::REGISTERED_BYTES as u64
        }
        _ => at_once * crate::arena::rounded(first_bytes),
    };
    plan.memory_bytes.saturating_sub(first) / FIRST_READ_MIN * FIRST_READ_MIN
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
