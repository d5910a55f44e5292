//! The plan of a run that names none.

use ioloom_model::{Method, Plan, Schedule};
use ioloom_sys::file::{self, Nowait, OpenHow};
use std::path::Path;

/// Requests in flight when nothing is said; `docs/decisions/006.md` says why.
const WINDOW: u64 = 512;
/// The same where only threads can wait for reads.
const WINDOW_BLOCKING: u64 = 256;
/// Bytes of the memory budget that one of them wants.
const MEMORY_EACH: u64 = 512 << 10;

/// The plan that is used when none is given, within `memory_bytes`: reads that do not wait in a window
/// of 512, compute on the usable cores. The window is smaller where memory or the limit of open files
/// asks for it. Kept measurements under `results/` compare it with what users write today.
pub fn default_plan(memory_bytes: u64) -> Plan {
    window_of(Method::Nowait, WINDOW, memory_bytes)
}

/// The default plan for a list that begins with `path`: where its file system cannot answer a read
/// without waiting, blocking reads in a window of 256 threads.
pub fn default_plan_for(path: &Path, memory_bytes: u64) -> Plan {
    if answers_nowait(path) {
        default_plan(memory_bytes)
    } else {
        window_of(Method::Read, WINDOW_BLOCKING, memory_bytes)
    }
}

fn window_of(method: Method, most: u64, memory_bytes: u64) -> Plan {
    // A thread holds a file and its own account open, and others want some too.
    let files = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX).saturating_sub(128) / 3;
    let window = most.min(memory_bytes / MEMORY_EACH).min(files).max(2) as u32;
    let schedule = Schedule::Window { window, permits: Some(usable_cores()) };
    Plan { memory_bytes, ..Plan::new(method, schedule) }
}

/// Asked by use, of one byte. What cannot be opened is no reason against it: the run will tell.
fn answers_nowait(path: &Path) -> bool {
    let Ok(file) = file::open(path, OpenHow::default()) else { return true };
    !matches!(file::read_nowait_at(&file, &mut [0], 0), Ok(Nowait::Unsupported))
}

/// Processors that this process may use: affinity and control-group quota, at least one.
pub fn usable_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}
