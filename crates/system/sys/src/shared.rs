//! The first bytes of a file, written through memory.
//!
//! A store updates its mark after each commit. A write call per commit would be a measurable share
//! of the commit at levels without a sync; a copy into a shared mapping takes nanoseconds. Like
//! written bytes, the copied bytes are in the page cache: they survive the death of the process,
//! and [`Shared::sync`] makes them survive a power failure.
//!
//! The cost is SIGBUS: if the file is truncated while mapped, or if a copy-on-write file system has
//! no space for a changed page, the next write terminates the process. A caller maps only files
//! that belong to it, with allocated blocks.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// Size of the mapping of [`Words`] in bytes.
const WORDS_BYTES: usize = 4096;

/// A shared mapping of the first bytes of a file.
#[derive(Debug)]
pub struct Shared {
    start: NonNull<u8>,
    len: usize,
    file: OwnedFd,
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
        Ok(Self { start, len, file })
    }

    /// Returns the file.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Copies `bytes` to offset `at`. The bytes are in the page cache before any later system call
    /// of this thread.
    ///
    /// # Panics
    /// Panics if the range is outside the mapping.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len), "the range must be inside the mapping");
        // SAFETY: the range is mapped writable and `bytes` cannot overlap it, because no reference
        // to the mapping is ever given out.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len());
        }
        compiler_fence(Ordering::SeqCst);
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

/// A page of a file as numbers that several processes change.
#[derive(Debug)]
pub struct Words {
    start: NonNull<AtomicU32>,
}

// SAFETY: the mapping is owned, and is accessed only through atomic operations.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Maps the page at `offset`, a multiple of the page size, of a file that was opened for
    /// reading and writing and contains it.
    ///
    /// # Errors
    /// Returns an error if the file is shorter, or the system error.
    pub fn new(file: impl AsFd, offset: u64) -> io::Result<Self> {
        if crate::file::size(&file)? < offset + WORDS_BYTES as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let start = crate::fault::call("mmap", || {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let (hint, len) = (std::ptr::null_mut(), WORDS_BYTES);
            // SAFETY: a new mapping at an address chosen by the kernel touches no existing memory.
            let start = unsafe { mmap(hint, len, access, MapFlags::SHARED, file.as_fd(), offset) }?;
            Ok(start)
        })?;
        Ok(Self { start: NonNull::new(start.cast()).expect("mmap never returns null") })
    }

    /// Returns a word.
    ///
    /// # Panics
    /// Panics if the page has fewer words.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < WORDS_BYTES / size_of::<AtomicU32>(), "the word must be in the page");
        // SAFETY: the page is mapped until drop and aligned, and all processes access these words
        // atomically.
        unsafe { self.start.add(index).as_ref() }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; no reference outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), WORDS_BYTES) };
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
        shared.write(3, b"abc");
        assert_eq!(std::fs::read(&path).unwrap(), b"\0\0\0abc\0\0");
        shared.sync().unwrap();
        std::fs::write(&path, [0; 8192]).unwrap();
        assert!(Words::new(open(), 8192).is_err());
        let both = [(); 2].map(|()| Words::new(open(), 4096).unwrap());
        both[0].word(3).store(7, Ordering::SeqCst);
        assert_eq!(both[1].word(3).load(Ordering::SeqCst), 7);
        assert_eq!(std::fs::read(&path).unwrap()[4096 + 12..4096 + 16], 7u32.to_ne_bytes());
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            shared.write(6, b"abc");
        }));
        assert!(outside.is_err());
    }
}
