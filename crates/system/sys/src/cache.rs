//! The page cache: queries residency, evicts and loads files, and determines where bytes came from.
//!
//! cachestat(2) returns how many pages of a file are resident without touching them, with one call
//! for a file of any size. posix_fadvise(DONTNEED) evicts clean pages of one file and keeps names
//! and inodes in memory. Dropping the whole cache requires privileges and affects every program on
//! the machine, so it happens only at the user's request. A read with RWF_NOWAIT that misses starts
//! readahead: it warms what it measures, so it can only prove that a file is warm. If the kernel or
//! the file system cannot answer, the result is `None`, never a guess.

use crate::fault::call;
use crate::proc::{UsageOf, usage};
use rustix::fs::Advice;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Pages in a range of a file, by state, in units of the system's page size.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheState {
    /// Resident in memory.
    pub resident: u64,
    /// Modified and not yet written.
    pub dirty: u64,
    /// Being written to the device.
    pub writeback: u64,
    /// Formerly resident and since evicted.
    pub evicted: u64,
    /// Evicted so recently that it indicates memory pressure.
    pub recently_evicted: u64,
}

#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

/// System call number, the same on all architectures with the common table.
const SYS_CACHESTAT: libc::c_long = 451;

/// Returns the state of `len` bytes from `offset`; a length of 0 means up to the end of the file.
/// `None` if the kernel, the file system or the permissions do not allow the query, as on overlayfs.
///
/// # Errors
/// Fails on any other error.
pub fn state(file: impl AsFd, offset: u64, len: u64) -> io::Result<Option<CacheState>> {
    let range = CacheRange { offset, len };
    let mut state = CacheState::default();
    let result = call("cachestat", || {
        // SAFETY: the descriptor is borrowed for the call; both pointers refer to live, aligned
        // structures with the kernel's layout, and the kernel writes only `state`.
        let code = unsafe {
            libc::syscall(
                SYS_CACHESTAT,
                file.as_fd().as_raw_fd() as libc::c_uint,
                &raw const range,
                &raw mut state,
                0 as libc::c_uint,
            )
        };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    });
    match result {
        Ok(()) if state.resident == 0 && is_layered(&file) => Ok(None),
        Ok(()) => Ok(Some(state)),
        Err(e) if is_unavailable(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Reports whether a file of another file system, which the kernel does not query, has the pages of this one. False
/// if the call fails.
pub(crate) fn is_layered(file: impl AsFd) -> bool {
    const OVERLAYFS: i64 = 0x794c_7630;
    const AUFS: i64 = 0x6175_6673;
    let found = call("fstatfs", || Ok(rustix::fs::fstatfs(&file)?));
    found.is_ok_and(|found| matches!(kind_of(&found), OVERLAYFS | AUFS))
}

fn is_unavailable(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS)
    )
}

/// Returns how many pages of the first `len` bytes are resident; `None` if unknown.
///
/// # Errors
/// See [`state`].
pub fn resident_pages(file: impl AsFd, len: u64) -> io::Result<Option<u64>> {
    if len == 0 {
        return Ok(Some(0));
    }
    Ok(state(file, 0, len)?.map(|s| s.resident))
}

/// Evicts the clean pages of a file. Dirty pages remain: call [`flush_file_system`] first.
///
/// # Errors
/// Fails if posix_fadvise fails.
pub fn evict_file(file: impl AsFd) -> io::Result<()> {
    advise(file, 0, 0, Advice::DontNeed)
}

/// Starts reading a range without waiting (length 0: up to the end of the file).
///
/// # Errors
/// Fails if posix_fadvise fails.
pub fn prefetch(file: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    advise(file, offset, len, Advice::WillNeed)
}

/// Turns readahead off for this descriptor, so that a miss reads only the requested pages.
///
/// # Errors
/// Fails if posix_fadvise fails.
pub fn advise_random(file: impl AsFd) -> io::Result<()> {
    advise(file, 0, 0, Advice::Random)
}

/// Writes the dirty pages of one file and waits for completion (sync_file_range), so that they can
/// be evicted. Flushes neither metadata nor the device cache, so the data may not survive a power
/// failure.
///
/// # Errors
/// Fails if the call fails, including on write errors of the file.
pub fn write_back(file: impl AsFd) -> io::Result<()> {
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    call("sync_file_range", || {
        // SAFETY: the descriptor is borrowed for the call, which accesses none of our memory.
        match unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, how) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })
}

fn advise(file: impl AsFd, offset: u64, len: u64, advice: Advice) -> io::Result<()> {
    let len = std::num::NonZeroU64::new(len);
    call("fadvise", || Ok(rustix::fs::fadvise(&file, offset, len, advice)?))
}

/// Writes all dirty pages of the file system that contains `file` to its device.
///
/// # Errors
/// Fails if syncfs fails.
pub fn flush_file_system(file: impl AsFd) -> io::Result<()> {
    call("syncfs", || Ok(rustix::fs::syncfs(&file)?))
}

/// Writes all dirty pages of the machine, then drops the page cache, names and inodes of every
/// program. Only for callers whose user requested it.
///
/// # Errors
/// Fails with permission denied if unprivileged, or with a read-only file system error if /proc is
/// mounted read-only.
pub fn flush_and_drop_caches() -> io::Result<()> {
    call("sync", || {
        rustix::fs::sync();
        Ok(())
    })?;
    drop_caches()
}

