//! The plan of a run for which none was given.

use crate::required;
use ioloom_model::layout::layout;
use ioloom_model::{Method, Plan, Schedule, Tuning};
use ioloom_sys::{address_space, cgroup};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Default window; see `docs/decisions/006.md`.
const WINDOW: u64 = 512;
/// Threads that read with blocking calls where reads cannot return instead of blocking; see
/// `docs/decisions/008.md`.
const BLOCKING: u64 = 256;
/// Whether the number of files in flight is adjusted during a run without a plan.
const TUNING: Tuning = Tuning::Fixed;
/// Least default memory budget, bytes.
const MEMORY_LEAST: u64 = 4 << 20;
/// Memory budget per file of the window, bytes.
const MEMORY_EACH: u64 = 512 << 10;
/// Limit on the window that is enlarged to a file for each thread.
const WINDOW_MAX: u32 = 1 << 15;
/// A plan that does not fit is made smaller by one part in this many, until it fits.
const SMALLER: u32 = 16;

/// Returns the memory budget in bytes of a run for which none was given:
/// [`Plan::DEFAULT_MEMORY_BYTES`], or half of what the control groups of this process allow, or a quarter
/// of what the limit on its address space leaves, if that is less. A change is noticed within a second.
pub fn default_memory_bytes() -> u64 {
    static LAST: Mutex<Option<(Instant, u64)>> = Mutex::new(None);
    remembered(&LAST, || memory_within(cgroup::memory_limit_bytes(), address_space::left_bytes()))
}

/// Returns the default memory budget under the limit of a control group, with `address_space` bytes left
/// to map. Stacks of threads and the heap need the rest. The quarter is in whole MiB.
fn memory_within(limit_bytes: Option<u64>, address_space: Option<u64>) -> u64 {
    let half = limit_bytes.map_or(u64::MAX, |bytes| bytes / 2);
    let quarter = address_space.map_or(u64::MAX, |bytes| (bytes / 4) >> 20 << 20);
    Plan::DEFAULT_MEMORY_BYTES.min(half).min(quarter).max(MEMORY_LEAST)
}

/// Returns the default plan for a memory budget of `memory_bytes`: reads that do not block in a
/// window of 512, compute on the usable cores. On filesystems that do not support such reads, up to
/// 256 additional threads read with blocking calls, and up to 512 while files take no longer than a
/// single one. All numbers are smaller if memory, or the limit on open files together with the number of
/// cores, requires it. Measurements under `results/` compare this plan with what programs commonly do.
pub fn default_plan(memory_bytes: u64) -> Plan {
    sized(memory_bytes, limit_on_open_files(), usable_cores())
}

/// Returns a default plan with at most `threads` threads in the function at once. Its window has a file
/// for each, if memory and the limit on open files suffice.
pub(crate) fn with_threads(plan: Plan, threads: u32) -> Plan {
    computing_on(plan, threads, limit_on_open_files())
}

/// Returns a plan with fewer files in flight if its memory budget or the limit on open files requires
/// that. Plans without a window are returned unchanged.
pub fn fitted_plan(plan: Plan) -> Plan {
    fitted(plan, limit_on_open_files())
}

fn limit_on_open_files() -> u64 {
    ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX)
}

/// Returns the default plan under a limit on open files and for a number of usable cores.
fn sized(memory_bytes: u64, limit: u64, cores: u32) -> Plan {
    // What remains is for the walk, the engine and the caller.
    let files = limit - (limit / 2).min(128);
    let by_memory = memory_bytes / MEMORY_EACH;
    let window = WINDOW.min(by_memory).min(files / 3).max(2) as u32;
    // Each blocking thread has a file and its own statistics open.
    let blocking = BLOCKING.min(by_memory / 2).min(files / 5).max(1) as u32;
    let schedule = Schedule::Window { window, permits: Some(cores) };
    let plan = Plan::new(Method::Nowait, schedule);
    let stripe = Plan::auto(TUNING).stripe;
    fitted(Plan { memory_bytes, blocking: Some(blocking), stripe, tuning: TUNING, ..plan }, limit)
}

fn computing_on(mut plan: Plan, threads: u32, limit: u64) -> Plan {
    if let Schedule::Window { window, permits } = &mut plan.schedule {
        *window = threads.min(WINDOW_MAX).max(*window);
        *permits = Some(threads);
    }
    fitted(plan, limit)
}

