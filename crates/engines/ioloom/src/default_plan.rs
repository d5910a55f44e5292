//! The plan of a run for which none was given.

use ioloom_model::{Method, Plan, Schedule, Tuning};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Default window; see `docs/decisions/006.md`.
const WINDOW: u64 = 512;
/// Threads that read with blocking calls where reads cannot return instead of blocking; see
/// `docs/decisions/008.md`.
const BLOCKING: u64 = 256;
/// Whether the number of files in flight is adjusted during a run without a plan.
const TUNING: Tuning = Tuning::Fixed;
/// Memory budget per file of the window, bytes.
const MEMORY_EACH: u64 = 512 << 10;

/// Returns the default plan for a memory budget of `memory_bytes`: reads that do not block in a
/// window of 512, compute on the usable cores. On filesystems that do not support such reads, up to
/// 256 additional threads read with blocking calls, and up to 512 while files take no longer than a
/// single one. All numbers are smaller if memory or the limit
/// on open files requires it. Measurements under `results/` compare this plan with what programs
/// commonly do.
pub fn default_plan(memory_bytes: u64) -> Plan {
    // What remains is for the walk, the engine and the caller.
    let limit = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
    let files = limit - (limit / 2).min(128);
    let by_memory = memory_bytes / MEMORY_EACH;
    let window = WINDOW.min(by_memory).min(files / 3).max(2) as u32;
    // Each blocking thread has a file and its own statistics open.
    let blocking = BLOCKING.min(by_memory / 2).min(files / 5).max(1) as u32;
    let schedule = Schedule::Window { window, permits: Some(usable_cores()) };
    let plan = Plan::new(Method::Nowait, schedule);
    let stripe = Plan::auto(TUNING).stripe;
    Plan { memory_bytes, blocking: Some(blocking), stripe, tuning: TUNING, ..plan }
}

/// How long the number of usable processors is remembered. Finding it reads files of the control
/// group, which takes longer than reading a small file.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Returns the processors that this process may use, from its affinity and control-group quota; at
/// least one. A change is noticed within a second.
pub fn usable_cores() -> u32 {
    static LAST: Mutex<Option<(Instant, u32)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match *last {
        Some((at, cores)) if at.elapsed() < REMEMBERED => cores,
        _ => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
            *last = Some((Instant::now(), cores));
            cores
        }
    }
}
