//! Time that a function waits until its results are taken: by a slow reader of a pipe, by the disk, or
//! by a caller that takes values slowly. To the meter it is time inside the function, so the code that
//! writes reports it.
//!
//! The waits of a thread are summed in thread-local memory, which the meter of the thread takes at its
//! end. Cost of a report: two readings of the monotonic clock and, for a long write, two of the
//! processor clock.

use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use std::cell::Cell;

/// A write that takes less did not wait.
const SHORT_NS: u64 = 20_000;

thread_local! {
    static BLOCKED_NS: Cell<u64> = const { Cell::new(0) };
}

/// Runs `write` and counts the time in which it was off the processor as a wait for output.
pub fn writing<T>(write: impl FnOnce() -> T) -> T {
    let (began_ns, cpu_ns) = (monotonic_ns(), thread_cpu_ns());
    let written = write();
    let wall_ns = monotonic_ns().saturating_sub(began_ns);
    if wall_ns >= SHORT_NS {
        let used_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        BLOCKED_NS.set(BLOCKED_NS.get() + wall_ns.saturating_sub(used_ns));
    }
    written
}

/// Returns the waits of this thread since the last call.
pub(crate) fn take_blocked_ns() -> u64 {
    BLOCKED_NS.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_and_work_is_not() {
        take_blocked_ns();
        assert_eq!(writing(|| 7), 7);
        let until = thread_cpu_ns() + 20_000_000;
        writing(|| while thread_cpu_ns() < until {});
        let worked_ns = take_blocked_ns();
        writing(|| std::thread::sleep(std::time::Duration::from_millis(20)));
        assert!(take_blocked_ns() >= 19_000_000, "after {worked_ns} ns of a busy machine");
        assert_eq!(take_blocked_ns(), 0);
    }
}
