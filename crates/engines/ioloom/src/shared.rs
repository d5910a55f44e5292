//! What all threads of a run share.

use crate::arena::Arena;
use crate::bell::Bell;
use crate::blocking_threads::BlockingThreads;
use crate::cancel::Cancel;
use crate::error::Error;
use crate::lookups::Lookups;
use crate::methods::Methods;
use crate::polite::Polite;
use crate::short_reads::ShortReads;
use crate::source::Source;
use crate::take::Take;
use ioloom_budget::{Budget, Permits, Window};
use ioloom_model::layout::{Driver, Layout};
use ioloom_model::{Plan, ReadAhead};
use ioloom_observe::Gauges;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

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
    /// Whether the work ended the run.
    pub(crate) work_stopped: AtomicBool,
    pub(crate) layout: Layout,
    /// The window of the workers; in other schedules of no effect.
    pub(crate) window: Window,
    /// Where workers without a part of the window rest.
    pub(crate) spare_bell: Bell,
    pub(crate) blocking: BlockingThreads,
    /// Files that may hold a buffer at once.
    pub(crate) at_once: u64,
    /// Descriptors that the plan leaves under the limit on open files.
    pub(crate) spare_descriptors: u64,
    /// Whether the run begins with one worker instead of one per permit.
    pub(crate) on_demand: bool,
    /// Whether the run goes on if a thread is refused while others run.
    pub(crate) fewer_threads: bool,
    /// Bytes of the first buffer of a file.
    pub(crate) first_bytes: u64,
    /// Charge of a first buffer, and whether threads may reuse theirs directly.
    pub(crate) first_charge: u64,
    pub(crate) spares: bool,
    /// Largest file that can be read whole, bytes.
    pub(crate) whole_max: u64,
    /// First reads of files that blocked because the file system does not support `RWF_NOWAIT`, except
    /// quick ones of files in memory.
    pub(crate) unanswered: AtomicU64,
    /// Reads of later pieces that blocked for that reason, in runs with a controller.
    pub(crate) unanswered_later: AtomicU64,
    /// Later pieces of files that waited for a device, in runs with a controller.
    pub(crate) waited_later: AtomicU64,
    /// The methods between which the controller chooses, if the plan has one.
    pub(crate) methods: Methods,
    pub(crate) polite: Polite,
    /// Opens that were put off, or waited, for want of a descriptor.
    pub(crate) refused: AtomicU64,
    /// Whether looking up paths waits.
    pub(crate) lookups: Lookups,
    pub(crate) short_reads: ShortReads,
    /// Files whose reads have begun and that any worker may take, because their own runs a function.
    pub(crate) offered: AtomicUsize,
    /// Whether the last wait for a descriptor, of any thread, was in vain.
    pub(crate) gave_up: AtomicBool,
    /// Whether the system refused a thread. The run goes on with those it has.
    pub(crate) no_more_threads: AtomicBool,
    /// Files that failed.
    pub(crate) failed: AtomicU64,
    pub(crate) live: AtomicUsize,
    /// Threads that start without waits for reads.
    pub(crate) threads_first: usize,
    pub(crate) fatal: Mutex<Option<Error>>,
    pub(crate) panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Shared<'_> {
    /// Reports whether threads should take no new files.
    #[inline]
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }

    /// Returns how many reads have blocked because the file system does not support `RWF_NOWAIT`. Later
    /// pieces alone do not count: they may be those of files in memory.
    pub(crate) fn blocked_reads(&self) -> u64 {
        match self.unanswered.load(Ordering::Relaxed) {
            0 => 0,
            first => first + self.unanswered_later.load(Ordering::Relaxed),
        }
    }

    /// Returns how threads take paths from the list.
    pub(crate) fn take(&self) -> Take {
        // Threads that start with the run may not have started yet.
        let threads = self.live.load(Ordering::Relaxed).max(self.threads_first);
        let paced = self.layout.driver == Driver::Windowed;
        Take { stripe: self.plan.stripe as usize, threads, paced }
    }

    /// Reports whether no window bounds how far reads run ahead of compute.
    pub(crate) fn unbounded(&self) -> bool {
        self.layout.window == ReadAhead::All
    }

    /// Ends the run with an error; the first one counts.
    pub(crate) fn fail(&self, error: Error) {
        let mut fatal = self.fatal.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        fatal.get_or_insert(error);
        drop(fatal);
        self.end();
    }

    /// Ends the run after a panic of the function; the first panic is resumed at the end.
    pub(crate) fn panicked(&self, payload: Box<dyn Any + Send>) {
        let mut panic = self.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        panic.get_or_insert(payload);
        drop(panic);
        self.end();
    }

    /// Ends the run because the work wants no more.
    pub(crate) fn stopped(&self) {
        self.work_stopped.store(true, Ordering::Relaxed);
        self.end();
    }

    /// Returns whether all files of the input were processed or have failed: what comes after that does
    /// not end the run early. Only at the end of a run.
    pub(crate) fn has_done_all(&self) -> bool {
        let (arrived, ended) = self.source.arrived();
        ended && self.gauges.files() + self.failed.load(Ordering::Relaxed) == arrived as u64
    }

    /// Returns whether the run was cancelled, and whether the work ended it, before all files were done.
    /// Only at the end of a run without an error.
    pub(crate) fn ended_early(&self) -> (bool, bool) {
        let left = !self.has_done_all();
        let cancelled = left && self.cancel.is_cancelled();
        let stopped = left && self.work_stopped.load(Ordering::Relaxed);
        debug_assert!(cancelled || stopped || !left, "a run leaves no file out");
        (cancelled, stopped)
    }

    /// Ends the run because bytes retained by the user leave no room.
    pub(crate) fn fail_held(&self) {
        let (kept, budget) = (self.budget.retained(), self.budget.limit());
        self.fail(Error::BudgetHeld { kept, budget });
    }

    /// Records that a thread found the end of the list. A panic of the caller's iterator ends the
    /// run.
    #[cold]
    pub(crate) fn list_ended(&self) {
        if let Some(payload) = self.source.panic() {
            self.panicked(payload);
        }
        self.spare_bell.ring_all();
        self.blocking.call_all();
    }

    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// Lets every thread that rests look again.
    pub(crate) fn wake_resting(&self) {
        self.source.bell().ring_all();
        self.spare_bell.ring_all();
        self.blocking.call_all();
    }

    /// Wakes every thread that waits for memory, a path or another thread, after a stop.
    pub(crate) fn wake_all(&self) {
        self.budget.close();
        self.wake_resting();
    }
}
