//! The plan of a run for which none was given.

use ioloom_model::{Method, Plan, Schedule};
use ioloom_sys::file::{self, Nowait, OpenHow};
use std::path::Path;

/// Default window; see `docs/decisions/006.md`.
const WINDOW: u64 = 512;
/// Default window of blocking reads, each of which needs a thread.
const WINDOW_BLOCKING: u64 = 256;
/// Memory budget per file of the window, bytes.
const MEMORY_EACH: u64 = 512 << 10;

/// Returns the default plan for a memory budget of `memory_bytes`: reads that do not block in a
/// window of 512, compute on the usable cores. The window is smaller if memory or the limit on open
/// files requires it. Measurements under `results/` compare this plan with what programs commonly
/// do.
pub fn default_plan(memory_bytes: u64) -> Plan {
    window_of(Method::Nowait, WINDOW, memory_bytes)
}

/// Returns the default plan for a list that begins with `path`. If its file system does not support
/// reads that return instead of blocking, these are blocking reads in a window of 256 threads.
pub fn default_plan_for(path: &Path, memory_bytes: u64) -> Plan {
    if answers_nowait(path) {
        default_plan(memory_bytes)
    } else {
        window_of(Method::Read, WINDOW_BLOCKING, memory_bytes)
    }
}

fn window_of(method: Method, most: u64, memory_bytes: u64) -> Plan {
    // A thread has a file and its own statistics open; leave some for the rest of the process.
    let files = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX).saturating_sub(128) / 3;
    let window = most.min(memory_bytes / MEMORY_EACH).min(files).max(2) as u32;
    let schedule = Schedule::Window { window, permits: Some(usable_cores()) };
    Plan { memory_bytes, ..Plan::new(method, schedule) }
}

/// Probes with a read of one byte. A file that cannot be opened says nothing about its file system;
/// the run reports that error.
fn answers_nowait(path: &Path) -> bool {
    let Ok(file) = file::open(path, OpenHow::default()) else { return true };
    !matches!(file::read_nowait_at(&file, &mut [0], 0), Ok(Nowait::Unsupported))
}

/// Returns the processors that this process may use, from its affinity and control-group quota; at
/// least one.
pub fn usable_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}
