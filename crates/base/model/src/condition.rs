//! The state of the cache before a run: asked for, made and proved.

use serde::{Deserialize, Serialize};

/// The state of the page cache that a run asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// No data of the set in memory.
    Cold,
    /// All data of the set in memory.
    Warm,
    /// Whatever is there; recorded, not changed.
    AsIs,
}

impl Condition {
    /// The word.
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

/// One way to make a run cold. Without one the laboratory takes the best that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColdBy {
    /// The cache of the whole machine is dropped.
    DropCaches,
    /// The file system of the set is mounted anew.
    Remount,
    /// The machine was started anew, and this is the first run since.
    Reboot,
}

impl ColdBy {
    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropCaches => "drop-caches",
            Self::Remount => "remount",
            Self::Reboot => "reboot",
        }
    }
}

/// What state file names, inodes and directories were in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metadata {
    /// Dropped with the whole cache, or by mounting our own image anew.
    Cold,
    /// Left in memory: data alone were dropped.
    Warm,
    /// Not known.
    Unknown,
}

/// What was found before and after a run, and what that proves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// What was asked for.
    pub asked: Condition,
    /// Whether the evidence shows it; `None` when nothing could be measured (see `reason`).
    pub proved: Option<bool>,
    /// How the condition was made: `fadvise`, `drop-caches`, `remount`, `reboot`, `read`,
    /// `walk`, `none`.
    pub made_by: String,
    /// State of names and inodes.
    pub metadata: Metadata,
    /// Files in the sample looked at before the run.
    pub sampled_files: u64,
    /// Share of the sample's pages that were resident before the run, 0 to 1; `None` where the
    /// kernel cannot say.
    pub resident_before: Option<f64>,
    /// Bytes that the process had from the device, from /proc/self/io.
    pub device_bytes: Option<u64>,
    /// `device_bytes` over the bytes of the files, 0 to 1 and above with read-ahead.
    pub device_share: Option<f64>,
    /// Bytes that all devices of the set read during the run, from /proc/diskstats.
    pub diskstats_bytes: Option<u64>,
    /// One sentence: why it is proved, refuted or unknown.
    pub reason: String,
}
