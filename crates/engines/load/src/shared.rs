//! State shared by the threads of a load: plan, start time and early stops.

use crate::error::LoadError;
use crate::judge::KnownStocks;
use crate::plan::LoadPlan;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Barrier, Mutex};

/// Number of consecutive connections without an answer after which the server is considered gone.
pub(crate) const FAILURES_MAX: u32 = 100;

/// State shared by the threads of a load.
pub(crate) struct Shared<'a> {
    pub(crate) plan: &'a LoadPlan,
    pub(crate) known: &'a KnownStocks,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) ready: Barrier,
    pub(crate) start_ns: AtomicU64,
    /// Number of answers so far, for progress reports.
    pub(crate) answered: AtomicU64,
    /// Number of requests started, if limited.
    pub(crate) tickets: AtomicU64,
    /// Number of consecutive connections that failed without an answer.
    pub(crate) failures: AtomicU32,
    gone: Mutex<Option<LoadError>>,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(plan: &'a LoadPlan, known: &'a KnownStocks, stop: &'a AtomicBool) -> Self {
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

    /// Returns true if a thread was denied a request because the limit had been reached.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.tickets.load(Relaxed) > self.plan.requests_max
    }

    /// Takes the reason why the load was aborted.
    pub(crate) fn take_error(&self) -> Option<LoadError> {
        self.gone.lock().expect("the lock must not be poisoned").take()
    }

    /// Aborts the load; only the first reason is kept.
    pub(crate) fn fail(&self, error: LoadError) {
        self.gone.lock().expect("the lock must not be poisoned").get_or_insert(error);
    }

    /// Returns true if so many consecutive connections failed that the server is considered gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.failures.load(Relaxed) >= FAILURES_MAX
    }
}
