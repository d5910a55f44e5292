//! State shared by the threads of a load: plan, start time and early stops.

use crate::judge::KnownStocks;
use crate::plan::LoadPlan;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Barrier, Mutex};

/// Minimum number of consecutive connections without an answer after which the server is considered
/// gone.
const FAILURES_MIN: u32 = 100;

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
    failures: AtomicU32,
    /// Time of the first of them, or 0 if there is none.
    failing_since_ns: AtomicU64,
    is_gone: AtomicBool,
    gone: Mutex<Option<String>>,
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
            failing_since_ns: AtomicU64::new(0),
            is_gone: AtomicBool::new(false),
            gone: Mutex::new(None),
        }
    }

    /// Returns true if a thread was denied a request because the limit had been reached.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.tickets.load(Relaxed) > self.plan.requests_max
    }

    /// Takes the reason why the load ended early: the server is gone.
    pub(crate) fn take_gone(&self) -> Option<String> {
        self.gone.lock().expect("the lock must not be poisoned").take()
    }

    /// Records an answer: the server is alive.
    pub(crate) fn served(&self) {
        self.failures.store(0, Relaxed);
        self.failing_since_ns.store(0, Relaxed);
    }

    /// Records a connection that failed without an answer. The load ends if many of them have failed
    /// for at least the timeout of an answer; only the first reason is kept.
    pub(crate) fn unserved(&self, reason: &str, now_ns: u64) {
        let failures = self.failures.fetch_add(1, Relaxed) + 1;
        let begun = self.failing_since_ns.compare_exchange(0, now_ns, Relaxed, Relaxed);
        let failing_ns = now_ns.saturating_sub(begun.err().unwrap_or(now_ns));
        if failures < FAILURES_MIN || u128::from(failing_ns) < self.plan.timeout.as_nanos() {
            return;
        }
        self.gone.lock().expect("the lock must not be poisoned").get_or_insert_with(|| {
            format!(
                "lost {}: {failures} consecutive connections failed within {:.1} s; last error: \
                 {reason}",
                self.plan.target,
                failing_ns as f64 / 1e9
            )
        });
        self.is_gone.store(true, Relaxed);
    }

    /// Returns true if connections have failed for so long that the server is considered gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_gone.load(Relaxed)
    }
}
