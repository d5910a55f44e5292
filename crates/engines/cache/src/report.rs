//! The results of a scan.

use crate::file::Incomplete;
use crate::mappings::Id;
use crate::state::State;
use crate::tally::Tally;
use std::path::PathBuf;

/// Maximum number of files that are listed as incomplete.
pub const INCOMPLETE_MAX: usize = 1000;
/// Maximum number of errors whose messages are kept.
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

/// Sums of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirReport {
    /// Path.
    pub path: PathBuf,
    /// Levels below its root.
    pub depth: u32,
    /// Index of its root, from 0.
    pub root: usize,
    /// Sums of everything in and below it.
    pub tally: Tally,
}

/// Sums of one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootReport {
    /// The path as given; `None` for a list.
    pub path: Option<PathBuf>,
    /// Sums.
    pub tally: Tally,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Report {
    /// The arguments in order.
    pub roots: Vec<RootReport>,
    /// Directories down to the requested depth, by path.
    pub directories: Vec<DirReport>,
    /// The files with the most resident pages before or after the action, the largest first.
    pub top: Vec<FileReport>,
    /// The first [`INCOMPLETE_MAX`] files for which the action is incomplete.
    pub incomplete: Vec<FileReport>,
    /// Number of all incomplete files.
    pub incomplete_count: u64,
    /// Number of entries that are not regular files, and of further names of files.
    pub skipped: u64,
    /// Messages of the first thousand errors.
    pub errors: Vec<String>,
    /// Number of all errors.
    pub errors_count: u64,
    /// Whether the scan was stopped early.
    pub stopped: bool,
}

impl Report {
    /// Returns the sums over all arguments.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.roots.iter().for_each(|root| total.add(&root.tally));
        total
    }
}
