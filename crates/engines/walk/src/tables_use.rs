//! Use of the inode tables of ext4, with or without the code that reads them.

use std::path::PathBuf;
use std::time::SystemTime;

/// Use of inode tables by [`crate::Method::InodeTables`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablesUse {
    /// The block device that was read.
    pub device: PathBuf,
    /// When the sync of this view began.
    pub synced: SystemTime,
    /// Whether each inode was verified by its own checksum.
    pub checksums: bool,
    /// Entries whose inode was read from the tables.
    pub read: u64,
    /// Entries that were queried by name instead.
    pub asked: u64,
    /// Entries that were read and also queried by name.
    pub sampled: u64,
    /// Sampled entries that had changed since the sync.
    pub changed: u64,
}

/// Counts of one worker.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) read: u64,
    pub(crate) asked: u64,
    pub(crate) sampled: u64,
    pub(crate) changed: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.read += other.read;
        self.asked += other.asked;
        self.sampled += other.sampled;
        self.changed += other.changed;
    }
}
