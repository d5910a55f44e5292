//! Putting one file out of the page cache and bringing it in, each proved by asking again.
//!
//! posix_fadvise(DONTNEED) is advice: it skips pages that are dirty, under writeback, mapped by a
//! process or held by a reader, without a word. So the file is written first (sync_file_range,
//! and fdatasync if that left something), and what is left afterwards is counted and given a
//! reason. Bringing in means to read: a read alone proves that a page is filled, whereas cachestat
//! also counts read-ahead that is under way. The kernel is told a window ahead what will be wanted,
//! so that the device has more than one request to do.

use crate::state::{Source, State, residency, residency_with_seed, wait_for_samples};
use ioloom_sys::{cache, file, make, transfer};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// How far ahead of the reading the kernel is asked to read, bytes.
const AHEAD_BYTES: u64 = 16 << 20;
/// One read, bytes.
const READ_BYTES: usize = 256 << 10;

/// Why pages stay in memory, or do not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Incomplete {
    /// They are changed and were not written.
    Dirty,
    /// They are on their way to the device.
    Writeback,
    /// The file system keeps its data in memory alone.
    InMemory,
    /// A process has the file mapped.
    Mapped,
    /// They are in use: mapped, locked, or held by a reader, by somebody we cannot see.
    InUse,
    /// Nobody can tell whether they went.
    Unknown,
    /// They were read, and were gone again when they were asked for.
    Reclaimed,
}

impl Incomplete {
    /// The reason in words.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Dirty => "changed pages were not written",
            Self::Writeback => "pages are still on their way to the device",
            Self::InMemory => "this file system keeps its data in memory alone",
            Self::Mapped => "a process has it mapped",
            Self::InUse => "in use by somebody who cannot be seen: mapped, locked or being read",
            Self::Unknown => "nobody can tell whether they went",
            Self::Reclaimed => "the kernel took them back at once: there is more data than memory",
        }
    }

    /// The word for tables.
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

/// What acting on a file came to: before, after, and why it is not as wanted.
pub(crate) type Acted = (State, State, Option<Incomplete>);

/// Puts an open file of `bytes` out of the page cache. With `write` its changed pages are written
/// first. Returns the states before and after, and why pages stay, if some do.
///
/// # Errors
/// What the calls report; an error of writing is one of the file's data.
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
        // The question itself brought in the pages that it did not find.
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

/// Brings an open file of `bytes` into the page cache through `buffer`, which holds nothing of use
/// afterwards. Returns the states before and after, and why not all of it is resident.
///
/// # Errors
/// What reading reports.
pub fn load_file(open: impl AsFd, bytes: u64, buffer: &mut Vec<u8>) -> io::Result<Acted> {
    load_until(open, bytes, buffer, &AtomicBool::new(false))
}

/// The same, but ends early when `stop` becomes true: what is not resident then has no reason.
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
            // Advice: the read below does the work also where it is refused.
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
        // Every byte was read just now; that it is still there is what nobody can tell.
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
    fn a_file_of_any_size_is_no_longer_read_when_that_is_to_end() {
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
