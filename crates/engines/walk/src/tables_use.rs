//! How far a walk used the inode tables of ext4, with or without the code that reads them.

use std::path::PathBuf;
use std::time::SystemTime;

/// What [`crate::Method::InodeTables`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablesUse {
    /// The block device that was read.
    pub device: PathBuf,
    /// When the sync began that the view is of.
    pub synced: SystemTime,
    /// Whether each inode was checked by a checksum of its own.
    pub checksums: bool,
    /// Entries whose inode was read from the tables.
    pub read: u64,
    /// Entries that were asked for by name in their place.
    pub asked: u64,
    /// Entries that were read and asked for too.
    pub sampled: u64,
    /// Of these, those that had changed since the sync.
    pub changed: u64,
}

/// What one worker counted.
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
