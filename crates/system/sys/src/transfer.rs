//! Copies bytes between files and makes them durable.
//!
//! Each function makes one call, which may transfer less than requested, so the caller loops.
//! [`is_unsupported`] distinguishes an operation that the file system does not support from one
//! that failed. `fsync` and similar calls are included because they complete a transfer.

use crate::fault::{call, cut};
use crate::file::retry;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::io::ReadWriteFlags;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// `RWF_DONTCACHE`: evict the pages once they are written (Linux 6.14).
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Reports whether an error means that the operation is not supported here rather than that it
/// failed.
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NOTTY | Errno::XDEV)
    )
}

/// Makes the file share the extents of another (`FICLONE`).
pub fn clone_file(from: impl AsFd, to: impl AsFd) -> io::Result<()> {
    retry("ficlone", || rustix::fs::ioctl_ficlone(&to, &from))
}

/// Copies within the kernel from one offset to another; returns zero at the end of the source.
pub fn copy_range(
    from: impl AsFd,
    from_offset: u64,
    to: impl AsFd,
    to_offset: u64,
    len: usize,
) -> io::Result<usize> {
    let copied = retry("copy_file_range", || {
        let (mut from_at, mut to_at) = (from_offset, to_offset);
        rustix::fs::copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), len)
    });
    // A test that shortens a transfer changes only the result: the rest is copied again.
    copied.map(|n| cut("copy_file_range", n))
}

/// Writes once at `offset`.
#[inline]
pub fn write_at(to: impl AsFd, bytes: &[u8], offset: u64) -> io::Result<usize> {
    let written = retry("pwrite", || rustix::io::pwrite(&to, bytes, offset));
    written.map(|n| cut("pwrite", n))
}

/// Writes once at `offset`, which is where the last call ended. Files of the kernel that have no offsets, such as
/// `/proc/self/comm`, are written as a pipe is.
///
/// # Errors
/// Fails as `pwrite` does. A file without offsets that accepts only a part is an error: it would take the rest
/// for a new value.
#[inline]
pub fn write_next_at(to: impl AsFd, bytes: &[u8], offset: u64) -> io::Result<usize> {
    match write_at(&to, bytes, offset) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SPIPE) => {
            let written = retry("write", || rustix::io::write(&to, bytes));
            match written.map(|n| cut("write", n)) {
                Ok(n) if n < bytes.len() => Err(io::ErrorKind::WriteZero.into()),
                written => written,
            }
        }
        written => written,
    }
}

/// Writes once and evicts the pages after they reach the device (`RWF_DONTCACHE`).
pub fn write_uncached_at(to: impl AsFd, bytes: &[u8], offset: u64) -> io::Result<usize> {
    retry("pwritev2", || rustix::io::pwritev2(&to, &[IoSlice::new(bytes)], offset, DONTCACHE))
}

/// Reads once; pages that were not already resident are evicted.
pub fn read_uncached_at(from: impl AsFd, into: &mut [u8], offset: u64) -> io::Result<usize> {
    retry("preadv2", || {
        rustix::io::preadv2(&from, &mut [IoSliceMut::new(&mut *into)], offset, DONTCACHE)
    })
}

/// Allocates space for a range and extends the file to its end.
pub fn allocate(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let len = range.end - range.start;
    let flags = FallocateFlags::empty();
    retry("fallocate", || rustix::fs::fallocate(&file, flags, range.start, len))
}

/// Sets whether I/O on an open file bypasses the page cache (`O_DIRECT`). The flag belongs to the
/// open file description, so it affects all duplicated descriptors.
pub fn set_direct(file: impl AsFd, direct: bool) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let mut flags = retry("fcntl", || fcntl_getfl(&file))?;
    flags.set(OFlags::DIRECT, direct);
    retry("fcntl", || fcntl_setfl(&file, flags))
}

/// Sets the length of a file.
pub fn set_len(file: impl AsFd, bytes: u64) -> io::Result<()> {
    retry("ftruncate", || rustix::fs::ftruncate(&file, bytes))
}

/// Returns the next range with data at or after `offset`, or `None` if only a hole follows. A file
/// system without hole support reports the whole file.
pub fn next_data(file: impl AsFd, offset: u64) -> io::Result<Option<Range<u64>>> {
    use rustix::fs::SeekFrom;
    let start = match retry("lseek", || rustix::fs::seek(&file, SeekFrom::Data(offset))) {
        Ok(start) => start,
        Err(e) if Errno::from_io_error(&e) == Some(Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e),
    };
    match retry("lseek", || rustix::fs::seek(&file, SeekFrom::Hole(start))) {
        Ok(end) => Ok(Some(start..end)),
        // The file was truncated meanwhile.
        Err(e) if Errno::from_io_error(&e) == Some(Errno::NXIO) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes the data, and the metadata required to read it, to the device.
pub fn sync_data(file: impl AsFd) -> io::Result<()> {
    retry("fdatasync", || rustix::fs::fdatasync(&file))
}

/// Writes data and metadata to the device.
pub fn sync_all(file: impl AsFd) -> io::Result<()> {
    retry("fsync", || rustix::fs::fsync(&file))
}

/// Starts writing the dirty pages of a range without waiting. Provides no durability guarantees.
pub fn start_writeback(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let (start, len) = (range.start as i64, (range.end - range.start) as i64);
    call("sync_file_range", || {
        let (file, flags) = (file.as_fd().as_raw_fd(), libc::SYNC_FILE_RANGE_WRITE);
        // SAFETY: the descriptor is borrowed for the call, which takes only numbers.
        match unsafe { libc::sync_file_range(file, start, len, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })
}

/// Evicts the clean pages of a range.
pub fn evict_range(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let len = std::num::NonZeroU64::new(range.end - range.start);
    let advice = rustix::fs::Advice::DontNeed;
    retry("fadvise", || rustix::fs::fadvise(&file, range.start, len, advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn bytes_and_holes_are_copied() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let open = |name| {
            let options = &mut std::fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true).open(temp.path().join(name))
        };
        let (from, to): (File, File) = (open("from").unwrap(), open("to").unwrap());
        set_len(&from, 1 << 20).unwrap();
        assert_eq!(write_at(&from, &[7; 4096], 512 << 10).unwrap(), 4096);
        let data = next_data(&from, 0).unwrap().unwrap();
        assert!(data.contains(&(512 << 10)) && data.end <= 1 << 20);
        allocate(&to, 0..8192).unwrap();
        let copied = copy_range(&from, 512 << 10, &to, 100, 4096).unwrap();
        assert!(copied > 0);
        let mut into = [0u8; 200];
        crate::file::read_full_at(&to, &mut into, 0).unwrap();
        assert!(into[..100].iter().all(|b| *b == 0) && into[100..].iter().all(|b| *b == 7));
        start_writeback(&to, 0..8192).unwrap();
        sync_data(&to).unwrap();
        sync_all(&to).unwrap();
        evict_range(&to, 0..8192).unwrap();
        match write_uncached_at(&to, &[9; 64], 0) {
            Ok(n) => assert_eq!(n, 64),
            Err(e) => assert!(is_unsupported(&e), "{e}"),
        }
    }
}
