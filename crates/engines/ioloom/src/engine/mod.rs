//! The engine: runs every method under every schedule, below the public interface.
//!
//! A method is a `Fetch`, which starts reads and returns loaded files. A
//! schedule is a loop that drives one: `blocking` (one file after another), `looped` (workers with
//! a part of the window) or `roles` (readers and computers). [`ioloom_model::layout`] decides which
//! loop and how many threads run for a plan, so that no pair needs a special case.
//!
//! `Shared` is the state that all threads share, `Worker` the state of one thread. Deadlock is
//! impossible because of the order of waits: a thread that waits for memory holds neither a permit
//! nor the open limit, and the holder of a permit waits for nothing in this crate.

#[cfg(test)]
mod alternating;
mod blocking;
mod blocking_crew;
mod choice;
mod execute;
mod few_files;
mod gate;
#[cfg(test)]
mod kept;
mod limits;
mod looped;
mod measure;
mod pilot;
mod read_waits;
mod ready;
mod remaining;
#[cfg(test)]
mod resized;
mod roles;
mod sharing;
mod threads;
mod traced;
mod work;

pub use traced::Tracing;
pub use work::{Executed, Piece, ProgressNow, RunOptions, Work};

use crate::arena::Arena;
use crate::bell::Bell;
use crate::blocking_threads::BlockingThreads;
use crate::error::Error;
use crate::feed::{self, Entry};
use crate::lookups::Lookups;
use crate::methods::Methods;
use crate::polite::Polite;
use crate::shared::Shared;
use crate::short_reads::ShortReads;
use crate::source::{Listed, Source};
use ioloom_budget::{Budget, Permits, Window};
use ioloom_model::layout::{Driver, Layout, Role, layout};
use ioloom_model::{Buffers, Plan, ReadAhead};
use ioloom_observe::Gauges;
use limits::{first_bytes, refuse_too_many_files, whole_max};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

/// Runs a plan over a packed list of paths.
pub fn run<W: Work>(
    list: &ioloom_walk::PathList,
    files_max: Option<u64>,
    plan: Plan,
    options: &RunOptions<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    let budget = Arc::new(Budget::new(plan.memory_bytes));
    execute(
        &Source::list(Listed::Borrowed(list), plan.read_order, files_max, &options.cancel),
        plan,
        budget,
        options,
        work,
    )
}

/// Runs a plan over paths from an iterator.
pub fn run_stream<W: Work>(
    paths: impl Iterator<Item = std::path::PathBuf> + Send + 'static,
    plan: Plan,
    options: &RunOptions<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    let budget = Arc::new(Budget::new(plan.memory_bytes));
    let entries = feed::one_by_one(paths.map(Entry::Path));
    execute(&Source::stream(entries, plan.read_order, false), plan, budget, options, work)
}

/// Runs a plan over all paths of `source`. The budget has the plan's size; a consumer that works
/// alongside the run shares it.
pub(crate) fn execute<W: Work>(
    source: &Source<'_>,
    plan: Plan,
    budget: Arc<Budget>,
    options: &RunOptions<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    execute::run(&prepare(source, plan, budget, options)?, options, work)
}

/// Returns why this process cannot run a plan with its limits, if so, whatever the files are.
pub fn refusal(plan: &Plan) -> Option<String> {
    let check = |layout: Layout| {
        let at_once = layout.files_at_once(1);
        refuse_too_many_files(plan, &layout, at_once)?;
        first_bytes(plan, at_once)
    };
    match layout(plan).map_err(Error::Refused).and_then(check) {
        Err(Error::Refused(reason)) => Some(reason),
        _ => None,
    }
}

/// Returns what the threads of a plan share, or refuses the plan.
fn prepare<'e>(
    source: &'e Source<'e>,
    plan: Plan,
    budget: Arc<Budget>,
    options: &RunOptions<'_>,
) -> Result<Shared<'e>, Error> {
    let layout = layout(&plan).map_err(Error::Refused)?;
    let methods = Methods::of(&plan, &layout);
    methods.begin_by_ring(options.ring_first);
    if plan.method.is_mmap() && !options.mmap {
        return Err(Error::Refused(format!(
            "{plan}: the library does not map files, because truncating a mapped file kills the \
             process; use another method, or 'ioloom each'"
        )));
    }
    if layout.window == ReadAhead::All && source.len().is_none() {
        return Err(Error::Refused(format!(
            "{plan}: a window of all files requires a list, because the length of a stream of paths \
             is unknown; use a list, or a number for w="
        )));
    }
    let at_once = layout.files_at_once(source.len().unwrap_or(1) as u64);
    let spare_descriptors = refuse_too_many_files(&plan, &layout, at_once)?;
    let first_bytes = first_bytes(&plan, at_once)?;
    let whole_max = whole_max(&plan, &layout, at_once, first_bytes);
    let first_charge = crate::arena::rounded(first_bytes);
    let spares =
        plan.buffers == Buffers::Pool && at_once.saturating_mul(first_charge) <= plan.memory_bytes;
    Ok(Shared {
        plan,
        source,
        arena: Arena::new(budget.clone(), plan.buffers, at_once.min(1 << 20) as usize, whole_max),
        permits: layout.permits.map(Permits::new),
        open_limit: layout.open_limit.map(Permits::new),
        gauges: Arc::new(Gauges::new(layout.threads_max() as usize)),
        cancel: options.cancel.clone(),
        stop: AtomicBool::new(false),
        work_stopped: AtomicBool::new(false),
        at_once,
        spare_descriptors,
        // Each thread of `roles` has work of its own, so that one alone could wait for ever.
        on_demand: options.on_demand && layout.driver != Driver::Queued,
        fewer_threads: (options.on_demand || options.fewer_threads)
            && layout.driver != Driver::Queued,
        window: window_of(&layout),
        spare_bell: Bell::default(),
        blocking: BlockingThreads::default(),
        first_bytes,
        first_charge,
        spares,
        whole_max,
        unanswered: AtomicU64::new(0),
        unanswered_later: AtomicU64::new(0),
        waited_later: AtomicU64::new(0),
        methods,
        polite: Polite::new(&plan),
        refused: AtomicU64::new(0),
        lookups: Lookups::default(),
        short_reads: ShortReads::default(),
        offered: AtomicUsize::new(0),
        gave_up: AtomicBool::new(false),
        failed: AtomicU64::new(0),
        no_more_threads: AtomicBool::new(false),
        live: AtomicUsize::new(0),
        threads_first: layout.threads_first() as usize,
        fatal: Mutex::new(None),
        panic: Mutex::new(None),
        budget,
        layout,
    })
}

/// Returns the window that the workers of a layout share.
fn window_of(layout: &Layout) -> Window {
    let most = match layout.window {
        ReadAhead::Files(most) => most,
        ReadAhead::All => 1,
    };
    Window::new(most, layout.max_of(Role::Worker))
}
