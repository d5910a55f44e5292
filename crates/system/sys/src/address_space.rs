//! The limit on the address space of this process (`RLIMIT_AS`, `ulimit -v`).

use crate::proc::{self, parse};
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Limit below which all threads share one heap, bytes. glibc reserves 64 MiB for each further heap, and
/// has up to eight per processor.
#[cfg(target_env = "gnu")]
const ONE_HEAP_BELOW: u64 = 32 << 30;

/// Returns how much address space this process may still map in bytes; `None` if it is not limited.
pub fn left_bytes() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let status = proc::read_text(Path::new("/proc/self/status")).unwrap_or_default();
    Some(limit.saturating_sub(mapped_bytes(&status).unwrap_or(0)))
}

/// Returns the address space in use from the text of /proc/PID/status.
fn mapped_bytes(status: &str) -> Option<u64> {
    parse::field(status, "VmSize")?.checked_mul(1024)
}

/// Makes all threads share one heap if the address space is limited: the heaps of threads would take most
/// of it, and a thread without a heap maps a page for each allocation. Call this before the first thread
/// starts.
#[cfg(target_env = "gnu")]
pub fn share_heap_if_limited() {
    if getrlimit(Resource::As).current.is_some_and(|limit| limit < ONE_HEAP_BELOW) {
        // SAFETY: the call only changes a setting of the allocator, under the allocator's own lock.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Does nothing: only glibc has several heaps.
#[cfg(not(target_env = "gnu"))]
pub fn share_heap_if_limited() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapped_size_is_read() {
        assert_eq!(mapped_bytes("VmPeak:\t 9 kB\nVmSize:\t    3892 kB\n"), Some(3892 << 10));
        assert_eq!(mapped_bytes("Name:\tx\n"), None);
        let status = proc::read_text(Path::new("/proc/self/status")).unwrap();
        assert!(mapped_bytes(&status).unwrap() > 1 << 20);
    }
}