/// Drops the clean pages of the page cache and the names and inodes of every program, without
/// writing dirty pages first. Only for callers whose user requested it.
///
/// # Errors
/// See [`flush_and_drop_caches`].
pub fn drop_caches() -> io::Result<()> {
    call("drop_caches", || std::fs::write("/proc/sys/vm/drop_caches", "3\n"))
}

/// Checks whether [`flush_and_drop_caches`] is permitted; drops nothing.
///
/// # Errors
/// Returns why it is not permitted.
pub fn can_drop_caches() -> io::Result<()> {
    call("drop_caches", || {
        std::fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").map(drop)
    })
}

/// Reports whether a read of up to `buffer` bytes at `offset` finds everything resident.
/// `Some(true)` proves that these bytes were warm. `Some(false)` does not prove that they were cold
/// for a later read because it has started readahead. `None` if the file system does not support
/// the query.
///
/// A fast device can complete the read of a missing page within the call, which then succeeds.
/// Bytes that the thread caused to be read from a device meanwhile therefore count as a miss.
///
/// # Errors
/// Fails if preadv2 or getrusage fails.
pub fn read_if_resident(
    file: impl AsFd,
    offset: u64,
    buffer: &mut [u8],
) -> io::Result<Option<bool>> {
    let wanted = buffer.len();
    let from_devices = || Ok::<_, io::Error>(usage(UsageOf::Thread)?.read_bytes);
    let before = from_devices()?;
    let result = call("preadv2", || {
        let mut parts = [io::IoSliceMut::new(buffer)];
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        Ok(rustix::io::preadv2(&file, &mut parts, offset, flags)?)
    });
    match result {
        Ok(got) => Ok(Some(got == wanted && from_devices()? == before)),
        Err(e) if Errno::from_io_error(&e) == Some(Errno::AGAIN) => Ok(Some(false)),
        Err(e) if is_unavailable(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Reports whether the file system at `path` stores its data only in memory (tmpfs, ramfs,
/// hugetlbfs), so that nothing on it can be cold.
///
/// # Errors
/// Fails if statfs fails.
pub fn is_memory_backed(path: &Path) -> io::Result<bool> {
    Ok(is_memory(&call("statfs", || Ok(rustix::fs::statfs(path)?))?))
}

/// Like [`is_memory_backed`], for an open file.
///
/// # Errors
/// Fails if fstatfs fails.
pub fn is_in_memory(file: impl AsFd) -> io::Result<bool> {
    Ok(is_memory(&call("fstatfs", || Ok(rustix::fs::fstatfs(&file)?))?))
}

fn is_memory(found: &rustix::fs::StatFs) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    const HUGETLBFS: i64 = 0x9584_58f6;
    matches!(kind_of(found), TMPFS | RAMFS | HUGETLBFS)
}

/// Returns the number of the file system type.
#[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
fn kind_of(found: &rustix::fs::StatFs) -> i64 {
    found.f_type as i64
}

/// Returns how many bytes have been read from the block device of `file` since boot
/// (/proc/diskstats); `None` if the file system does not have its own block device.
pub fn device_read_bytes(file: &File) -> Option<u64> {
    let found = call("fstat", || Ok(rustix::fs::fstat(file)?)).ok()?;
    let (major, minor) = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
    let disks = crate::proc::diskstats().ok()?;
    disks.iter().find(|disk| disk.device == (major, minor)).map(|disk| disk.read_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn file_on_disk(bytes: usize) -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, vec![1u8; bytes]).unwrap();
        let file = File::open(path).unwrap();
        (dir, file)
    }

    #[test]
    fn an_evicted_file_is_not_resident_and_a_read_one_is() {
        let (dir, mut file) = file_on_disk(1 << 20);
        let Some(written) = resident_pages(&file, 1 << 20).unwrap() else {
            println!("skipped: this kernel has no cachestat");
            return;
        };
        assert!(written > 0);
        if is_memory_backed(dir.path()).unwrap() {
            println!("skipped: the source tree is in memory");
            return;
        }
        flush_file_system(&file).unwrap();
        let evicted = || {
            evict_file(&file).unwrap();
            resident_pages(&file, 1 << 20).unwrap().unwrap()
        };
        // The kernel does not evict pages that reclaim has isolated, which can take long on a busy
        // machine.
        let mut dropped = evicted();
        for _ in 0..3000 {
            if dropped * 10 < written {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            dropped = evicted();
        }
        assert!(dropped * 10 < written, "{dropped} of {written} pages remained");
        file.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(resident_pages(&file, 1 << 20).unwrap(), Some((1 << 20) / page() as u64));
        assert_ne!(read_if_resident(&file, 0, &mut [0; 4096]).unwrap(), Some(false));
    }

    fn page() -> usize {
        crate::proc::page_bytes() as usize
    }

    #[test]
    fn nothing_of_an_empty_file_is_resident() {
        let (_dir, file) = file_on_disk(0);
        assert_eq!(resident_pages(&file, 0).unwrap(), Some(0));
    }

    #[test]
    fn reads_of_a_file_are_counted_by_its_device() {
        let (dir, file) = file_on_disk(1 << 20);
        let (Some(before), Ok(false)) = (device_read_bytes(&file), is_memory_backed(dir.path()))
        else {
            println!("skipped: the source tree does not have its own block device");
            return;
        };
        flush_file_system(&file).unwrap();
        evict_file(&file).unwrap();
        std::io::Read::read_to_end(&mut &file, &mut Vec::new()).unwrap();
        assert!(device_read_bytes(&file).unwrap() >= before);
    }
}
