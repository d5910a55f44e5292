//! Files of /proc and /sys below a root.

use ioloom_sys::proc::parse::field;
use std::path::{Path, PathBuf};

/// A directory that contains /proc and /sys.
pub(crate) struct Source<'a> {
    root: &'a Path,
}

impl<'a> Source<'a> {
    /// Reads below `root`.
    pub(crate) const fn new(root: &'a Path) -> Self {
        Self { root }
    }

    /// Returns the path of a file below the root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Returns the contents of a file; empty if it cannot be read.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.root.join(path)).unwrap_or_default()
    }

    /// Returns the contents of a text file; `None` if it is missing or unreadable.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        ioloom_sys::proc::read_text(&self.root.join(path)).ok()
    }

    /// Returns the contents of a one-line file, trimmed; `None` if it is empty or unreadable.
    pub(crate) fn word(&self, path: &str) -> Option<String> {
        Some(self.text(path)?.trim().to_owned()).filter(|word| !word.is_empty())
    }

    /// Returns the number in a file.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.word(path)?.parse().ok()
    }

    /// Returns the page size of the tree's machine, read from a process mapping; 0 if unknown.
    pub(crate) fn page_bytes(&self) -> u64 {
        let maps = self.text("proc/self/smaps").unwrap_or_default();
        field(&maps, "KernelPageSize").and_then(|kib: u64| kib.checked_mul(1024)).unwrap_or(0)
    }

    /// Returns the names in a directory, sorted.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}
