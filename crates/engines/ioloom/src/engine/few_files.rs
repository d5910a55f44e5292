//! Runs over a few files: the calling thread is the first worker.
//!
//! Starting a thread takes longer than reading a few small files, and so does every wait of one
//! thread for another. So the calling thread works at once. Another thread watches: it starts more
//! workers if files wait, and wakes those that rest if the run is cancelled. If the calling thread ends
//! before the other has begun, it does not wait for it.
//!
//! Runs that are traced or sampled, that report progress (from the calling thread) or that lower the
//! priority of their threads do not run this way.

use super::threads::{Crew, Finished, Handles, Threads};
use super::work::Work;
use crate::error::{Error, START_THREAD};
use ioloom_model::layout::Role;
use ioloom_observe::{Detail, LaterDelay, Usage};
use ioloom_sys::alongside;
use ioloom_sys::clock::monotonic_ns;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{Scope, ScopedJoinHandle};

/// Most files of a list that runs this way.
const FEW: usize = 16;
const WATCHER: &str = "ioloom-watcher";
/// Age of a run at which the watcher begins to sleep: about what a few small files take.
const SPIN_NS: u64 = 100_000;

/// The run-queue delay of the calling thread, which the watcher begins to measure.
pub(super) type Caller = OnceLock<Arc<LaterDelay>>;

/// Reports whether a run has few files and nothing that needs threads of its own.
pub(super) fn applies<W: Work>(threads: Threads<'_, W>) -> bool {
    let (shared, options) = (threads.shared, threads.options);
    shared.on_demand
        && shared.source.len().is_some_and(|files| files <= FEW)
        && matches!(options.detail, Detail::Totals)
        && !options.sample
        && options.progress.is_none()
        && threads.traced.is_none()
        && !shared.polite.lowers_priority()
}

/// Runs the first worker on the calling thread, and the watcher on another.
pub(super) fn run<'scope, 'e, W: Work>(
    threads: Threads<'e, W>,
    caller: &'e Caller,
    scope: &'scope Scope<'scope, 'e>,
    all: &mut Finished<W::Local>,
) {
    let shared = threads.shared;
    let before = Usage::begin();
    all.start = monotonic_ns();
    threads.gate.open(all.start);
    if let Err(source) = shared.source.start() {
        shared.fail(Error::System { operation: START_THREAD, source });
    }
    threads.joins(Role::Worker);
    let (start_ns, of_watcher) = (all.start, before.clone());
    let delay = caller.get_or_init(LaterDelay::of_this_thread);
    let watch = move || watch(threads, delay, scope, of_watcher.clone(), start_ns);
    let first = Threads { delay: Some(delay), ..threads };
    let result = alongside::run(WATCHER, &watch, || first.caught(0));
    let result = result.unwrap_or_else(|source| {
        shared.fail(Error::System { operation: START_THREAD, source });
        first.caught(0)
    });
    all.add(result);
    // Unless the watcher leaves more.
    all.tuned = Crew::new(threads).tuned();
    all.used(&before);
}

/// Watches the calling thread and starts more if files wait.
fn watch<'scope, 'e, W: Work>(
    threads: Threads<'e, W>,
    of_caller: &LaterDelay,
    scope: &'scope Scope<'scope, 'e>,
    mut before: Usage,
    start_ns: u64,
) {
    let shared = threads.shared;
    while shared.live.load(Ordering::Acquire) != 0 {
        if monotonic_ns() >= start_ns.saturating_add(SPIN_NS) {
            break;
        }
        std::thread::yield_now();
    }
    if shared.live.load(Ordering::Acquire) == 0 {
        return;
    }
    of_caller.read();
    let thread = threads.watcher.get_or_init(std::thread::current);
    // Either the calling thread sees this one and wakes it, or this one sees that the other has ended.
    fence(Ordering::SeqCst);
    let _watched = threads.options.cancel.wakes(thread.clone());
    let mut crew = Crew::new(threads);
    crew.first_has_started();
    let mut handles = Handles::new();
    let mut start = |numbers: Range<usize>| threads.start(scope, numbers, &mut handles);
    threads.watch(&mut crew, &mut before, &mut start);
    let join = |handle: ScopedJoinHandle<'_, _>| handle.join().expect("panics are caught");
    let results = handles.into_iter().map(join).collect();
    threads.left.leave(results, before, crew.tuned());
}
