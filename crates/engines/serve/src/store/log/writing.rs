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

enum Way {
    /// A call to write, a call to sync.
    Plain(OwnedFd),
    /// A call that returns when the disk has it.
    EachWrite(OwnedFd),
    /// Past the cache.
    Direct { file: OwnedFd, buffer: Buffer, each_write: bool, there: u64 },
    /// Both in a ring.
    Ring(Box<LinkedWriter>),
}

/// Writes frames of one log.
pub(super) struct Writer(Way);

impl Writer {
    /// Takes a log that was opened and ends at a place.
    pub(super) fn new(
        file: OwnedFd,
        kind: StoreKind,
        durability: Durability,
        end: u64,
    ) -> io::Result<Self> {
        let way = match kind {
            StoreKind::LogDsync => Way::EachWrite(file),
            StoreKind::LogUring => {
                let linked = LinkedWriter::new(file);
                Way::Ring(Box::new(linked.map_err(|e| io::Error::new(e.kind(), no_ring(&e)))?))
            }
            StoreKind::LogDirect => {
                let each_write = matches!(durability, Durability::Group | Durability::Each);
                let there = file::size(&file)? / ALIGN as u64 * ALIGN as u64;
                set_direct(&file, true)?;
                let buffer = Buffer::new(ZEROS);
                let mut writer = Self(Way::Direct { file, buffer, each_write, there });
                // Not in the first commit.
                writer.reach(end + 1)?;
                return Ok(writer);
            }
            _ => Way::Plain(file),
        };
        Ok(Self(way))
    }

    /// Writes a frame; with `sync` it returns when the disk has it and everything before.
    pub(super) fn write(&mut self, frame: &[u8], at: u64, sync: bool) -> io::Result<()> {
        self.reach(at + frame.len() as u64)?;
        match &mut self.0 {
            Way::Plain(file) => {
                write_full_at(&*file, frame, at)?;
                if sync { sync_data(&*file) } else { Ok(()) }
            }
            Way::EachWrite(file) => write_full_at(&*file, frame, at),
            Way::Direct { file, buffer, each_write, .. } => {
                if buffer.capacity() < frame.len() {
                    *buffer = Buffer::new(frame.len());
                }
                buffer.whole_mut()[..frame.len()].copy_from_slice(frame);
                write_full_at(&*file, buffer.bytes(frame.len()), at)?;
                if sync && !*each_write { sync_data(&*file) } else { Ok(()) }
            }
            Way::Ring(linked) => linked.write(frame, at, sync),
        }
    }

    /// Brings everything of the file to the disk.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        match &self.0 {
            Way::Plain(file) | Way::EachWrite(file) | Way::Direct { file, .. } => sync_all(file),
            Way::Ring(linked) => sync_all(linked.file()),
        }
    }

    /// Writes zeros until the blocks before `end` are there, for the way that needs them.
    fn reach(&mut self, end: u64) -> io::Result<()> {
        let Way::Direct { file, buffer, there, .. } = &mut self.0 else { return Ok(()) };
        if end <= *there {
            return Ok(());
        }
        let last = end.next_multiple_of(ALIGN as u64) + GROWTH;
        buffer.whole_mut().fill(0);
        while *there < last {
            let count = (last - *there).min(ZEROS as u64);
            write_full_at(&*file, buffer.bytes(count as usize), *there)?;
            *there += count;
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
    let asked = file::direct_alignment_of(file).map_err(|e| no_direct(&e.to_string()))?;
    let fits = asked.is_some_and(|told| (ALIGN as u32).is_multiple_of(told.offset));
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
