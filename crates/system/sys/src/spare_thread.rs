//! A thread that waits to help a caller, so that a short piece of work need not start one.
//!
//! Starting a thread and waiting for its end takes longer than reading a few small files. One idle
//! thread per process, kept for a second, is woken instead. If the caller has finished before the
//! thread takes the job, nothing is waited for. The cost is a wake-up, and one sleeping thread.
//!
//! Protocol, all under one lock: `Absent` → `Idle` (the thread exists) → `Offered` (by a caller) →
//! either back to `Idle` (the caller took the offer back) or `Running` (the thread took it) → `Idle`
//! (the job has returned). Only the caller that offered waits for the end of `Running`; others find
//! the slot taken and are refused. The thread ends from `Idle` only.

use crate::clock::monotonic_ns;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::Builder;
use std::time::Duration;

const NAME: &str = "ioloom-helper";
/// Time for which an idle thread is kept.
const KEPT: Duration = Duration::from_secs(1);
/// Time for which a caller waits for the end of its job without sleeping: about what a wake-up takes.
const SPIN_NS: u64 = 50_000;

/// A job whose lifetime the compiler no longer checks.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn() + Sync));

// SAFETY: the function is `Sync`, and `Offer` keeps it alive until no thread can call it any more.
unsafe impl Send for Job {}

enum State {
    Absent,
    Idle,
    Offered(Job),
    Running,
}

struct Slot {
    state: State,
    /// The process to which the thread belongs: a fork has none.
    process: u32,
    /// Whether the last job panicked.
    panicked: bool,
}

static SLOT: Mutex<Slot> = Mutex::new(Slot { state: State::Absent, process: 0, panicked: false });
static CHANGED: Condvar = Condvar::new();

fn slot() -> MutexGuard<'static, Slot> {
    SLOT.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs `work` on the calling thread, and offers `job` to the helping thread for that time. Returns
/// after both. The job may not run at all: if `work` ends before the thread has taken it.
///
/// Returns `None`, without having run anything, if another caller has the thread or none can be
/// started.
///
/// # Panics
///
/// If the job has panicked.
pub fn with_help<R>(job: &(dyn Fn() + Sync), work: impl FnOnce() -> R) -> Option<R> {
    let offer = Offer::make(job)?;
    let result = work();
    assert!(!offer.end(), "the helping thread panicked");
    Some(result)
}

/// An offered job. Its end, also by a panic of the caller, is the end of the job.
struct Offer {
    is_over: bool,
}

impl Offer {
    fn make(job: &(dyn Fn() + Sync)) -> Option<Self> {
        let mut slot = slot();
        let process = std::process::id();
        if slot.process != process {
            *slot = Slot { state: State::Absent, process, panicked: false };
        }
        let exists = match slot.state {
            State::Idle => true,
            State::Absent => false,
            State::Offered(_) | State::Running => return None,
        };
        if !exists {
            Builder::new().name(NAME.to_owned()).spawn(help).ok()?;
        }
        // SAFETY: only the lifetime changes. This offer is not returned to code that could forget it,
        // and its end takes the job back or waits until the thread has left it.
        let job = unsafe {
            std::mem::transmute::<*const (dyn Fn() + Sync), *const (dyn Fn() + Sync + 'static)>(job)
        };
        slot.state = State::Offered(Job(job));
        slot.panicked = false;
        drop(slot);
        CHANGED.notify_all();
        Some(Self { is_over: false })
    }

    /// Ends the job. Returns whether it has panicked.
    fn end(mut self) -> bool {
        self.wait()
    }

    fn wait(&mut self) -> bool {
        if std::mem::replace(&mut self.is_over, true) {
            return false;
        }
        let spin_until = monotonic_ns().saturating_add(SPIN_NS);
        let mut slot = slot();
        loop {
            match slot.state {
                State::Offered(_) => slot.state = State::Idle,
                State::Running if monotonic_ns() < spin_until => {
                    drop(slot);
                    std::thread::yield_now();
                    slot = self::slot();
                }
                State::Running => {
                    slot = CHANGED.wait(slot).unwrap_or_else(|poisoned| poisoned.into_inner());
                }
                State::Idle | State::Absent => return slot.panicked,
            }
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.wait();
    }
}

/// The helping thread.
fn help() {
    let mut slot = slot();
    loop {
        match slot.state {
            State::Offered(job) => {
                slot.state = State::Running;
                drop(slot);
                // SAFETY: the caller that offered the job waits while the state is `Running`.
                let run = || unsafe { (*job.0)() };
                let panicked = catch_unwind(AssertUnwindSafe(run)).is_err();
                slot = self::slot();
                assert!(matches!(slot.state, State::Running), "only this thread ends a job");
                (slot.state, slot.panicked) = (State::Idle, panicked);
                CHANGED.notify_all();
            }
            State::Idle => {
                let waited = CHANGED.wait_timeout(slot, KEPT);
                let (after, timed_out) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
                slot = after;
                if timed_out.timed_out() && matches!(slot.state, State::Idle) {
                    slot.state = State::Absent;
                    return;
                }
            }
            State::Absent | State::Running => unreachable!("this thread exists and runs nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::mpsc::channel;

    /// The tests share the thread of their process.
    static ONE: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[test]
    fn the_job_runs_while_the_work_waits_for_it() {
        let _alone = alone();
        for round in 0..100 {
            let done = AtomicU32::new(0);
            let (send, receive) = channel();
            let job = || {
                done.fetch_add(round, Ordering::SeqCst);
                send.send(()).expect("the work waits");
            };
            let result = with_help(&job, || receive.recv_timeout(Duration::from_secs(10)));
            result.expect("the thread is free").expect("the job runs");
            assert_eq!(done.load(Ordering::SeqCst), round);
        }
    }

    #[test]
    fn no_job_outlives_its_caller() {
        let _alone = alone();
        for _ in 0..2_000 {
            let running = AtomicBool::new(false);
            let job = || {
                running.store(true, Ordering::SeqCst);
                std::thread::yield_now();
                running.store(false, Ordering::SeqCst);
            };
            with_help(&job, || ()).expect("the thread is free");
            assert!(!running.load(Ordering::SeqCst));
        }
    }

    #[test]
    fn a_second_caller_is_refused_and_runs_nothing() {
        let _alone = alone();
        let inner = with_help(&|| (), || with_help(&|| (), || ()).is_none());
        assert_eq!(inner, Some(true));
    }

    #[test]
    fn panics_reach_the_caller_and_leave_the_thread_usable() {
        let _alone = alone();
        let (send, receive) = channel();
        let job = || {
            send.send(()).expect("the work waits");
            panic!("planted");
        };
        let caught = catch_unwind(AssertUnwindSafe(|| {
            with_help(&job, || receive.recv_timeout(Duration::from_secs(10)).expect("the job runs"))
        }));
        assert!(caught.is_err());
        let thrown = catch_unwind(AssertUnwindSafe(|| with_help(&|| (), || panic!("planted"))));
        assert!(thrown.is_err());
        assert_eq!(with_help(&|| (), || 7), Some(7));
    }
}
