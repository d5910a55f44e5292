//! The first bytes of a file, written through memory.
//!
//! A store updates its mark after each commit. A write call per commit would be a measurable share
//! of the commit at levels without a sync; a copy into a shared mapping takes nanoseconds. Like
//! written bytes, the copied bytes are in the page cache: they survive the death of the process,
//! and [`Shared::sync`] makes them survive a power failure.
//!
//! If the file is truncated while mapped, if a copy-on-write file system has no space for a changed
//! page, or if the device fails, the next write is an error rather than a SIGBUS (`bus`). The lost
//! page is then private memory, so the mapping must not be used any longer.

use crate::bus::Guarded;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// Size of [`Words`] in bytes.
const WORDS_BYTES: usize = 4096;

/// A shared mapping of the first bytes of a file.
#[derive(Debug)]
pub struct Shared {
    start: NonNull<u8>,
    len: usize,
    file: OwnedFd,
    guarded: Guarded,
}

// SAFETY: the mapping is owned exclusively, and writing requires `&mut self`.
unsafe impl Send for Shared {}

impl Shared {
    /// Maps the first `len` bytes of a file that was opened for reading and writing and has at
    /// least that many bytes.
    ///
    /// # Errors
    /// Returns an error if the file is shorter, or the system error.
    pub fn new(file: OwnedFd, len: usize) -> io::Result<Self> {
        if len == 0 || crate::file::size(&file)? < len as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let start = crate::fault::call("mmap", || {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address chosen by the kernel touches no existing memory.
            let start = unsafe {
                mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file.as_fd(), 0)
            }?;
            Ok(start)
        })?;
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null");
        let guarded = guard(start.addr().get(), len)?;
        Ok(Self { start, len, file, guarded })
    }

    /// Returns the file.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Copies `bytes` to offset `at`. The bytes are in the page cache before any later system call
    /// of this thread.
    ///
    /// # Errors
    /// Returns an error if this or an earlier write failed, for example because the file was
    /// truncated.
    ///
    /// # Panics
    /// Panics if the range is outside the mapping.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len), "the range must be inside the mapping");
        // SAFETY: the range is mapped writable and `bytes` cannot overlap it, because no reference
        // to the mapping is ever given out.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len());
        }
        compiler_fence(Ordering::SeqCst);
        self.guarded.check()
    }

    /// Writes the bytes to the device.
    ///
    /// # Errors
    /// Returns the system error.
    pub fn sync(&self) -> io::Result<()> {
        crate::transfer::sync_data(&self.file)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; no reference outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Registers a new mapping, or unmaps it if that fails.
fn guard(start: usize, len: usize) -> io::Result<Guarded> {
    Guarded::new(start, len).inspect_err(|_| {
        // SAFETY: the caller has just mapped it and drops the address on failure.
        let _ = unsafe { munmap(std::ptr::with_exposed_provenance_mut(start), len) };
    })
}

/// 4096 bytes of a file as numbers that several processes change.
#[derive(Debug)]
pub struct Words {
    start: NonNull<AtomicU32>,
    /// The mapping, which starts before the words if they do not start a page of the system.
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    guarded: Guarded,
}

/// Returns the offset and the length of a mapping that contains the words at `offset`: the system maps
/// files from a multiple of its page size.
fn mapping_of(offset: u64, page_bytes: u64) -> (u64, usize) {
    let before = offset % page_bytes;
    (offset - before, before as usize + WORDS_BYTES)
}

// SAFETY: the mapping is owned, and is accessed only through atomic operations.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Maps the words at `offset`, a multiple of 4, of a file that was opened for reading and writing
    /// and contains them.
    ///
    /// # Errors
    /// Returns an error if the file is shorter or the offset is invalid, or the system error.
    pub fn new(file: impl AsFd, offset: u64) -> io::Result<Self> {
        if !offset.is_multiple_of(size_of::<AtomicU32>() as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let end = offset.checked_add(WORDS_BYTES as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if crate::file::size(&file)? < end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (base, len) = mapping_of(offset, crate::proc::page_bytes());
        let mapped = crate::fault::call("mmap", || {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let hint = std::ptr::null_mut();
            // SAFETY: a new mapping at an address chosen by the kernel touches no existing memory.
            let start = unsafe { mmap(hint, len, access, MapFlags::SHARED, file.as_fd(), base) }?;
            Ok(start)
        })?;
        let mapped = NonNull::new(mapped.cast::<u8>()).expect("mmap never returns null");
        let guarded = guard(mapped.addr().get(), len)?;
        // SAFETY: the words are the last bytes of the mapping.
        let start = unsafe { mapped.add(len - WORDS_BYTES) }.cast();
        Ok(Self { start, mapped, mapped_bytes: len, guarded })
    }

    /// Checks that the words are still part of the file.
    ///
    /// # Errors
    /// Returns an error if an access failed, for example because the file was truncated. Other
    /// processes do not see later changes.
    #[inline]
    pub fn check(&self) -> io::Result<()> {
        self.guarded.check()
    }

    /// Returns a word.
    ///
    /// # Panics
    /// Panics if there are fewer words.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < WORDS_BYTES / size_of::<AtomicU32>(), "the word must be mapped");
        // SAFETY: the words are mapped until drop and aligned, and all processes access them atomically.
        unsafe { self.start.add(index).as_ref() }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; no reference outlives `self`.
        let _ = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{WriteMode, open_to_write};

    #[test]
    fn copied_bytes_are_in_the_file_and_short_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [0; 8]).unwrap();
        let open = || open_to_write(&path, WriteMode::Buffered).unwrap();
        assert!(Shared::new(open(), 9).is_err());
        let mut shared = Shared::new(open(), 8).unwrap();
        shared.write(3, b"abc").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"\0\0\0abc\0\0");
        shared.sync().unwrap();
        std::fs::write(&path, [0; 8192]).unwrap();
        assert!(Words::new(open(), 8192).is_err());
        let both = [(); 2].map(|()| Words::new(open(), 4096).unwrap());
        both[0].word(3).store(7, Ordering::SeqCst);
        assert_eq!(both[1].word(3).load(Ordering::SeqCst), 7);
        assert_eq!(std::fs::read(&path).unwrap()[4096 + 12..4096 + 16], 7u32.to_ne_bytes());
        let between = Words::new(open(), 4096 - 64).unwrap();
        assert_eq!(between.word(16 + 3).load(Ordering::SeqCst), 7, "not at the start of a page");
        assert!(Words::new(open(), 4094).is_err(), "not aligned");
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = shared.write(6, b"abc");
        }));
        assert!(outside.is_err());
    }

    #[test]
    fn mappings_start_at_a_page_of_any_size() {
        assert_eq!(mapping_of(8192, 4096), (8192, 4096));
        assert_eq!(mapping_of(8192, 16384), (0, 12288));
        assert_eq!(mapping_of(8192, 65536), (0, 12288));
        assert_eq!(mapping_of(65536 + 64, 65536), (65536, 4096 + 64));
    }

    #[test]
    fn writing_to_a_truncated_file_is_an_error() {
        // The rest of a larger page would remain.
        if crate::proc::page_bytes() != 4096 {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [0; 12288]).unwrap();
        let open = || open_to_write(&path, WriteMode::Buffered).unwrap();
        let mut shared = Shared::new(open(), 8192).unwrap();
        let words = Words::new(open(), 8192).unwrap();
        words.word(1).store(5, Ordering::SeqCst);
        let set_len = |len| {
            open_to_write(&path, WriteMode::Buffered)
                .map(std::fs::File::from)
                .unwrap()
                .set_len(len)
                .unwrap()
        };
        set_len(4096);
        shared.write(0, b"the first page remains").unwrap();
        words.check().unwrap();
        assert_eq!(words.word(1).load(Ordering::SeqCst), 0);
        assert!(words.check().is_err());
        for at in [4096, 0] {
            let error = shared.write(at, b"lost").unwrap_err().to_string();
            assert!(error.contains("truncated"), "{error}");
        }
        // Another mapping in the same place starts without an error.
        drop((shared, words));
        set_len(8192);
        let mut shared = Shared::new(open(), 8192).unwrap();
        shared.write(4096, b"kept").unwrap();
        assert_eq!(&std::fs::read(&path).unwrap()[4096..4100], b"kept");
    }
}
