//! Threads: affinity, names and accounting.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// How many processors the affinity mask of this process allows, at least 1.
pub fn affinity_count() -> u32 {
    sched_getaffinity(None).map_or(1, |set| set.count().max(1))
}

/// Binds the calling thread to one processor.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    crate::fault::call("sched_setaffinity", || {
        let mut set = CpuSet::new();
        set.set(cpu);
        Ok(sched_setaffinity(None, &set)?)
    })
}

/// The soft and hard limit of open files; `None` is no limit.
pub fn open_files_limit() -> (Option<u64>, Option<u64>) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    (limit.current, limit.maximum)
}

/// Raises the soft limit of open files to the hard one and returns it.
pub fn raise_open_files_limit() -> u64 {
    let (soft, hard) = open_files_limit();
    if soft != hard {
        let wanted = rustix::process::Rlimit { current: hard, maximum: hard };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted);
    }
    open_files_limit().0.unwrap_or(u64::MAX)
}