/// Makes a plan smaller until it fits its memory budget and the limit on open files. The number of
/// workers depends on that of permits, and each has a descriptor.
fn fitted(mut plan: Plan, limit: u64) -> Plan {
    while let Ok(threads) = layout(&plan)
        && !required::fits(&plan, &threads, limit)
        && make_smaller(&mut plan)
    {}
    plan
}

/// Makes the window and the number of blocking threads a little smaller. Returns false if they are as small
/// as they may be.
fn make_smaller(plan: &mut Plan) -> bool {
    let Schedule::Window { window, .. } = &mut plan.schedule else { return false };
    let before = (*window, plan.blocking);
    let smaller = |number: u32, least| number.saturating_sub(number.div_ceil(SMALLER)).max(least);
    *window = smaller(*window, 2);
    plan.blocking = plan.blocking.map(|blocking| smaller(blocking, 1));
    before != (*window, plan.blocking)
}

/// How long the limits of this process are remembered. Finding them reads files of the control group,
/// which takes longer than reading a small file.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Returns the processors that this process may use, from its affinity and control-group quota; at
/// least one. A change is noticed within a second.
pub fn usable_cores() -> u32 {
    static LAST: Mutex<Option<(Instant, u32)>> = Mutex::new(None);
    remembered(&LAST, || std::thread::available_parallelism().map_or(1, |n| n.get() as u32))
}

/// Returns what `find` found within the last second, or finds it.
fn remembered<T: Copy>(last: &Mutex<Option<(Instant, T)>>, find: impl FnOnce() -> T) -> T {
    let mut last = last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match *last {
        Some((at, found)) if at.elapsed() < REMEMBERED => found,
        _ => {
            let found = find();
            *last = Some((Instant::now(), found));
            found
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = Plan::DEFAULT_MEMORY_BYTES;

    fn window_of(plan: &Plan) -> (u32, u32) {
        match plan.schedule {
            Schedule::Window { window, permits } => (window, permits.unwrap()),
            _ => panic!("{plan}"),
        }
    }

    #[test]
    fn default_plans_fit_whatever_the_number_of_threads() {
        for limit in [16, 64, 256, 512, 1024, 4096, u64::MAX] {
            for memory in [64 << 10, 256 << 10, 4 << 20, MEMORY] {
                for threads in [1, 8, 12, 16, 64, 700, u32::MAX] {
                    let default = sized(memory, limit, threads);
                    for plan in [default, computing_on(sized(memory, limit, 2), threads, limit)] {
                        let fits = required::fits(&plan, &layout(&plan).unwrap(), limit);
                        assert!(fits, "{plan}, limit {limit}, {threads} threads");
                        assert_eq!(window_of(&plan).1, threads);
                    }
                }
            }
        }
    }

    #[test]
    fn a_small_control_group_leaves_half_of_its_memory_to_the_caller() {
        for (limit, memory) in [
            (None, MEMORY),
            (Some(1 << 40), MEMORY),
            (Some(2 * MEMORY), MEMORY),
            (Some(128 << 20), 64 << 20),
            (Some(1 << 20), MEMORY_LEAST),
        ] {
            assert_eq!(memory_within(limit, None), memory, "{limit:?}");
        }
    }

    #[test]
    fn a_small_address_space_leaves_three_quarters_to_stacks_and_the_heap() {
        for (left, memory) in [
            (1 << 40, MEMORY),
            (4 * MEMORY, MEMORY),
            ((64 << 20) + 5000, 16 << 20),
            (1 << 20, MEMORY_LEAST),
            (0, MEMORY_LEAST),
        ] {
            assert_eq!(memory_within(None, Some(left)), memory, "{left} bytes left");
        }
        assert_eq!(memory_within(Some(16 << 20), Some(64 << 20)), 8 << 20, "the smaller one");
    }

    #[test]
    fn plans_that_fit_stay_as_large_as_they_were() {
        for (limit, cores, window, blocking) in
            [(1024, 8, 298, 179), (u64::MAX, 128, 512, 256), (20_000, 64, 512, 256)]
        {
            let plan = sized(MEMORY, limit, cores);
            assert_eq!((window_of(&plan), plan.blocking), ((window, cores), Some(blocking)));
        }
        let many = computing_on(sized(MEMORY, 20_000, 2), 700, 20_000);
        assert_eq!(window_of(&many), (700, 700), "a file for each thread");
    }
}
