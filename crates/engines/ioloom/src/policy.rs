//! What a run does with results, failures and progress.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a run does when a file fails. It does not apply where failures are results: in iterators,
/// [`scope`](crate::Job::scope) and [`fold_results`](crate::Job::fold_results).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Stop at the first failure and return it.
    #[default]
    Stop,
    /// Count failures and go on.
    Skip,
    /// Go on, keep up to 1000 failures in [`Run::errors`](crate::Run::errors) and count all.
    Collect,
}

/// The order of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As they become ready.
    #[default]
    Any,
    /// In the order of the input.
    Input,
}

/// Progress of a run, reported about ten times a second.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Files processed.
    pub files: u64,
    /// Files that failed, and directories that could not be walked.
    pub failed: u64,
    /// Bytes processed.
    pub bytes: u64,
    /// Files found so far: of a tree by its walk, of a stream by its iterator.
    pub files_found: u64,
    /// Number of files, once it is known: of a tree or a stream when all of it was found.
    pub files_total: Option<u64>,
    /// Bytes of all files, if the caller has set them.
    pub bytes_total: Option<u64>,
    /// A file that the function has begun since the last report.
    pub current: Option<PathBuf>,
}

/// The file that the function works on, for reports of progress. A thread that begins a file stores
/// its path only if a report has asked for one.
#[derive(Debug, Default)]
pub(crate) struct Current {
    wanted: AtomicBool,
    path: Mutex<Option<PathBuf>>,
}

impl Current {
    /// Notes that the function begins a file.
    #[inline]
    pub(crate) fn begins(&self, path: &Path) {
        if self.wanted.load(Ordering::Relaxed) {
            self.store(path);
        }
    }

    #[cold]
    fn store(&self, path: &Path) {
        if self.wanted.swap(false, Ordering::Relaxed) {
            *self.path.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
                Some(path.to_owned());
        }
    }

    /// Returns the path stored since the last call, and requests the next one.
    pub(crate) fn next(&self) -> Option<PathBuf> {
        let path = self.path.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        self.wanted.store(true, Ordering::Relaxed);
        path
    }
}

pub(crate) type ProgressFn<'a> = Box<dyn Fn(Progress) + Sync + Send + 'a>;
