//! SIGINT, SIGTERM and SIGHUP as flags that a command polls.

use crate::exit::Exit;
use ioloom_sys::signals::{FirstSignal, SAME_REQUEST};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Time between two looks at the flag.
const LOOK: Duration = Duration::from_millis(20);

/// The flag of this command, for writes to readers that may be stalled.
static SHARED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The number of the signal that raised it, where the command records it.
static SHARED_SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Makes the flag of this command known to [`is_raised`].
pub(crate) fn share(flag: &Arc<AtomicBool>) {
    let _ = SHARED.set(Arc::clone(flag));
}

/// Reports whether the flag of this command is raised. False for commands that have none.
pub(crate) fn is_raised() -> bool {
    SHARED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Raises the flag of this command without a signal, for a program that must end.
#[cfg(feature = "exchange")]
pub(crate) fn raise() {
    SHARED.get_or_init(Arc::default).store(true, Ordering::Relaxed);
}

/// Returns the exit code for the signal that raised the flag of this command.
pub(crate) fn exit() -> Exit {
    SHARED_SIGNAL.get().map_or(Exit::Interrupted, |signal| exit_for(signal))
}

fn exit_for(signal: &AtomicUsize) -> Exit {
    match i32::try_from(signal.load(Ordering::Relaxed)) {
        Ok(SIGHUP) => Exit::Hangup,
        Ok(SIGTERM) => Exit::Terminated,
        _ => Exit::Interrupted,
    }
}

/// Returns a flag raised by the first interrupt; one that arrives [`SAME_REQUEST`] later terminates the program
/// immediately.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    stop_flag_of(stopping_signals())
}

