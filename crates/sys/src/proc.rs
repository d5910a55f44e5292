//! Plain records from /proc and /sys.

/// The number of descriptors that this process may have open; `None` without a limit.
pub fn open_files_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}
