//! Totals over files.

use crate::state::{Source, State};
use serde::Serialize;

/// Totals over the files of a tree, in pages unless stated otherwise. Files of unknown state
/// contribute only to `files`, `size_bytes`, `pages`, `unknown_files` and `unknown_pages`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Number of files.
    pub files: u64,
    /// Total file size in bytes.
    pub size_bytes: u64,
    /// Total number of pages.
    pub pages: u64,
    /// Resident pages, including estimates.
    pub resident_pages: u64,
    /// Resident pages before eviction or loading.
    pub was_resident_pages: u64,
    /// Dirty pages.
    pub dirty_pages: u64,
    /// Pages under writeback.
    pub writeback_pages: u64,
    /// Evicted pages.
    pub evicted_pages: u64,
    /// Recently evicted pages.
    pub recently_evicted_pages: u64,
    /// Files whose resident count is an estimate.
    pub sampled_files: u64,
    /// Files tested page by page, whose dirty pages are unknown.
    pub asked_files: u64,
    /// Files of unknown state.
    pub unknown_files: u64,
    /// Total number of pages in files of unknown state.
    pub unknown_pages: u64,
}

impl Tally {
    /// Adds a file with its states after and before the action.
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

    /// Adds the totals of other files.
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
