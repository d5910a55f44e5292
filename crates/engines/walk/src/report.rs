//! What a walk did.

use crate::error::Errors;
use crate::tables_use::{Counts, TablesUse};
use ioloom_failure::PathError;

/// What a walk did.
#[derive(Debug, Default)]
pub struct Report {
    /// Entries visited that are no directories.
    pub entries: u64,
    /// Directories entered, roots included.
    pub directories: u64,
    /// Names that were gone when they were asked for or opened.
    pub vanished: u64,
    /// Directories not entered because they lie within themselves.
    pub loops: u64,
    /// What could not be read: the first [`crate::ERRORS_KEPT_MAX`].
    pub errors: Vec<PathError>,
    /// All that could not be read.
    pub errors_count: u64,
    /// Whether a visitor or [`Walk::cancel`] ended the walk.
    pub stopped: bool,
    /// Threads that took part.
    pub threads: usize,
    /// Why so many: one sentence.
    pub threads_why: String,
    /// Kernel threads that answered rings, at most at one time; `None` without a ring.
    pub ring_workers: Option<usize>,
    /// What was read from inode tables; `None` with any other method.
    pub tables: Option<TablesUse>,
}

impl Report {
    pub(crate) fn merge(
        &mut self,
        part: Part,
        errors: &mut Errors<PathError>,
        counts: &mut Counts,
    ) {
        counts.add(part.tables);
        self.entries += part.entries;
        self.directories += part.directories;
        self.vanished += part.vanished;
        self.loops += part.loops;
        self.stopped |= part.stopped;
        self.ring_workers = self.ring_workers.max(part.ring_workers);
        errors.merge(part.errors);
    }
}

/// What one worker counted.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) entries: u64,
    pub(crate) directories: u64,
    pub(crate) vanished: u64,
    pub(crate) loops: u64,
    pub(crate) errors: Errors<PathError>,
    pub(crate) stopped: bool,
    pub(crate) ring_workers: Option<usize>,
    pub(crate) tables: Counts,
}
