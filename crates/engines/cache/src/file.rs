//! Evicts one file from the page cache or loads it, and proves the result by querying it again.
//!
//! posix_fadvise(DONTNEED) is advice: it silently skips pages that are dirty, under writeback,
//! mapped by a process or held by a reader. The file is therefore written first (sync_file_range,
//! and fdatasync if that left dirty pages); pages that remain are counted and given a reason.
//! Loading means reading: only a read proves that a page is filled, whereas cachestat also counts
//! readahead in progress. Readahead is requested a window in advance, so that the device has more
//! than one request.

use crate::state::{Source, State, residency, residency_with_seed, wait_for_samples};
use ioloom_sys::{cache, file, make, transfer};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Readahead window, bytes.
const AHEAD_BYTES: u64 = 16 << 20;
/// Size of one read, bytes.
const READ_BYTES: usize = 256 << 10;

/// The reason why pages stay in memory, or are not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Incomplete {
    /// They are dirty and were not written.
    Dirty,
    /// They are under writeback.
    Writeback,
    /// The file system keeps its data only in memory.
    InMemory,
    /// A process has the file mapped.
    Mapped,
    /// They are mapped, locked or being read by a process that cannot be identified.
    InUse,
    /// Their state cannot be queried.
    Unknown,
    /// They were read, and were reclaimed before they were queried.
    Reclaimed,
}

impl Incomplete {
    /// Returns the reason as a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Dirty => "dirty pages were not written",
            Self::Writeback => "pages are still under writeback",
            Self::InMemory => "this file system keeps its data only in memory",
            Self::Mapped => "a process maps it",
            Self::InUse => "in use by an unknown process: mapped, locked or being read",
            Self::Unknown => "the state of its pages cannot be queried",
            Self::Reclaimed => "the kernel reclaimed the pages: there is more data than memory",
        }
    }

    /// Returns the word for tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Dirty => "dirty",
            Self::Writeback => "writeback",
            Self::InMemory => "in memory",
            Self::Mapped => "mapped",
            Self::InUse => "in use",
            Self::Unknown => "unknown",
            Self::Reclaimed => "reclaimed",
        }
    }
}

/// States before and after an action, and why it is incomplete.
pub(crate) type Acted = (State, State, Option<Incomplete>);

/// Evicts an open file of `bytes` from the page cache. With `write`, dirty pages are written first.
/// Returns the states before and after, and why pages stay, if any do.
///
/// # Errors
/// Returns the error of a system call; a write error means lost data of the file.
pub fn evict_file(open: impl AsFd, bytes: u64, write: bool) -> io::Result<Acted> {
    let seed = make::random_number();
    let before = residency_with_seed(&open, bytes, seed)?;
    if before.is_cold() {
        return Ok((before, before, None));
    }
    let unwritten = |state: &State| {
        let known = state.pages.dirty.zip(state.pages.writeback);
        known.is_none_or(|(dirty, writeback)| dirty + writeback > 0)
    };
    if write && unwritten(&before) {
        cache::write_back(&open)?;
    }
    cache::evict_file(&open)?;
    let mut after = residency_with_seed(&open, bytes, seed)?;
    if write && !after.is_cold() && unwritten(&after) {
        transfer::sync_data(&open)?;
        cache::evict_file(&open)?;
        after = residency_with_seed(&open, bytes, seed)?;
    }
    if matches!(after.source, Source::Pages | Source::Sampled) {
        // The query itself loaded the pages that it did not find.
        wait_for_samples(&open, bytes, seed)?;
        cache::evict_file(&open)?;
    }
    let incomplete = why_incomplete(&after);
    Ok((before, after, incomplete))
}

fn why_incomplete(after: &State) -> Option<Incomplete> {
    let pages = &after.pages;
    match pages.resident {
        None => Some(Incomplete::Unknown),
        Some(0) => None,
        Some(_) if pages.dirty.is_some_and(|n| n > 0) => Some(Incomplete::Dirty),
        Some(_) if pages.writeback.is_some_and(|n| n > 0) => Some(Incomplete::Writeback),
        Some(_) => Some(Incomplete::InUse),
    }
}

/// Loads an open file of `bytes` into the page cache through `buffer`, whose content is meaningless
/// afterwards. Returns the states before and after, and why pages are missing, if any are.
///
/// # Errors
/// Returns the error of a read.
pub fn load_file(open: impl AsFd, bytes: u64, buffer: &mut Vec<u8>) -> io::Result<Acted> {
    load_until(open, bytes, buffer, &AtomicBool::new(false))
}

/// Does the same, but stops early when `stop` is set; missing pages then have no reason.
pub(crate) fn load_until(
    open: impl AsFd,
    bytes: u64,
    buffer: &mut Vec<u8>,
    stop: &AtomicBool,
) -> io::Result<Acted> {
    let before = residency(&open, bytes)?;
    if before.total == 0 {
        return Ok((before, before, None));
    }
    buffer.resize(READ_BYTES, 0);
    let mut asked = 0;
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        if at + AHEAD_BYTES / 2 >= asked && asked < bytes {
            let len = AHEAD_BYTES.min(bytes - asked);
            // Only advice: the reads below load the file even if it fails.
            let _ = cache::prefetch(&open, asked, len);
            asked += len;
        }
        match file::read_at(&open, buffer, at)? {
            0 => break,
            n => at += n as u64,
        }
    }
    let after = residency(&open, bytes)?;
    let incomplete = match after.pages.resident {
        // Every byte was just read, but whether it is still cached cannot be queried.
        _ if stop.load(Ordering::Relaxed) => None,
        None => Some(Incomplete::Unknown),
        Some(resident) if resident < after.total => Some(Incomplete::Reclaimed),
        Some(_) => None,
    };
    Ok((before, after, incomplete))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn loading_a_file_of_any_size_stops_on_request() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = temp.path().join("hole");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let (open, mut buffer) = (File::open(&path).unwrap(), Vec::new());
        let stop = AtomicBool::new(true);
        let (_, after, incomplete) = load_until(&open, 1 << 40, &mut buffer, &stop).unwrap();
        assert!(after.pages.resident.unwrap_or(0) < after.total);
        assert_eq!(incomplete, None);
    }
}
