//! What a thread of a walk has found since it last sent something: packed, because an allocation per
//! path costs more than the walk.

use crate::error::FileError;
use crate::feed::Entry;
use ioloom_walk::PathList;
use std::ops::Range;
use std::sync::Arc;

/// Files and failures on their way from the walk.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) files: PathList,
    pub(super) failed: Vec<FileError>,
}

impl Batch {
    /// Appends what is in `other`.
    pub(super) fn append(&mut self, other: Self) {
        self.files.append(other.files);
        self.failed.extend(other.failed);
    }

    pub(super) fn len(&self) -> usize {
        self.files.len() + self.failed.len()
    }
}

/// The entries of a batch: failures, and then files by inode. The order of names in a directory is
/// often that of their hashes, that of inodes usually that of the data on the device.
#[derive(Debug, Default)]
pub(super) struct Entries {
    files: Arc<PathList>,
    failed: Vec<FileError>,
    /// Positions in the list that are left.
    left: Range<usize>,
}

impl From<Batch> for Entries {
    fn from(batch: Batch) -> Self {
        let Batch { mut files, failed } = batch;
        // A walk has sorted most batches.
        files.sort_by_inode();
        let left = 0..files.len();
        Self { files: Arc::new(files), failed, left }
    }
}

impl Iterator for Entries {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if let Some(failed) = self.failed.pop() {
            return Some(Entry::Failed(Box::new(failed)));
        }
        let at = self.left.next()?;
        Some(Entry::Listed(self.files.clone(), at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_in_the_order_of_their_inodes() {
        let mut batch = Batch::default();
        for (name, inode) in [("c", 3), ("a", 1), ("d", 4), ("b", 2)] {
            batch.files.push_found(&[b"d/", name.as_bytes()], inode);
        }
        batch.files.push(b"link");
        let entries = Entries::from(batch).map(|entry| match entry {
            Entry::Listed(list, at) => list.path(at).display().to_string(),
            entry => panic!("{entry:?}"),
        });
        assert_eq!(entries.collect::<Vec<_>>(), ["link", "d/a", "d/b", "d/c", "d/d"]);
    }
}
