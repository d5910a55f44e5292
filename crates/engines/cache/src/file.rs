//! Evicts one file from the page cache or loads it, and proves the result by querying it again.
//!
//! posix_fadvise(DONTNEED) is advice: it silently skips pages that are dirty, under writeback,
//! mapped by a process or being read. The file is therefore written first (sync_file_range, then
//! fdatasync if dirty pages remain). Pages that are still resident afterwards are counted and
//! reported with a reason. Loading means reading: only a read proves that a page is filled, whereas
//! cachestat also counts readahead in progress. Readahead is requested one window in advance to
//! keep more than one request queued on the device.

use crate::state::{Source, State, residency, residency_with_seed, wait_for_samples};
use ioloom_sys::{cache, file, make, transfer};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Readahead window in bytes.
const AHEAD_BYTES: u64 = 16 << 20;
/// Read size in bytes.
const READ_BYTES: usize = 256 << 10;
/// Pauses before another attempt to evict clean pages that are in use. Reclaim and compaction
/// isolate pages for a moment, and the kernel does not evict them meanwhile.
const PAUSES: [Duration; 6] = [
    Duration::from_micros(100),
    Duration::from_micros(200),
    Duration::from_micros(400),
    Duration::from_micros(800),
    Duration::from_micros(1600),
    Duration::from_micros(3200),
];

/// The reason why pages stay resident or are not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Incomplete {
    /// They are dirty and could not be written.
    Dirty,
    /// They are under writeback.
    Writeback,
    /// The file system stores its data only in memory.
    InMemory,
    /// A process has the file mapped.
    Mapped,
    /// They are mapped, locked or being read by a process that cannot be identified.
    InUse,
    /// Their state cannot be queried.
    Unknown,
    /// They were read, but reclaimed before they could be queried.
    Reclaimed,
    /// They were read, but the file system does not keep them in the page cache.
    Uncached,
}

impl Incomplete {
    /// Returns the reason as a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Dirty => "dirty pages were not written",
            Self::Writeback => "pages are still under writeback",
            Self::InMemory => "this file system stores its data only in memory",
            Self::Mapped => "mapped by a process",
            Self::InUse => "in use by an unknown process: mapped, locked or being read",
            Self::Unknown => "page cache state cannot be queried",
            Self::Reclaimed => "the kernel reclaimed the pages: there is more data than memory",
            Self::Uncached => "this file system does not keep its data in the page cache",
        }
    }

    /// Returns the short form used in tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Dirty => "dirty",
            Self::Writeback => "writeback",
            Self::InMemory => "in memory",
            Self::Mapped => "mapped",
            Self::InUse => "in use",
            Self::Unknown => "unknown",
            Self::Reclaimed => "reclaimed",
            Self::Uncached => "uncached",
        }
    }
}

/// States before and after an action, and why the action is incomplete.
pub(crate) type Acted = (State, State, Option<Incomplete>);

/// Evicts an open file of `bytes` from the page cache. If `write` is set, writes dirty pages first.
/// Returns the states before and after, and the reason if pages remain.
///
/// # Errors
/// Returns the error of a failed system call. A write error means that file data was lost.
pub fn evict_file(open: impl AsFd, bytes: u64, write: bool) -> io::Result<Acted> {
    evict_counted(open, bytes, write, &AtomicU64::new(0))
}

/// Like [`evict_file`]. While it writes data back or drops pages, it is counted in `writing`.
pub(crate) fn evict_counted(
    open: impl AsFd,
    bytes: u64,
    write: bool,
    writing: &AtomicU64,
) -> io::Result<Acted> {
    let seed = make::random_number();
    let before = residency_with_seed(&open, bytes, seed)?;
    // A query that loads pages has started to read those that it found missing.
    if before.is_cold() && (before.total == 0 || !before.source.loads_pages()) {
        return Ok((before, before, None));
    }
    let unwritten = |state: &State| {
        let known = state.pages.dirty.zip(state.pages.writeback);
        known.is_none_or(|(dirty, writeback)| dirty + writeback > 0)
    };
    if write && unwritten(&before) {
        counted(writing, || cache::write_back(&open))?;
    }
    let evict = |last: &State| {
        if last.source.loads_pages() {
            wait_for_samples(&open, bytes, seed)?;
        }
        counted(writing, || cache::evict_file(&open))
    };
    evict(&before)?;
    let mut after = residency_with_seed(&open, bytes, seed)?;
    if write && !after.is_cold() && unwritten(&after) {
        counted(writing, || transfer::sync_data(&open))?;
        evict(&after)?;
        after = residency_with_seed(&open, bytes, seed)?;
    }
    for pause in PAUSES {
        if why_incomplete(&after) != Some(Incomplete::InUse) {
            break;
        }
        thread::sleep(pause);
        evict(&after)?;
        after = residency_with_seed(&open, bytes, seed)?;
    }
    if after.source.loads_pages() {
        evict(&after)?;
    }
    let incomplete = why_incomplete(&after);
    Ok((before, after, incomplete))
}

