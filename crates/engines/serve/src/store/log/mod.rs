//! Raw logs: stores without an engine. Orders are appended to one file and nothing else is written.
//!
//! The file is what a store begins with (stocks, hashes of the stock file) and then its orders, in
//! frames that prove themselves (`frame`). Opening carries the stocks on by each order in turn
//! (`recover`), cuts a torn end off and refuses what the disk has damaged. Four stores differ in how
//! a frame reaches the disk and in nothing else (`writing`).
//!
//! **What was not synced is written again on opening.** A sync that fails leaves pages that the
//! system shows and does not mean to write: a log that is read after it looks whole. Its bytes behind
//! the latest sync are written once more and synced, so what is told of an order after a restart is
//! as true as before.
//!
//! **It does not grow for ever**: with twice the orders that are kept, or [`GROWTH_MAX`] bytes, it
//! is made anew beside its place with the stocks as they were before the latest orders, synced, and
//! renamed (`shorten`). Costs: the commit that meets this bound waits for the copy; the state is not
//! kept in memory a second time; opening reads the whole file, which is bounded by that.

mod frame;
mod recover;
mod shorten;
#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test that cannot run here says so")]
mod tests;
mod writing;

use super::bytes;
use super::interface::{Beginning, NOT_OURS, ORDERS_KEPT, Store, StoreError, invalid};
use crate::choice::{Durability, StoreKind};
use frame::{CONTENT_MAX, Frames, Head, Kind, Source};
use ioloom_exchange::{Line, Record, State};
use ioloom_failure::Operation;
use ioloom_sys::file;
use ioloom_sys::make::{random_number, try_lock};
use ioloom_sys::transfer::{set_len, sync_all};
use recover::{Found, Problem, recover};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use writing::{Writer, align_of};

/// First bytes of a log.
pub(super) const MARK: [u8; 8] = frame::MARK;

/// Bytes by which a log grows before it is made anew.
const GROWTH_MAX: u64 = 256 << 20;

/// How long a log may be locked by somebody who is about to leave it.
const LOCKED_MAX: Duration = Duration::from_secs(2);
/// Between two looks at the lock.
const LOCKED_LOOK: Duration = Duration::from_millis(10);

const DAMAGED: &str = "put a whole copy in its place, or remove it to begin anew from the stock file, \
     which may lack orders";

/// How large a log may become.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Orders that stay.
    kept: u64,
    /// Bytes by which it grows.
    growth: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { kept: ORDERS_KEPT, growth: GROWTH_MAX }
    }
}

/// How a log is written and kept.
#[derive(Debug, Clone, Copy)]
struct LogOptions {
    kind: StoreKind,
    durability: Durability,
    bounds: Bounds,
}

impl LogOptions {
    /// Whether a commit is synced.
    fn syncs(&self) -> bool {
        matches!(self.durability, Durability::Group | Durability::Each)
    }
}

/// Frames that are appended to a file one after the other.
struct Tail {
    writer: Writer,
    /// The number of the log.
    log: u64,
    align: u32,
    /// Where the next frame begins.
    end: u64,
    /// How far it is synced.
    synced: u64,
    frame: Vec<u8>,
}

impl Tail {
    fn put(&mut self, kind: Kind, first: u64, content: &[u8], sync: bool) -> io::Result<()> {
        let Self { log, end: at, synced, .. } = *self;
        frame::put(&mut self.frame, &Head { log, at, synced, first, kind }, content, self.align);
        self.writer.write(&self.frame, at, sync)?;
        self.end += self.frame.len() as u64;
        if sync {
            self.synced = self.end;
        }
        Ok(())
    }

    /// Writes what a log begins with.
    fn begin(
        &mut self,
        base: u64,
        lines: impl ExactSizeIterator<Item = Line>,
        hashes: &[u64],
    ) -> io::Result<()> {
        let (align, stocks) = (self.align, lines.len() as u64);
        let begun = frame::Beginning { align, stocks, hashes: hashes.to_vec() };
        self.put(Kind::Beginning, base, &begun.content(), false)?;
        let mut content = Vec::new();
        for line in lines {
            frame::push_stock(&mut content, &line);
            if content.len() >= CONTENT_MAX - 12 {
                self.put(Kind::Stocks, base, &content, false)?;
                content.clear();
            }
        }
        if content.is_empty() { Ok(()) } else { self.put(Kind::Stocks, base, &content, false) }
    }
}

/// A raw log that was opened.
pub(super) struct Log {
    tail: Tail,
    path: PathBuf,
    options: LogOptions,
    /// The number of the latest order before the first that it holds.
    base: u64,
    latest: u64,
    hashes: Vec<u64>,
    /// Bytes from which it is made anew.
    shorten_at: u64,
    /// A write failed, so nobody knows what the file holds.
    has_failed: bool,
}

/// Makes a log in a new file.
pub(super) fn make(kind: StoreKind, path: &Path, beginning: &Beginning<'_>) -> io::Result<()> {
    std::fs::File::create_new(path)?;
    // Through the cache: a log of any kind begins alike.
    let file = writing::open(path, StoreKind::Log, Durability::Os)?;
    let writer = Writer::new(file, StoreKind::Log, Durability::Os, 0)?;
    let mut tail = Tail {
        writer,
        log: random_number(),
        align: align_of(kind),
        end: 0,
        synced: 0,
        frame: Vec::new(),
    };
    let lines: Vec<_> = beginning.stocks.lines().collect();
    tail.begin(0, lines.into_iter(), &[beginning.file_hash])?;
    tail.writer.sync_all()
}

