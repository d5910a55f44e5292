//! Memory mappings of files.
//!
//! A mapping is less reliable than a slice. If the file is truncated while mapped, touching the
//! missing pages raises SIGBUS; if it is written, the bytes change under the reader. The library
//! therefore never maps files. Only child processes of the laboratory do, with [`on_bus_error`]
//! installed, and the parent converts the signal to an error.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Advice to the kernel about a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapAdvice {
    /// No advice.
    None,
    /// `MADV_SEQUENTIAL`.
    Sequential,
    /// `MADV_WILLNEED`: start reading the whole file.
    Willneed,
    /// `MAP_POPULATE`: map all pages before the call returns.
    Populate,
}

/// Bytes that [`Map::populated`] maps with one call.
const POPULATED_BYTES: usize = 16 << 20;

/// A read-only private mapping of a file.
#[derive(Debug)]
pub struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is read-only and owned exclusively.
unsafe impl Send for Map {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `len` bytes of a file; `len` must be non-zero.
    pub fn new(file: impl AsFd, len: usize, advice: MapAdvice) -> io::Result<Self> {
        if len == 0 {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut flags = MapFlags::PRIVATE;
        if advice == MapAdvice::Populate {
            flags |= MapFlags::POPULATE;
        }
        let start = crate::fault::call("mmap", || {
            // SAFETY: a new mapping at an address chosen by the kernel touches no existing memory.
            let start = unsafe {
                mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, file.as_fd(), 0)
            }?;
            Ok(start)
        })?;
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null");
        let map = Self { start, len };
        let advice = match advice {
            MapAdvice::Sequential => Some(Advice::Sequential),
            MapAdvice::Willneed => Some(Advice::WillNeed),
            MapAdvice::None | MapAdvice::Populate => None,
        };
        if let Some(advice) = advice {
            crate::fault::call("madvise", || {
                // SAFETY: the range is the new mapping.
                unsafe { madvise(map.start.as_ptr().cast(), map.len, advice) }?;
                Ok(())
            })?;
        }
        Ok(map)
    }

    /// Maps the first `len` bytes of a file with all pages, as [`MapAdvice::Populate`] does; `len` must be
    /// non-zero. No signal with a handler ends such a call, so a large file takes several. If `stops` returns
    /// true between two of them, the remaining pages are not mapped.
    pub fn populated(file: impl AsFd, len: usize, stops: impl Fn() -> bool) -> io::Result<Self> {
        if len <= POPULATED_BYTES {
            return Self::new(file, len, MapAdvice::Populate);
        }
        let map = Self::new(&file, len, MapAdvice::None)?;
        let (fd, flags) = (file.as_fd(), MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::POPULATE);
        for at in (0..len).step_by(POPULATED_BYTES).take_while(|_| !stops()) {
            let part = map.start.as_ptr().wrapping_add(at);
            let bytes = POPULATED_BYTES.min(len - at);
            let mapped = crate::fault::call("mmap", || {
                // SAFETY: the range is part of the new mapping, to which nothing refers yet.
                unsafe { mmap(part.cast(), bytes, ProtFlags::READ, flags, fd, at as u64) }?;
                Ok(())
            });
            if let Err(error) = mapped {
                // The range may be free now, and another thread may map something there.
                std::mem::forget(map);
                return Err(error);
            }
        }
        Ok(map)
    }

    /// Returns the mapped bytes. Reading them can block, and raises SIGBUS if the file was
    /// truncated; they can change while another process writes the file.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped readable until drop. Writes by another process are the
        // documented limitation of this type, which is used only by child processes of the
        // laboratory.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; no reference outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Exit code of a process terminated by [`on_bus_error`].
pub const BUS_EXIT_CODE: i32 = 67;

static BUS_FILE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Installs a SIGBUS handler that exits with [`BUS_EXIT_CODE`] after writing the line
/// `ioloom-sigbus INDEX` to standard error; INDEX is the last argument of [`note_mapped_file`].
pub fn on_bus_error() -> io::Result<()> {
    extern "C" fn handler(_: libc::c_int) {
        let mut line = *b"ioloom-sigbus 00000000000000000000\n";
        let mut index = BUS_FILE.load(Ordering::Relaxed);
        for digit in line[14..34].iter_mut().rev() {
            *digit = b'0' + (index % 10) as u8;
            index /= 10;
        }
        // SAFETY: write and _exit are async-signal-safe; the line is on this stack.
        unsafe {
            libc::write(2, line.as_ptr().cast(), line.len());
            libc::_exit(BUS_EXIT_CODE);
        }
    }
    // SAFETY: the action is fully initialized and the handler calls only async-signal-safe
    // functions.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
        libc::sigemptyset(&raw mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Records which file is being accessed, for the message of [`on_bus_error`]. With several threads,
/// it is one of the files being accessed.
#[inline]
pub fn note_mapped_file(index: usize) {
    BUS_FILE.store(index, Ordering::Relaxed);
}
