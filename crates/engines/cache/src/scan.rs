//! The description of a scan: what to do with the files of trees or lists.

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
        /// Whether to write dirty pages first.
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

/// The progress of a scan, which other threads may read.
#[derive(Debug, Default)]
pub struct CacheProgress {
    /// Completed files.
    pub files: AtomicU64,
    /// Sizes of these files, bytes.
    pub bytes: AtomicU64,
}

/// A scan of trees or lists.
pub struct Scan<'a> {
    /// The action on each file.
    pub action: Action,
    /// Number of files with the most resident pages to report.
    pub top: usize,
    /// Depth of the deepest directories to report; 0 for none.
    pub depth_max: u32,
    /// Number of threads for the walk.
    pub threads: Threads,
    /// Stops the scan early when set to true.
    pub stop: Arc<AtomicBool>,
    /// The progress.
    pub progress: Arc<CacheProgress>,
    /// Called for each file, from many threads.
    pub each: Option<&'a (dyn Fn(&FileReport) + Sync)>,
}
