//! Sums over files.

use crate::state::{Source, State};
use serde::Serialize;

/// Sums over the files of a tree, pages where nothing else is said. Files of which nothing is known
/// count in `unknown_files` and `unknown_pages`, and in nothing else but the sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Files.
    pub files: u64,
    /// Sizes of the files, bytes.
    pub size_bytes: u64,
    /// Pages that the files have.
    pub pages: u64,
    /// Resident pages; estimates included.
    pub resident_pages: u64,
    /// Resident pages before a drop or a warm.
    pub was_resident_pages: u64,
    /// Changed pages.
    pub dirty_pages: u64,
    /// Pages on their way to the device.
    pub writeback_pages: u64,
    /// Pages that were reclaimed.
    pub evicted_pages: u64,
    /// Pages that were reclaimed recently.
    pub recently_evicted_pages: u64,
    /// Files whose resident pages are estimates.
    pub sampled_files: u64,
    /// Files that were asked page by page, so that nothing is known of dirty pages.
    pub asked_files: u64,
    /// Files of which nothing is known.
    pub unknown_files: u64,
    /// Pages of those.
    pub unknown_pages: u64,
}

impl Tally {
    /// Adds a file in its present state, and the state that it was in before.
    pub(crate) fn file(&mut self, size_bytes: u64, now: &State, before: &State) {
        self.files += 1;
        self.size_bytes += size_bytes;
        self.pages += now.total;
        match now.source {
            Source::Cachestat => {}
            Source::Pages => self.asked_files += 1,
            Source::Sampled => self.sampled_files += 1,
            Source::Unknown => {
                self.unknown_files += 1;
                self.unknown_pages += now.total;
            }
        }
        let sum = |into: &mut u64, pages: Option<u64>| *into += pages.unwrap_or(0);
        sum(&mut self.resident_pages, now.pages.resident);
        sum(&mut self.was_resident_pages, before.pages.resident);
        sum(&mut self.dirty_pages, now.pages.dirty);
        sum(&mut self.writeback_pages, now.pages.writeback);
        sum(&mut self.evicted_pages, now.pages.evicted);
        sum(&mut self.recently_evicted_pages, now.pages.recently_evicted);
    }

    /// Adds other sums.
    pub fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.size_bytes += other.size_bytes;
        self.pages += other.pages;
        self.resident_pages += other.resident_pages;
        self.was_resident_pages += other.was_resident_pages;
        self.dirty_pages += other.dirty_pages;
        self.writeback_pages += other.writeback_pages;
        self.evicted_pages += other.evicted_pages;
        self.recently_evicted_pages += other.recently_evicted_pages;
        self.sampled_files += other.sampled_files;
        self.asked_files += other.asked_files;
        self.unknown_files += other.unknown_files;
        self.unknown_pages += other.unknown_pages;
    }
}