/// Why a log of this kind cannot be had below a directory, found by trying.
pub(super) fn probe(kind: StoreKind, dir: &Path) -> Result<(), String> {
    writing::probe(kind, dir)
}

/// Opens a log that is there.
pub(super) fn open(
    kind: StoreKind,
    path: &Path,
    durability: Durability,
) -> Result<(Box<dyn Store>, State), StoreError> {
    let options = LogOptions { kind, durability, bounds: Bounds::default() };
    let (log, state) = Log::open(path, options)?;
    Ok((Box::new(log), state))
}

impl Log {
    fn open(path: &Path, options: LogOptions) -> Result<(Self, State), StoreError> {
        let unusable = StoreError::unusable(Operation::Open, path);
        let file = writing::open(path, options.kind, options.durability).map_err(&unusable)?;
        lock(&file, path).map_err(&unusable)?;
        let unreadable = |error, advice| StoreError::new(Operation::Read, path, error, advice);
        let found = recover(&file).map_err(|problem| match problem {
            Problem::Read(error) => unreadable(error, NOT_OURS),
            Problem::NotOurs => {
                unreadable(invalid("not a store of this kind and version"), NOT_OURS)
            }
            Problem::Damaged(what, at) => {
                unreadable(io::Error::other(format!("damaged at byte {at}: {what}")), DAMAGED)
            }
        })?;
        if !found.align.is_multiple_of(align_of(options.kind)) {
            return Err(unusable(invalid(
                "written by store log, log-dsync or log-uring, whose frames are not aligned to \
                 whole blocks as log-direct requires",
            )));
        }
        writing::check(options.kind, &file).map_err(io::Error::other).map_err(&unusable)?;
        let no_write = |error| StoreError::stopped(path, error);
        mend(&file, &found).map_err(no_write)?;
        let Found { log, align, state, base, hashes, end, .. } = found;
        let writer = Writer::new(file, options.kind, options.durability, end).map_err(no_write)?;
        let tail = Tail { writer, log, align, end, synced: end, frame: Vec::new() };
        let log = Self {
            tail,
            path: path.to_owned(),
            options,
            base,
            latest: state.seq(),
            hashes,
            shorten_at: end + options.bounds.growth,
            has_failed: false,
        };
        Ok((log, state))
    }

    fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let Some(last) = records.last() else { return Ok(()) };
        let latest = last.outcome.seq();
        let mut content = Vec::new();
        let mut first = self.latest + 1;
        for record in records {
            let seq = record.outcome.seq();
            if content.is_empty() {
                first = seq;
            }
            frame::push_order(&mut content, &bytes::value(record));
            let is_last = seq == latest;
            if is_last || content.len() >= CONTENT_MAX / 2 {
                let sync = is_last && self.options.syncs();
                self.tail.put(Kind::Orders, first, &content, sync)?;
                content.clear();
            }
        }
        self.latest = latest;
        let is_full = self.latest - self.base >= 2 * self.options.bounds.kept;
        if is_full || self.tail.end >= self.shorten_at { self.shorten() } else { Ok(()) }
    }

    /// Does what writes, unless a write has failed.
    fn change(&mut self, f: impl FnOnce(&mut Self) -> io::Result<()>) -> Result<(), StoreError> {
        let changed = if self.has_failed {
            Err(io::Error::other("a write before this one has failed"))
        } else {
            f(self)
        };
        self.has_failed |= changed.is_err();
        changed.map_err(|error| StoreError::stopped(&self.path, error))
    }
}

/// Takes the lock of a log, and makes sure that it still has its name: the owner may have made it anew
/// meanwhile. Waits a little for a lock: a server that was killed with something in a ring holds it
/// for a moment longer than it lives.
fn lock(file: &OwnedFd, path: &Path) -> io::Result<()> {
    let opened = file::identity(file)?;
    if opened.kind != file::Kind::Regular {
        let kind = opened.kind.word();
        return Err(io::Error::other(format!("{kind}, and a log is a regular file")));
    }
    let mut is_ours = try_lock(file)?;
    let mut waited = Duration::ZERO;
    while !is_ours && waited < LOCKED_MAX {
        std::thread::sleep(LOCKED_LOOK);
        waited += LOCKED_LOOK;
        is_ours = try_lock(file)?;
    }
    let named = file::stat(path)?;
    if is_ours && (named.inode, named.device) == (opened.inode, opened.device) {
        Ok(())
    } else {
        Err(io::Error::other("locked by another server"))
    }
}

/// Cuts off what is torn, and writes again what nobody knows to be on the disk.
fn mend(file: &OwnedFd, found: &Found) -> io::Result<()> {
    if found.is_torn {
        set_len(file, found.end)?;
    }
    let mut frames = Frames::new(file as &dyn Source)?;
    let mut at = found.synced;
    while at < found.end {
        let count = usize::try_from(found.end - at).unwrap_or(CONTENT_MAX).min(CONTENT_MAX);
        let piece = frames.bytes(at, count)?.to_vec();
        if piece.len() < count {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file::write_full_at(file, &piece, at)?;
        at += count as u64;
    }
    sync_all(file)
}

impl Store for Log {
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.change(|log| log.append(records))
    }

    fn stock_hashes(&mut self) -> Result<Vec<u64>, StoreError> {
        Ok(self.hashes.clone())
    }

    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
        self.change(|log| {
            log.tail.put(Kind::Hashes, log.latest, &bytes::hashes(hashes), true)?;
            log.hashes = hashes.to_vec();
            Ok(())
        })
    }
}
