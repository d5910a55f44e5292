//! Clocks.
//!
//! All times are CLOCK_MONOTONIC in nanoseconds, the clock that can be aligned with kernel events.
//! One reading costs about 24 ns through the vDSO.

use crate::fault::call;
use rustix::time::{ClockId, clock_gettime};
use std::io;

/// Returns the time of the monotonic clock in nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    to_ns(clock_gettime(ClockId::Monotonic))
}

/// Returns the processor time of the calling thread in nanoseconds. This is a system call of about
/// 0.8 µs.
pub fn thread_cpu_ns() -> u64 {
    to_ns(clock_gettime(ClockId::ThreadCPUTime))
}

/// Returns the processor time of all threads of a process, including exited ones, in nanoseconds.
///
/// # Errors
/// Fails if there is no such process.
pub fn process_cpu_ns(pid: u32) -> io::Result<u64> {
    let none = || io::Error::from(io::ErrorKind::NotFound);
    let pid = libc::pid_t::try_from(pid).map_err(|_| none())?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is writable memory for the result of the call.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    let mut time = std::mem::MaybeUninit::<libc::timespec>::zeroed();
    call("clock_gettime", || {
        // SAFETY: `time` is writable memory of the size that the call fills.
        match unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })?;
    // SAFETY: zeroed above, and all-zero bytes are a valid timespec; the call filled it.
    let time = unsafe { time.assume_init() };
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Makes timed waits of the calling thread end on time. By default the kernel can delay them by 50
/// µs to save wake-ups. If the system refuses, nothing changes.
pub fn minimize_timer_slack() {
    let _ = call("prctl", || {
        Ok(rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?)
    });
}

/// Returns the milliseconds since 1970.
pub fn unix_ms() -> u64 {
    to_ns(clock_gettime(ClockId::Realtime)) / 1_000_000
}

fn to_ns(time: rustix::time::Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the median cost of [`monotonic_ns`] and the smallest non-zero step between two readings,
/// both in nanoseconds.
pub fn calibrate() -> (f64, u64) {
    const READS: usize = 2000;
    let mut step_min = u64::MAX;
    let mut costs = [0u64; 9];
    for cost in &mut costs {
        let start = monotonic_ns();
        let mut last = start;
        for _ in 0..READS {
            let now = monotonic_ns();
            if now > last {
                step_min = step_min.min(now - last);
            }
            last = now;
        }
        *cost = last - start;
    }
    costs.sort_unstable();
    (costs[costs.len() / 2] as f64 / READS as f64, step_min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_move_forward() {
        let (wall, cpu) = (monotonic_ns(), thread_cpu_ns());
        let mut sum = 0u64;
        while thread_cpu_ns() == cpu {
            sum = sum.wrapping_add(1);
        }
        assert!(sum < u64::MAX && monotonic_ns() > wall);
        assert!(calibrate().1 > 0);
    }

    #[test]
    fn a_process_has_at_least_the_time_of_one_thread() {
        let own = std::process::id();
        let before = process_cpu_ns(own).unwrap();
        let thread = thread_cpu_ns();
        while thread_cpu_ns() - thread < 2_000_000 {}
        assert!(process_cpu_ns(own).unwrap() - before >= 2_000_000);
        assert!(process_cpu_ns(u32::MAX).is_err());
    }
}
