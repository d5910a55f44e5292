//! The write methods that distinguish the raw logs.
//!
//! | store | a frame | durable when |
//! |---|---|---|
//! | `log` | `pwrite`, the file grows | `fdatasync` has returned |
//! | `log-dsync` | the same, file opened with `O_DSYNC` | `pwrite` has returned |
//! | `log-direct` | direct `pwrite` into preallocated zeroed blocks | `pwrite` has returned, by `O_DSYNC` |
//! | `log-uring` | a write in a ring with a linked sync | both have completed |
//!
//! The length of a growing file changes with each commit, and the file system must write this
//! change too. Preallocated blocks avoid this, at the cost of writing each byte twice and at least
//! one block per commit.

use super::super::interface::is_missing;
use crate::choice::{Durability, StoreKind};
use ioloom_sys::buffer::{ALIGN, Buffer};
use ioloom_sys::file::{self, WriteMode, write_full_at};
use ioloom_sys::linked::LinkedWriter;
use ioloom_sys::transfer::{set_direct, sync_all, sync_data};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Preallocation step in bytes; enough for a thousand commits.
const GROWTH: u64 = 4 << 20;
/// Size of a zero-filling write in bytes.
const ZEROS: usize = 1 << 20;

/// Returns the frame alignment of a new log.
pub(super) fn align_of(kind: StoreKind) -> u32 {
    match kind {
        StoreKind::LogDirect => ALIGN as u32,
        _ => 1,
    }
}

/// Opens a log, initially for reading and writing through the page cache.
pub(super) fn open(path: &Path, kind: StoreKind, durability: Durability) -> io::Result<OwnedFd> {
    let is_synced = matches!(durability, Durability::Group | Durability::Each);
    let each_write = matches!(kind, StoreKind::LogDsync | StoreKind::LogDirect) && is_synced;
    let how = if each_write { WriteMode::DataSync } else { WriteMode::Buffered };
    file::open_to_write(path, how)
}

enum WriteMethod {
    /// A write call followed by a sync call.
    Plain(OwnedFd),
    /// A write call that returns once the data is on disk.
    EachWrite(OwnedFd),
    /// Direct I/O.
    Direct { file: OwnedFd, buffer: Buffer, each_write: bool, allocated: u64 },
    /// Write and sync in a ring.
    Ring(Box<LinkedWriter>),
}

/// How another program has taken a log away from its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The file has no name any more.
    Removed,
    /// The file is too short.
    Truncated,
    /// The file has another name.
    Moved,
}

impl Loss {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Removed => "the file was removed",
            Self::Truncated => "the file was truncated",
            Self::Moved => "the file was renamed or replaced",
        }
    }
}

/// Writes the frames of one log.
pub(super) struct Writer(WriteMethod);

impl Writer {
    /// Creates the writer for an open log that ends at `end`.
    pub(super) fn new(
        file: OwnedFd,
        kind: StoreKind,
        durability: Durability,
        end: u64,
    ) -> io::Result<Self> {
        let method = match kind {
            StoreKind::LogDsync => WriteMethod::EachWrite(file),
            StoreKind::LogUring => {
                let linked = LinkedWriter::new(file);
                WriteMethod::Ring(Box::new(
                    linked.map_err(|e| io::Error::new(e.kind(), no_ring(&e)))?,
                ))
            }
            StoreKind::LogDirect => {
                let each_write = matches!(durability, Durability::Group | Durability::Each);
                let allocated = file::size(&file)? / ALIGN as u64 * ALIGN as u64;
                set_direct(&file, true)?;
                let buffer = Buffer::new(ZEROS);
                let mut writer = Self(WriteMethod::Direct { file, buffer, each_write, allocated });
                // Do this now rather than in the first commit.
                writer.reach(end + 1)?;
                return Ok(writer);
            }
            _ => WriteMethod::Plain(file),
        };
        Ok(Self(method))
    }

