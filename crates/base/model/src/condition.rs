//! The state of the page cache before a run: required, established and verified.

use serde::{Deserialize, Serialize};

/// The state of the page cache that a run requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// No data of the file set is in memory.
    Cold,
    /// All data of the file set is in memory.
    Warm,
    /// Left unchanged and only recorded.
    AsIs,
}

impl Condition {
    /// Returns the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::AsIs => "as-is",
        }
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A way to evict the cache before a run. By default the laboratory uses the best available one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColdBy {
    /// Drop the page cache of the whole machine.
    DropCaches,
    /// Remount the file system that contains the set.
    Remount,
    /// Reboot; applies only to the first run afterwards.
    Reboot,
}

impl ColdBy {
    /// Returns the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropCaches => "drop-caches",
            Self::Remount => "remount",
            Self::Reboot => "reboot",
        }
    }
}

/// State of cached file names, inodes and directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metadata {
    /// Dropped with the whole cache or by remounting an image.
    Cold,
    /// Still in memory: only data was dropped.
    Warm,
    /// Unknown.
    Unknown,
}

/// Evidence for the condition of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// Required condition.
    pub asked: Condition,
    /// Whether the evidence confirms it; `None` if nothing could be measured (see `reason`).
    pub proved: Option<bool>,
    /// How the condition was established: `fadvise`, `drop-caches`, `remount`, `reboot`, `read`,
    /// `walk`, `none`.
    pub made_by: String,
    /// State of cached names and inodes.
    pub metadata: Metadata,
    /// Number of files in the sample before the run.
    pub sampled_files: u64,
    /// Share of sampled pages that were resident before the run, 0 to 1; `None` if the kernel
    /// cannot report it.
    pub resident_before: Option<f64>,
    /// Bytes that the process read from the device, from /proc/self/io.
    pub device_bytes: Option<u64>,
    /// `device_bytes` divided by what a device must deliver for the files: whole pages, without holes, and
    /// once for a file with several names. Can exceed 1 with readahead.
    pub device_share: Option<f64>,
    /// Bytes read during the run from all devices that contain the set, from /proc/diskstats.
    pub diskstats_bytes: Option<u64>,
    /// Time of a second cold read of a sample of the set relative to the first, the larger of two
    /// samples, measured once per session. Clearly below 1 if a cache below this kernel, such as that of a
    /// hypervisor, holds the data; near 1 if there is none or it held the data before. `None` if it was
    /// not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_read: Option<f64>,
    /// Why the condition is confirmed, refuted or unknown, in one sentence.
    pub reason: String,
}
