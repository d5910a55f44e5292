//! The description of a scan: what to do with the files of a tree or list.

use crate::report::FileReport;
use ioloom_failure::Operation;
use ioloom_walk::Threads;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The action on each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Only query the page cache.
    Status,
    /// Evict the file from the page cache.
    Drop {
        /// Write dirty pages first.
        write: bool,
    },
    /// Read the file into the page cache.
    Warm,
}

impl Action {
    pub(crate) const fn operation(self) -> Operation {
        match self {
            Self::Status => Operation::Residency,
            Self::Drop { .. } => Operation::Evict,
            Self::Warm => Operation::Prefetch,
        }
    }
}

/// The progress of a scan; other threads can read it at any time.
#[derive(Debug, Default)]
pub struct CacheProgress {
    /// Number of completed files.
    pub files: AtomicU64,
    /// Total size of these files in bytes.
    pub bytes: AtomicU64,
    /// Number of threads that write data back or drop pages, which takes its time and ends.
    pub writing: AtomicU64,
}

/// A scan of trees or lists.
pub struct Scan<'a> {
    /// The action on each file.
    pub action: Action,
    /// How many of the files with the most resident pages to report.
    pub top: usize,
    /// Maximum depth of reported directories; 0 for none.
    pub depth_max: u32,
    /// Number of walker threads.
    pub threads: Threads,
    /// Stops the scan early when set to true.
    pub stop: Arc<AtomicBool>,
    /// The progress.
    pub progress: Arc<CacheProgress>,
    /// Called for each file, from several threads.
    pub each: Option<&'a (dyn Fn(&FileReport) + Sync)>,
}
