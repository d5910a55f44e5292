//! Artificial service time.

use ioloom_sys::clock;
use std::time::Duration;

/// Keeps the calling thread busy until it has used this much CPU time. Time while the thread is
/// preempted does not count; otherwise many threads could appear to spend more CPU time than there
/// is.
pub(crate) fn spend(time: Duration) {
    if time.is_zero() {
        return;
    }
    let end = u128::from(clock::thread_cpu_ns()) + time.as_nanos();
    while u128::from(clock::thread_cpu_ns()) < end {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_spent() {
        let began = clock::thread_cpu_ns();
        spend(Duration::from_millis(2));
        assert!(clock::thread_cpu_ns() - began >= 2_000_000);
    }
}
