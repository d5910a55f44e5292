//! The results of a scan.

use crate::file::Incomplete;
use crate::mappings::Id;
use crate::state::State;
use crate::tally::Tally;
use std::path::PathBuf;

/// Maximum number of incomplete files to list.
pub const INCOMPLETE_MAX: usize = 1000;
/// Maximum number of error messages to keep.
pub(crate) const ERRORS_MAX: usize = 1000;

/// The result for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// Path.
    pub path: PathBuf,
    /// Size, bytes.
    pub size_bytes: u64,
    /// State after the action.
    pub now: State,
    /// State before the action.
    pub before: State,
    /// Why the action is incomplete, if it is.
    pub incomplete: Option<Incomplete>,
    /// Process ID and name of a process that maps the file, if one was found.
    pub mapped_by: Option<(u32, String)>,
    pub(crate) id: Id,
}

/// The totals of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirReport {
    /// Path.
    pub path: PathBuf,
    /// Depth below the root.
    pub depth: u32,
    /// Zero-based index of the root.
    pub root: usize,
    /// Totals of the directory and everything below it.
    pub tally: Tally,
}

/// The totals of one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootReport {
    /// The path as specified; `None` for a list.
    pub path: Option<PathBuf>,
    /// The totals.
    pub tally: Tally,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Report {
    /// The arguments, in order.
    pub roots: Vec<RootReport>,
    /// Directories down to the requested depth, sorted by path.
    pub directories: Vec<DirReport>,
    /// The files with the most resident pages before or after the action, largest first.
    pub top: Vec<FileReport>,
    /// The first [`INCOMPLETE_MAX`] files whose action is incomplete.
    pub incomplete: Vec<FileReport>,
    /// Total number of incomplete files.
    pub incomplete_count: u64,
    /// Number of skipped entries: those that are not regular files, and additional names of files and
    /// directories.
    pub skipped: u64,
    /// Messages of the first thousand errors.
    pub errors: Vec<String>,
    /// Total number of errors.
    pub errors_count: u64,
    /// Whether the scan was stopped early.
    pub stopped: bool,
}

impl Report {
    /// Returns the totals over all arguments.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.roots.iter().for_each(|root| total.add(&root.tally));
        total
    }
}