/// Runs a write, which is counted until it has ended.
fn counted(writing: &AtomicU64, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    writing.fetch_add(1, Ordering::Relaxed);
    let written = write();
    writing.fetch_sub(1, Ordering::Relaxed);
    written
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

/// Loads an open file of `bytes` into the page cache. `buffer` is scratch space. Returns the states
/// before and after, and the reason if pages are missing.
///
/// # Errors
/// Returns the error of a failed read.
pub fn load_file(open: impl AsFd, bytes: u64, buffer: &mut Vec<u8>) -> io::Result<Acted> {
    load_until(open, bytes, buffer, &AtomicBool::new(false))
}

/// Like [`load_file`], but stops early when `stop` is set. Pages missing for that reason are not
/// explained.
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
            // Only a hint: the reads below load the file even if this fails.
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
        // Every byte has just been read, but residency cannot be queried.
        _ if stop.load(Ordering::Relaxed) => None,
        None => Some(Incomplete::Unknown),
        Some(resident) if at_most(&after, resident) < loadable_pages(&open, &after) => {
            Some(why_missing(&open, bytes, buffer, &after)?)
        }
        Some(_) => None,
    };
    Ok((before, after, incomplete))
}

/// Returns why pages of a file that was read are missing. Reading some again distinguishes file systems without a page
/// cache, such as sysfs or FUSE with `direct_io`, from reclaim.
fn why_missing(
    open: impl AsFd,
    bytes: u64,
    buffer: &mut [u8],
    after: &State,
) -> io::Result<Incomplete> {
    let is_empty =
        |state: &State| state.source == Source::Cachestat && state.pages.resident == Some(0);
    if is_empty(after) {
        file::read_at(&open, buffer, 0)?;
        if is_empty(&residency(&open, bytes)?) {
            return Ok(Incomplete::Uncached);
        }
    }
    Ok(Incomplete::Reclaimed)
}

/// Returns how many pages may be resident: an estimate leaves out pages in holes.
fn at_most(state: &State, resident: u64) -> u64 {
    state.resident_between.map_or(resident, |(_, high)| high)
}

/// Returns the number of pages that reading a file makes resident: all, except that a file system in memory
/// reads holes without pages.
fn loadable_pages(open: impl AsFd, state: &State) -> u64 {
    let is_complete = state.pages.resident.is_none_or(|resident| resident >= state.total);
    if is_complete || !cache::is_in_memory(&open).unwrap_or(false) {
        return state.total;
    }
    data_pages(open).map_or(state.total, |pages| pages.min(state.total))
}

fn data_pages(open: impl AsFd) -> io::Result<u64> {
    let page = ioloom_sys::proc::page_bytes();
    let (mut at, mut pages) = (0, 0);
    while let Some(data) = transfer::next_data(&open, at)? {
        pages += data.end.div_ceil(page) - data.start / page;
        at = data.end;
    }
    Ok(pages)
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "skipped tests print a notice")]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    #[test]
    fn holes_of_a_file_in_memory_are_not_missing() {
        let shared = Path::new("/dev/shm");
        if !cache::is_memory_backed(shared).unwrap_or(false) {
            println!("skipped: no file system in memory at /dev/shm");
            return;
        }
        let file = tempfile::tempfile_in(shared).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(b"data", 1 << 19).unwrap();
        let (_, after, incomplete) = load_file(&file, 1 << 20, &mut Vec::new()).unwrap();
        let resident = after.pages.resident.unwrap_or(after.total);
        assert!(data_pages(&file).unwrap() <= resident, "{after:?}");
        assert_eq!(incomplete, None);
    }

    #[test]
    fn files_without_a_page_cache_are_not_taken_for_reclaimed() {
        let Ok(file) = File::open("/sys/kernel/uevent_seqnum") else {
            println!("skipped: no sysfs");
            return;
        };
        let bytes = file.metadata().unwrap().len();
        let (_, after, incomplete) = load_file(&file, bytes, &mut Vec::new()).unwrap();
        // Only its owner can query it.
        let expected = match (after.total, after.pages.resident) {
            (0, _) => None,
            (_, None) => Some(Incomplete::Unknown),
            _ => Some(Incomplete::Uncached),
        };
        assert_eq!(incomplete, expected, "{after:?}");
    }

    #[test]
    fn a_write_is_counted_until_it_has_ended() {
        let writing = AtomicU64::new(0);
        let now = || writing.load(Ordering::Relaxed);
        let failed = counted(&writing, || {
            assert_eq!(now(), 1);
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!((failed.unwrap_err().kind(), now()), (io::ErrorKind::StorageFull, 0));
    }

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
