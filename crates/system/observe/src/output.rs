//! Waits inside the function whose cause is known: until its results are taken, by a slow reader of a
//! pipe, by the disk, or by a caller that takes values slowly; until the memory budget has room for a
//! reservation; and for child processes. So are those at the end of a file of several pieces, of which
//! not all are timed. To the meter they are time inside the function, so the code that waits reports them.
//!
//! The waits of a thread are summed in thread-local memory, which the meter of the thread takes at its
//! end. Cost of a report: two readings of the monotonic clock and, for a long wait, two of the
//! processor clock.

use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use std::cell::Cell;

/// A call that takes less did not wait.
const SHORT_NS: u64 = 20_000;

thread_local! {
    static WAITS: Cell<KnownWaits> = const { Cell::new(KnownWaits::NONE) };
}

/// Waits of a thread inside the function, nanoseconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownWaits {
    pub(crate) output_ns: u64,
    pub(crate) reserve_ns: u64,
    pub(crate) child_ns: u64,
    /// Other waits at the end of files of several pieces.
    pub(crate) finish_ns: u64,
    /// Processor time of helpers in the other waits.
    pub(crate) helper_ns: u64,
    /// Time in which children of `child_ns` were ready to run.
    pub(crate) child_ready_ns: u64,
}

impl KnownWaits {
    const NONE: Self = Self {
        output_ns: 0,
        reserve_ns: 0,
        child_ns: 0,
        finish_ns: 0,
        helper_ns: 0,
        child_ready_ns: 0,
    };

    /// Returns the sum of the waits.
    pub(crate) fn all_ns(&self) -> u64 {
        self.output_ns + self.reserve_ns + self.child_ns + self.finish_ns
    }
}

/// Runs `write` and counts the time in which it was off the processor as a wait for output.
pub fn writing<T>(write: impl FnOnce() -> T) -> T {
    counting(write, |waits| &mut waits.output_ns)
}

/// Runs `reserve` and counts the time in which it was off the processor as a wait for the memory budget.
pub fn reserving<T>(reserve: impl FnOnce() -> T) -> T {
    counting(reserve, |waits| &mut waits.reserve_ns)
}

/// Runs `wait` and counts the time in which it was off the processor as a wait for a child process.
pub fn waiting_for_child<T>(wait: impl FnOnce() -> T) -> T {
    counting(wait, |waits| &mut waits.child_ns)
}

/// Runs the end of a function on a file of several pieces, and counts the time in which it was off the
/// processor: its time says nothing about that of other pieces.
pub fn finishing<T>(finish: impl FnOnce() -> T) -> T {
    counting(finish, |waits| &mut waits.finish_ns)
}

/// Counts processor time of a thread that ran the function while the calling thread waited for it.
pub fn helped(cpu_ns: u64) {
    let mut waits = WAITS.get();
    waits.helper_ns += cpu_ns;
    WAITS.set(waits);
}

/// Counts time in which a child was ready to run without running, while the calling thread waited for it.
pub fn child_was_ready(ready_ns: u64) {
    let mut waits = WAITS.get();
    waits.child_ready_ns += ready_ns;
    WAITS.set(waits);
}

/// A wait inside of another one counts once, as the inner one.
fn counting<T>(call: impl FnOnce() -> T, sum: fn(&mut KnownWaits) -> &mut u64) -> T {
    let before_ns = WAITS.get().all_ns();
    let (began_ns, cpu_ns) = (monotonic_ns(), thread_cpu_ns());
    let returned = call();
    let wall_ns = monotonic_ns().saturating_sub(began_ns);
    if wall_ns >= SHORT_NS {
        let used_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        let mut waits = WAITS.get();
        let inner_ns = waits.all_ns().saturating_sub(before_ns);
        *sum(&mut waits) += wall_ns.saturating_sub(used_ns + inner_ns);
        WAITS.set(waits);
    }
    returned
}

/// Returns the sum of the waits of this thread since they were taken.
pub(crate) fn known_ns() -> u64 {
    WAITS.get().all_ns()
}

/// Returns the waits of this thread since the last call.
pub(crate) fn take_known_waits() -> KnownWaits {
    WAITS.take()
}

/// Sets the waits of this thread, for a caller that had taken them.
pub(crate) fn put_known_waits(waits: KnownWaits) {
    WAITS.set(waits);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_and_work_is_not() {
        take_known_waits();
        assert_eq!(writing(|| 7), 7);
        let until = thread_cpu_ns() + 20_000_000;
        writing(|| while thread_cpu_ns() < until {});
        let worked = take_known_waits();
        writing(|| std::thread::sleep(std::time::Duration::from_millis(20)));
        let waited = take_known_waits();
        assert!(waited.output_ns >= 19_000_000, "after {worked:?} of a busy machine");
        assert_eq!((worked.reserve_ns, waited.reserve_ns), (0, 0));
        reserving(|| std::thread::sleep(std::time::Duration::from_millis(20)));
        let waited = take_known_waits();
        assert!(waited.reserve_ns >= 19_000_000 && waited.output_ns == 0, "{waited:?}");
        waiting_for_child(|| std::thread::sleep(std::time::Duration::from_millis(20)));
        let waited = take_known_waits();
        assert!(waited.child_ns >= 19_000_000 && waited.output_ns == 0, "{waited:?}");
        finishing(|| writing(|| std::thread::sleep(std::time::Duration::from_millis(20))));
        let inner = take_known_waits();
        assert!(inner.output_ns > inner.finish_ns, "{inner:?}");
        finishing(|| std::thread::sleep(std::time::Duration::from_millis(20)));
        assert!(take_known_waits().finish_ns >= 19_000_000);
        helped(5);
        helped(2);
        assert_eq!(take_known_waits(), KnownWaits { helper_ns: 7, ..KnownWaits::default() });
        child_was_ready(3);
        child_was_ready(4);
        assert_eq!(take_known_waits(), KnownWaits { child_ready_ns: 7, ..KnownWaits::default() });
        assert_eq!(take_known_waits(), KnownWaits::default());
    }
}
