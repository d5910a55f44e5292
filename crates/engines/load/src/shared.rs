//! What the threads of a load share: the plan, when it began, and what ends it early.

use crate::error::LoadError;
use crate::judge::Known;
use crate::plan::LoadPlan;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Barrier, Mutex};

/// Connections that may fail in a row before the server counts as gone.
pub(crate) const FAILURES_MAX: u32 = 100;

/// What the threads of a load share.
pub(crate) struct Shared<'a> {
    pub(crate) plan: &'a LoadPlan,
    pub(crate) known: &'a Known,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) ready: Barrier,
    pub(crate) start_ns: AtomicU64,
    /// Answers so far, for whoever watches.
    pub(crate) answered: AtomicU64,
    /// Requests that were begun, where their number is bounded.
    pub(crate) tickets: AtomicU64,
    /// Connections that failed in a row.
    pub(crate) failures: AtomicU32,
    gone: Mutex<Option<LoadError>>,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(plan: &'a LoadPlan, known: &'a Known, stop: &'a AtomicBool) -> Self {
        Self {
            plan,
            known,
            stop,
            ready: Barrier::new(plan.threads + 1),
            start_ns: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            tickets: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            gone: Mutex::new(None),
        }
    }

    /// Whether all requests were sent that were asked for: somebody wanted one more.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.tickets.load(Relaxed) > self.plan.requests_max
    }

    /// Why the load was broken off, once.
    pub(crate) fn take_error(&self) -> Option<LoadError> {
        self.gone.lock().expect("no panic under this lock").take()
    }

    /// Breaks the load off; the first reason counts.
    pub(crate) fn fail(&self, error: LoadError) {
        self.gone.lock().expect("no panic under this lock").get_or_insert(error);
    }

    /// Whether so many connections failed in a row that the target has gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.failures.load(Relaxed) >= FAILURES_MAX
    }
}
