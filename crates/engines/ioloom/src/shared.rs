//! What all threads of a run share.

use crate::arena::Arena;
use crate::cancel::Cancel;
use crate::error::Error;
use crate::source::{Source, Take};
use ioloom_budget::{Budget, Permits};
use ioloom_model::layout::Layout;
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
    /// Threads that take paths.
    pub(crate) takers: usize,
    pub(crate) layout: Layout,
    /// Files that may hold a buffer at once.
    pub(crate) at_once: u64,
    /// Bytes of the first buffer of a file.
    pub(crate) first_bytes: u64,
    /// What a first buffer is charged, and whether threads may go on with theirs.
    pub(crate) first_charge: u64,
    pub(crate) spares: bool,
    /// Largest file in whole-file form, bytes.
    pub(crate) whole_max: u64,
    /// Reads that blocked because a file system could not say whether they would.
    pub(crate) unanswered: AtomicU64,
    pub(crate) live: AtomicUsize,
    pub(crate) fatal: Mutex<Option<Error>>,
    pub(crate) panic: Mutex<Option<Box<dyn Any + Send>>>,
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
        self.layout.window == ReadAhead::All
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