    /// Writes a frame. With `sync`, returns once the frame and everything before it are on disk.
    pub(super) fn write(&mut self, frame: &[u8], at: u64, sync: bool) -> io::Result<()> {
        self.reach(at + frame.len() as u64)?;
        match &mut self.0 {
            WriteMethod::Plain(file) => {
                write_full_at(&*file, frame, at)?;
                if sync { sync_data(&*file) } else { Ok(()) }
            }
            WriteMethod::EachWrite(file) => write_full_at(&*file, frame, at),
            WriteMethod::Direct { file, buffer, each_write, .. } => {
                let block = ALIGN as u64;
                debug_assert!(
                    at.is_multiple_of(block) && (frame.len() as u64).is_multiple_of(block),
                    "direct I/O requires aligned offsets and lengths"
                );
                if buffer.capacity() < frame.len() {
                    *buffer = Buffer::new(frame.len());
                }
                buffer.whole_mut()[..frame.len()].copy_from_slice(frame);
                write_full_at(&*file, buffer.bytes(frame.len()), at)?;
                if sync && !*each_write { sync_data(&*file) } else { Ok(()) }
            }
            WriteMethod::Ring(linked) => linked.write(frame, at, sync),
        }
    }

    /// Syncs the file.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        sync_all(self.file())
    }

    /// Returns what another program has done to the file at `path` of at least `end` bytes that
    /// loses them.
    pub(super) fn loss(&self, path: &Path, end: u64) -> io::Result<Option<Loss>> {
        let found = file::identity(self.file())?;
        // `None` if the path cannot be read.
        let is_here = match file::stat(path) {
            Ok(named) => Some((named.inode, named.device) == (found.inode, found.device)),
            Err(error) => is_missing(&error).then_some(false),
        };
        Ok(match found.links {
            // Some file systems report no links of any file.
            0 if is_here != Some(true) => Some(Loss::Removed),
            _ if found.size < end => Some(Loss::Truncated),
            _ if is_here == Some(false) => Some(Loss::Moved),
            _ => None,
        })
    }

    fn file(&self) -> BorrowedFd<'_> {
        match &self.0 {
            WriteMethod::Plain(file)
            | WriteMethod::EachWrite(file)
            | WriteMethod::Direct { file, .. } => file.as_fd(),
            WriteMethod::Ring(linked) => linked.file(),
        }
    }

    /// Allocates blocks up to `end` by writing zeros, if the method requires it.
    fn reach(&mut self, end: u64) -> io::Result<()> {
        let WriteMethod::Direct { file, buffer, allocated, .. } = &mut self.0 else {
            return Ok(());
        };
        if end <= *allocated {
            return Ok(());
        }
        let last = end.next_multiple_of(ALIGN as u64) + GROWTH;
        buffer.whole_mut().fill(0);
        while *allocated < last {
            let count = (last - *allocated).min(ZEROS as u64);
            write_full_at(&*file, buffer.bytes(count as usize), *allocated)?;
            *allocated += count;
        }
        sync_all(&*file)
    }
}

/// Tests whether a log can be written with this method below a directory.
pub(super) fn probe(kind: StoreKind, dir: &Path) -> Result<(), String> {
    match kind {
        StoreKind::LogDirect => {
            let file = file::scratch(dir, WriteMode::Direct);
            file.map_err(|e| no_direct(&e.to_string())).and_then(|file| check(kind, &file))
        }
        _ => check_ring(kind),
    }
}

/// Checks whether a file can be written with this method.
pub(super) fn check(kind: StoreKind, file: &OwnedFd) -> Result<(), String> {
    if kind != StoreKind::LogDirect {
        return check_ring(kind);
    }
    let alignment = file::direct_alignment_of(file).map_err(|e| no_direct(&e.to_string()))?;
    let fits = alignment.is_some_and(|alignment| (ALIGN as u32).is_multiple_of(alignment.offset));
    if fits {
        Ok(())
    } else {
        Err(no_direct("the file system does not support blocks of 4096 bytes"))
    }
}

fn check_ring(kind: StoreKind) -> Result<(), String> {
    if kind == StoreKind::LogUring {
        LinkedWriter::probe().map_err(|e| no_ring(&e))?;
    }
    Ok(())
}

fn no_ring(reason: &io::Error) -> String {
    format!("store log-uring requires io_uring, which is not available: {reason}; use store log")
}

fn no_direct(reason: &str) -> String {
    format!("store log-direct requires direct I/O: {reason}; use store log")
}
