//! CPU time and memory of this process, from the system.

use crate::PeerError;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::path::PathBuf;

/// CPU time of all threads of this process so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// User time in nanoseconds.
    pub user_ns: u64,
    /// System time in nanoseconds.
    pub kernel_ns: u64,
}

impl CpuTime {
    /// Reads the current values.
    ///
    /// # Errors
    /// If getrusage fails.
    pub fn now() -> Result<Self, PeerError> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(|e| PeerError::Start {
            what: "the measurement of processor time",
            reason: e.to_string(),
        })?;
        Ok(Self { user_ns: nanos(usage.user_time()), kernel_ns: nanos(usage.system_time()) })
    }

    /// Returns the difference to `start`.
    #[must_use]
    pub fn since(self, start: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(start.user_ns),
            kernel_ns: self.kernel_ns.saturating_sub(start.kernel_ns),
        }
    }
}

/// Converts a time value of the system to nanoseconds; zero if it is negative.
pub fn nanos(time: TimeVal) -> u64 {
    u64::try_from(time.tv_sec() * 1_000_000_000 + time.tv_usec() * 1000).unwrap_or(0)
}

/// Returns the peak resident memory of this program in bytes: `VmHWM` of /proc/self/status.
/// getrusage is not used because its figure starts from the parent's.
///
/// # Errors
/// /proc cannot be read or has no such line.
pub fn peak_rss_bytes() -> Result<u64, PeerError> {
    let path = PathBuf::from("/proc/self/status");
    let text = std::fs::read_to_string(&path).map_err(PeerError::file("read", &path))?;
    text.lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| PeerError::File {
            operation: "find VmHWM in",
            path,
            source: std::io::Error::from(std::io::ErrorKind::InvalidData),
        })
}
