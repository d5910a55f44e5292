//! The ways in which frames reach the disk, which is all that the raw logs differ in.
//!
//! | store | a frame | safe when |
//! |---|---|---|
//! | `log` | `pwrite`, the file grows | `fdatasync` has returned |
//! | `log-dsync` | the same, file opened with `O_DSYNC` | `pwrite` has returned |
//! | `log-direct` | `pwrite` past the cache into blocks that were written with zeros before | `pwrite` has returned, by `O_DSYNC` |
//! | `log-uring` | a write in a ring, with the sync linked behind it | both have come back |
//!
//! A file that grows has a new length with each commit, which the file system writes too; blocks that
//! are there already spare that, and cost a second writing of each byte and a block for each commit.

use crate::choice::{Durability, StoreKind};
use ioloom_sys::buffer::{ALIGN, Buffer};
use ioloom_sys::file::{self, WriteMode, write_full_at};
use ioloom_sys::linked::LinkedWriter;
use ioloom_sys::transfer::{set_direct, sync_all, sync_data};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Bytes by which a log grows whose blocks must be there: a thousand commits.
const GROWTH: u64 = 4 << 20;
/// Bytes of zeros that are written at once.
const ZEROS: usize = 1 << 20;

/// At multiples of what frames begin in a new log.
pub(super) fn align_of(kind: StoreKind) -> u32 {
    match kind {
        StoreKind::LogDirect => ALIGN as u32,
        _ => 1,
    }
}

/// Opens a log, to be read and written through the cache at first.
pub(super) fn open(path: &Path, kind: StoreKind, durability: Durability) -> io::Result<OwnedFd> {
    let is_synced = matches!(durability, Durability::Group | Durability::Each);
    let each_write = matches!(kind, StoreKind::LogDsync | StoreKind::LogDirect) && is_synced;
    let how = if each_write { WriteMode::DataSync } else { WriteMode::Buffered };
    file::open_to_write(path, how)
}

enum WriteMethod {
    /// A call to write, a call to sync.
    Plain(OwnedFd),
    /// A call that returns when the disk has it.
    EachWrite(OwnedFd),
    /// Past the cache.
    Direct { file: OwnedFd, buffer: Buffer, each_write: bool, allocated: u64 },
    /// Both in a ring.
    Ring(Box<LinkedWriter>),
}

/// Writes frames of one log.
pub(super) struct Writer(WriteMethod);

impl Writer {
    /// Takes a log that was opened and ends at a place.
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
                // Not in the first commit.
                writer.reach(end + 1)?;
                return Ok(writer);
            }
            _ => WriteMethod::Plain(file),
        };
        Ok(Self(method))
    }

    /// Writes a frame; with `sync` it returns when the disk has it and everything before.
    pub(super) fn write(&mut self, frame: &[u8], at: u64, sync: bool) -> io::Result<()> {
        self.reach(at + frame.len() as u64)?;
        match &mut self.0 {
            WriteMethod::Plain(file) => {
                write_full_at(&*file, frame, at)?;
                if sync { sync_data(&*file) } else { Ok(()) }
            }
            WriteMethod::EachWrite(file) => write_full_at(&*file, frame, at),
            WriteMethod::Direct { file, buffer, each_write, .. } => {
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

    /// Brings everything of the file to the disk.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        match &self.0 {
            WriteMethod::Plain(file)
            | WriteMethod::EachWrite(file)
            | WriteMethod::Direct { file, .. } => sync_all(file),
            WriteMethod::Ring(linked) => sync_all(linked.file()),
        }
    }

    /// Writes zeros until the blocks before `end` are there, for the way that needs them.
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

/// Why a log cannot be written in this way below a directory, found by trying.
pub(super) fn probe(kind: StoreKind, dir: &Path) -> Result<(), String> {
    match kind {
        StoreKind::LogUring => LinkedWriter::probe().map_err(|e| no_ring(&e)),
        StoreKind::LogDirect => {
            let file = file::scratch(dir, WriteMode::Direct);
            file.map_err(|e| no_direct(&e.to_string())).and_then(|file| check(kind, &file))
        }
        _ => Ok(()),
    }
}

/// Why this file cannot be written in this way.
pub(super) fn check(kind: StoreKind, file: &OwnedFd) -> Result<(), String> {
    if kind != StoreKind::LogDirect {
        return Ok(());
    }
    let alignment = file::direct_alignment_of(file).map_err(|e| no_direct(&e.to_string()))?;
    let fits = alignment.is_some_and(|alignment| (ALIGN as u32).is_multiple_of(alignment.offset));
    if fits {
        Ok(())
    } else {
        Err(no_direct("the file system does not offer it in blocks of 4096"))
    }
}

fn no_ring(reason: &io::Error) -> String {
    format!("store log-uring needs io_uring, and the system refuses it: {reason}; use store log")
}

fn no_direct(reason: &str) -> String {
    format!("store log-direct writes past the page cache: {reason}; use store log")
}
