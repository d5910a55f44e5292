//! The memory and file descriptors that a plan requires.

use ioloom_model::layout::Layout;
use ioloom_model::{Method, Plan};

/// Least size of the first read of a file whose size is not known, bytes.
pub(crate) const FIRST_READ_MIN: u64 = 4 << 10;

/// Descriptors for standard streams, the walk and the caller: a quarter of the limit.
const OWN_MIN: u64 = 8;
const OWN_MAX: u64 = 64;

/// Returns the least memory budget with `at_once` files at once, bytes. Half of it is for first
/// buffers, the other half for files that turn out to be large.
pub(crate) fn memory_bytes(at_once: u64) -> u64 {
    at_once.saturating_mul(2 * FIRST_READ_MIN)
}

/// Returns how many descriptors `at_once` files and the threads of a plan use at most.
pub(crate) fn descriptors(plan: &Plan, layout: &Layout, at_once: u64) -> u64 {
    // A thread has its own statistics in /proc open, and its ring.
    let per_thread = 1 + u64::from(plan.method.needs_ring());
    at_once + u64::from(layout.threads_max()) * per_thread
}

/// Returns the smallest limit on open files under which a plan may use `wanted` descriptors.
pub(crate) fn open_files_limit(wanted: u64) -> u64 {
    wanted + (wanted / 3).clamp(OWN_MIN, OWN_MAX)
}

/// Reports whether a plan with a window fits its memory budget and a limit on open files.
pub(crate) fn fits(plan: &Plan, layout: &Layout, limit: u64) -> bool {
    // A window does not depend on the number of files.
    let at_once = layout.files_at_once(1);
    let has_memory = plan.chunk_bytes.is_some()
        || plan.method == Method::Null
        || memory_bytes(at_once) <= plan.memory_bytes;
    has_memory && open_files_limit(descriptors(plan, layout, at_once)) <= limit
}