/// Like [`stop_flag`], for these signals.
pub(crate) fn stop_flag_of(signals: impl IntoIterator<Item = i32>) -> Arc<AtomicBool> {
    let (stop, first) = (Arc::new(AtomicBool::new(false)), FirstSignal::default());
    for signal in signals {
        // Order matters: the shutdown handler must see the flag before this interrupt raises it.
        let _ = first.end_when_repeated(signal, Exit::Interrupted as i32, stop.clone());
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    share(&stop);
    stop
}

/// Signals that stop a copy or a walk: SIGHUP, SIGINT and SIGTERM, unless they are ignored, as under
/// `nohup`.
pub(crate) struct StopSignals {
    /// Raised by the first signal; one that arrives [`SAME_REQUEST`] later terminates the program immediately,
    /// unless [`StopSignals::catch_every`] has installed the handlers.
    pub(crate) flag: Arc<AtomicBool>,
    /// The number of the signal.
    signal: Arc<AtomicUsize>,
}

impl StopSignals {
    /// Installs the handlers. What an earlier call has caught is settled: a signal from now on is the
    /// first again.
    pub(crate) fn catch() -> Self {
        Self::install(true)
    }

    /// Like [`StopSignals::catch`], but no signal terminates the program: it could not restore its terminal. A
    /// SIGTERM or SIGHUP that an earlier call has caught raises the flag.
    pub(crate) fn catch_every() -> Self {
        Self::install(false)
    }

    fn install(second_terminates: bool) -> Self {
        /// Earlier calls, and their handlers that terminate the program.
        static EARLIER: Mutex<Vec<(StopSignals, Vec<SigId>)>> = Mutex::new(Vec::new());
        let mut earlier = EARLIER.lock().unwrap_or_else(PoisonError::into_inner);
        for handler in earlier.iter_mut().flat_map(|(_, handlers)| handlers.drain(..)) {
            signal_hook::low_level::unregister(handler);
        }
        let new = Self { flag: Arc::default(), signal: Arc::default() };
        let (mut handlers, first) = (Vec::new(), FirstSignal::default());
        for number in caught_signals() {
            if second_terminates {
                // Order matters: the shutdown handler must see the flag before this signal raises it.
                handlers.extend(first.end_when_repeated(number, 128 + number, new.flag.clone()));
            }
            let value = usize::try_from(number).unwrap_or_default();
            let _ = signal_hook::flag::register_usize(number, new.signal.clone(), value);
            let _ = signal_hook::flag::register(number, new.flag.clone());
        }
        // After the registration, so no signal is lost between the two.
        for (old, _) in earlier.iter() {
            let was_raised = old.flag.swap(false, Ordering::Relaxed);
            let ends = matches!(old.exit(), Exit::Terminated | Exit::Hangup);
            if was_raised && ends && !second_terminates {
                new.signal.store(old.signal.load(Ordering::Relaxed), Ordering::Relaxed);
                new.flag.store(true, Ordering::Relaxed);
            }
        }
        earlier.push((Self { flag: new.flag.clone(), signal: new.signal.clone() }, handlers));
        new
    }

    /// Returns the exit code: 128 plus the number of the signal.
    pub(crate) fn exit(&self) -> Exit {
        exit_for(&self.signal)
    }

    /// Makes the flag and the signal known to [`is_raised`] and [`exit`].
    pub(crate) fn share(&self) {
        share(&self.flag);
        let _ = SHARED_SIGNAL.set(Arc::clone(&self.signal));
    }
}

/// Returns whether a signal repeats the request of the first one, for threads that wait for signals.
pub(crate) fn is_repeated(first: &mut Option<Instant>, now: Instant) -> bool {
    now.saturating_duration_since(*first.get_or_insert(now)) >= SAME_REQUEST
}

/// How long a run that was asked to stop may take.
const GRACE: Duration = Duration::from_secs(2);

/// Runs `f` in a thread, so that this one receives signals even if all others are blocked in calls
/// that no signal ends, as by a server that does not answer. If `may_block` returns true for two seconds
/// after the first signal, `stuck` is called and must end the process.
pub(crate) fn unless_stuck<T: Send>(
    stop: &AtomicBool,
    may_block: impl Fn() -> bool,
    stuck: impl FnOnce() -> std::convert::Infallible,
    f: impl FnOnce() -> T + Send,
) -> T {
    let (waiting, work) = (std::thread::current(), Mutex::new(Some(f)));
    let done = AtomicBool::new(false);
    let run = || {
        let f = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let result = f.expect("it runs once: in the thread, or here if none could be started")();
        done.store(true, Ordering::Release);
        waiting.unpark();
        result
    };
    std::thread::scope(|scope| {
        let Ok(thread) = Builder::new().spawn_scoped(scope, run) else { return run() };
        let mut since = None;
        // If it panics, it ends without that.
        while !done.load(Ordering::Acquire) && !thread.is_finished() {
            std::thread::park_timeout(LOOK);
            let is_blocked = stop.load(Ordering::Relaxed) && may_block();
            if is_stuck(&mut since, is_blocked, Instant::now()) {
                match stuck() {}
            }
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns whether a run that was asked to stop has been blocked for [`GRACE`]; `since` is when that began.
fn is_stuck(since: &mut Option<Instant>, is_blocked: bool, now: Instant) -> bool {
    if !is_blocked {
        *since = None;
        return false;
    }
    now.saturating_duration_since(*since.get_or_insert(now)) >= GRACE
}

/// Returns SIGINT, SIGTERM and, unless this process ignores it, SIGHUP. Scripts start programs in the
/// background with SIGINT ignored, and then send it to end them.
pub(crate) fn stopping_signals() -> impl Iterator<Item = i32> {
    let hangup = caught_signals().filter(|signal| *signal == SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup)
}

/// Returns the signals that stop a command, unless this process ignores them.
fn caught_signals() -> impl Iterator<Item = i32> {
    [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|number| !ignores(*number))
}

/// Returns whether this process ignores a signal, as it does SIGHUP under `nohup`.
pub(crate) fn ignores(signal: i32) -> bool {
    ignored_signals() >> (signal - 1) & 1 == 1
}

/// Returns the signals that this process ignores, as a bit mask.
fn ignored_signals() -> u64 {
    let text = ioloom_sys::proc::read_text(Path::new("/proc/self/status")).unwrap_or_default();
    let mask = ioloom_sys::proc::parse::value(&text, "SigIgn");
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0)
}

/// Returns a flag raised by any number of interrupts. For a child that can receive an interrupt
/// twice: from the terminal and from its parent.
pub(crate) fn drain_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in stopping_signals() {
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    share(&stop);
    stop
}

/// Runs `f` in a thread. Returns `None` as soon as the flag is raised; the thread then goes on, and
/// ends with the process. If no thread can be started, `f` runs here.
pub(crate) fn unless_raised<T, F>(stop: &AtomicBool, f: F) -> Option<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (sender, receiver) = channel();
    let work = Arc::new(Mutex::new(Some(f)));
    let taken = work.clone();
    let take = move || work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let started = Builder::new().spawn(move || {
        let f = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        f.map(|f| sender.send(f()))
    });
    let Ok(thread) = started else { return take().map(|f| f()) };
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(_) => return None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_goes_on_meanwhile_is_not_stuck() {
        let (mut since, begun) = (None, Instant::now());
        assert!(!is_stuck(&mut since, true, begun));
        assert!(!is_stuck(&mut since, true, begun + GRACE / 2));
        assert!(is_stuck(&mut since, true, begun + GRACE));
        // As while data is written back, however long that takes.
        assert!(!is_stuck(&mut since, false, begun + GRACE * 9));
        assert!(!is_stuck(&mut since, true, begun + GRACE * 10));
        assert!(is_stuck(&mut since, true, begun + GRACE * 11));
    }

    #[test]
    fn a_repeated_signal_is_not_a_second_request() {
        let (mut first, begun) = (None, Instant::now());
        assert!(!is_repeated(&mut first, begun));
        // As `timeout` signals the process, and then its group.
        assert!(!is_repeated(&mut first, begun));
        assert!(!is_repeated(&mut first, begun + SAME_REQUEST / 2));
        assert!(is_repeated(&mut first, begun + SAME_REQUEST));
    }

    /// Runs `check` in a child, which a wrong handler would end with another code, and expects true. `test` is the
    /// name of the calling test.
    fn in_child(test: &str, check: impl FnOnce() -> bool) {
        const CHILD: &str = "IOLOOM_TEST_SIGNALS";
        if std::env::var_os(CHILD).is_some() {
            std::process::exit(if check() { 9 } else { 8 });
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args([test, "--nocapture"]).env(CHILD, "1");
        assert_eq!(child.status().unwrap().code(), Some(9));
    }

    #[test]
    fn no_signal_terminates_a_program_that_catches_every_one() {
        in_child("no_signal_terminates_a_program", || {
            let (_earlier, signals) = (StopSignals::catch(), StopSignals::catch_every());
            for _ in 0..3 {
                signal_hook::low_level::raise(SIGTERM).unwrap();
            }
            signals.flag.load(Ordering::Relaxed) && signals.exit() == Exit::Terminated
        });
    }

    #[test]
    fn signals_at_the_same_time_do_not_terminate_the_program() {
        in_child("signals_at_the_same_time", || {
            let (signals, stop) = (StopSignals::catch(), stop_flag());
            for number in [SIGTERM, SIGINT, SIGTERM] {
                signal_hook::low_level::raise(number).unwrap();
            }
            signals.flag.load(Ordering::Relaxed) && stop.load(Ordering::Relaxed)
        });
    }

    #[test]
    fn a_signal_before_every_one_is_caught_is_not_lost_unless_it_is_an_interrupt() {
        in_child("a_signal_before_every_one", || {
            let caught_after = |number: i32| {
                let earlier = StopSignals::catch();
                signal_hook::low_level::raise(number).unwrap();
                let signals = StopSignals::catch_every();
                let is_settled = !earlier.flag.load(Ordering::Relaxed);
                (is_settled, signals.flag.load(Ordering::Relaxed), signals.exit())
            };
            caught_after(SIGINT) == (true, false, Exit::Interrupted)
                && caught_after(SIGTERM) == (true, true, Exit::Terminated)
        });
    }

    #[test]
    fn a_raised_flag_ends_the_wait_but_not_a_finished_call() {
        let stop = AtomicBool::new(false);
        assert_eq!(unless_raised(&stop, || 1), Some(1));
        let (blocked, never) = channel::<()>();
        let raised = AtomicBool::new(true);
        assert!(unless_raised(&raised, move || never.recv().is_ok()).is_none());
        drop(blocked);
    }
}
