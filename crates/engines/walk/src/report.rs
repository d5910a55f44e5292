//! The result of a walk.

use crate::error::Errors;
use crate::tables_use::{Counts, TablesUse};
use ioloom_failure::PathError;

/// The result of a walk.
#[derive(Debug, Default)]
pub struct Report {
    /// Entries visited, without directories.
    pub entries: u64,
    /// Directories entered, including roots.
    pub directories: u64,
    /// Names that no longer existed when they were queried or opened.
    pub vanished: u64,
    /// Directories not entered because they contain themselves.
    pub loops: u64,
    /// The first [`crate::ERRORS_KEPT_MAX`] errors.
    pub errors: Vec<PathError>,
    /// Number of errors.
    pub errors_count: u64,
    /// Whether a visitor or [`Walk::cancel`](crate::Walk::cancel) stopped the walk.
    pub stopped: bool,
    /// Threads that took part.
    pub threads: usize,
    /// The reason for their number, in one sentence.
    pub threads_why: String,
    /// Peak number of kernel threads that answered rings; `None` without a ring.
    pub ring_workers: Option<usize>,
    /// Names queried one by one with [`Method::Uring`](crate::Method::Uring), because a thread had no
    /// ring.
    pub names_without_ring: u64,
    /// Use of the inode tables; `None` with any other method.
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
        self.names_without_ring += part.names_without_ring;
        errors.merge(part.errors);
    }
}

/// The result of one worker.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) entries: u64,
    pub(crate) directories: u64,
    pub(crate) vanished: u64,
    pub(crate) loops: u64,
    pub(crate) errors: Errors<PathError>,
    pub(crate) stopped: bool,
    pub(crate) ring_workers: Option<usize>,
    pub(crate) names_without_ring: u64,
    pub(crate) tables: Counts,
}
