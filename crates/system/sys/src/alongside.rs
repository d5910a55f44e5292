//! A job that a new thread runs alongside the caller, unless the caller finishes first.
//!
//! A scoped thread is waited for even if it has not begun, and its start and end take longer than
//! reading a few small files. Here the caller takes the job back if the thread has not begun it, and
//! the thread then ends by itself. The thread is new for each job: it has the rights, the working
//! directory and the processors of the caller. The cost is the call that starts it.
//!
//! Protocol, under the lock of each job: `Offered` → either `TakenBack` (by the caller, which returns) or
//! `Running` (by the thread) → `Ended` (the job has returned). The caller returns from `TakenBack` and
//! `Ended` only, and the thread uses the job in `Running` only.

use crate::clock::monotonic_ns;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Builder;

/// Time for which a caller waits for the end of its job without sleeping: about what a wake-up takes.
const SPIN_NS: u64 = 50_000;

/// A job whose lifetime the compiler no longer checks.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn() + Sync));

// SAFETY: the function is `Sync`, and `Offer` keeps it alive until the thread cannot call it any more.
unsafe impl Send for Job {}

enum State {
    Offered(Job),
    TakenBack,
    Running,
    Ended { panicked: bool },
}

struct Slot {
    state: Mutex<State>,
    ended: Condvar,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The new thread.
    fn help(&self) {
        let mut state = self.state();
        let job = match *state {
            State::Offered(job) => job,
            State::TakenBack => return,
            State::Running | State::Ended { .. } => unreachable!("only this thread runs the job"),
        };
        *state = State::Running;
        drop(state);
        // SAFETY: the caller that offered the job waits while the state is `Running`.
        let run = || unsafe { (*job.0)() };
        let panicked = catch_unwind(AssertUnwindSafe(run)).is_err();
        let mut state = self.state();
        assert!(matches!(*state, State::Running), "only this thread ends the job");
        *state = State::Ended { panicked };
        self.ended.notify_all();
    }
}

/// Runs `work` on the calling thread, and offers `job` to a new thread for that time. Returns after
/// both. The job may not run at all: if `work` ends before the thread has begun it.
///
/// # Errors
///
/// If no thread can be started. Then nothing has run.
///
/// # Panics
///
/// If the job has panicked.
pub fn run<R>(name: &str, job: &(dyn Fn() + Sync), work: impl FnOnce() -> R) -> io::Result<R> {
    // SAFETY: only the lifetime changes. The offer stays in this function, which cannot forget it, and
    // its end takes the job back or waits until the thread has left it.
    let lasting = unsafe {
        std::mem::transmute::<*const (dyn Fn() + Sync), *const (dyn Fn() + Sync + 'static)>(job)
    };
    let state = Mutex::new(State::Offered(Job(lasting)));
    let mut offer = Offer { slot: Arc::new(Slot { state, ended: Condvar::new() }) };
    let slot = offer.slot.clone();
    Builder::new().name(name.to_owned()).spawn(move || slot.help())?;
    let result = work();
    assert!(!offer.wait(), "the thread alongside panicked");
    Ok(result)
}

/// An offered job. Its end, also by a panic of the caller, is the end of the job.
struct Offer {
    slot: Arc<Slot>,
}

impl Offer {
    /// Ends the job. Returns whether it has panicked.
    fn wait(&mut self) -> bool {
        let spin_until = monotonic_ns().saturating_add(SPIN_NS);
        let mut state = self.slot.state();
        loop {
            match *state {
                State::Offered(_) => *state = State::TakenBack,
                State::TakenBack => return false,
                State::Ended { panicked } => return panicked,
                State::Running if monotonic_ns() < spin_until => {
                    drop(state);
                    std::thread::yield_now();
                    state = self.slot.state();
                }
                State::Running => {
                    let waited = self.slot.ended.wait(state);
                    state = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
                }
            }
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(10);

    fn job_is_waited_for(value: u32) {
        let done = AtomicU32::new(0);
        let (send, receive) = channel();
        let job = || {
            done.fetch_add(value, Ordering::SeqCst);
            send.send(()).expect("the work waits");
        };
        run("job", &job, || receive.recv_timeout(LONG)).unwrap().expect("the job runs");
        assert_eq!(done.load(Ordering::SeqCst), value);
    }

    #[test]
    fn the_job_runs_while_the_work_waits_for_it() {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || (0..50).for_each(|n| job_is_waited_for(thread + n)));
            }
        });
    }

    #[test]
    fn no_job_outlives_its_caller() {
        for _ in 0..2_000 {
            let running = AtomicBool::new(false);
            let job = || {
                running.store(true, Ordering::SeqCst);
                std::thread::yield_now();
                running.store(false, Ordering::SeqCst);
            };
            run("job", &job, || ()).unwrap();
            assert!(!running.load(Ordering::SeqCst));
        }
    }

    #[test]
    fn panics_reach_the_caller() {
        let (send, receive) = channel();
        let job = || {
            send.send(()).expect("the work waits");
            panic!("planted");
        };
        let waits = || receive.recv_timeout(LONG).expect("the job runs");
        assert!(catch_unwind(AssertUnwindSafe(|| run("job", &job, waits))).is_err());
        let work = || panic!("planted");
        assert!(catch_unwind(AssertUnwindSafe(|| run("job", &|| (), work))).is_err());
    }
}
