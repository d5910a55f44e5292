//! Raw logs: stores without a storage engine. Orders are appended to a single file; nothing else is
//! written.
//!
//! The file contains the initial stocks and hashes of the stock file, followed by the orders, in
//! checksummed frames (`frame`). Reading the log replays the orders up to the first damage
//! (`recover`); the caller decides whether what follows is a torn tail. The four types of log differ only in how they write frames (`writing`).
//!
//! **Unsynced bytes are rewritten when a log is opened.** After a failed sync, the page cache may
//! contain pages that the kernel does not intend to write, so reading the log makes it appear
//! complete. The bytes after the latest sync are therefore rewritten and synced, to ensure that
//! answers about an order remain true after a restart.
//!
//! **The log does not grow forever.** At twice the number of orders to keep, or after
//! [`GROWTH_MAX`] bytes, it is rewritten to a new file, which starts with the stocks as they were
//! before the latest orders; the file is then synced and renamed (`shorten`). If the new file
//! cannot be written, the log grows by an eighth of a limit before the next attempt. Costs: the commit
//! that reaches this limit waits for the copy, and opening reads the whole file, whose size is
//! bounded by this. There is no second copy of the state in memory.

mod frame;
mod recover;
mod shorten;
#[cfg(test)]
#[allow(clippy::print_stdout, reason = "skipped tests print the reason")]
mod tests;
mod writing;

use super::bytes;
use super::interface::{
    Beginning, EachOrder, MOVED, ORDERS_KEPT, OTHER_KIND, OTHER_PATH, Position, Proven, Store,
    StoreError, Unreadable, invalid,
};
use crate::choice::{Durability, StoreKind};
use crate::lock::open_to_lock;
use frame::{CONTENT_MAX, Frames, Head, Kind, Source};
use ioloom_exchange::{Line, Record, State};
use ioloom_failure::Operation;
use ioloom_sys::file;
use ioloom_sys::make::{private_file, random_number, try_lock};
use ioloom_sys::transfer::{set_len, sync_all};
use recover::{Found, INCOMPLETE, Problem};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use writing::{Loss, Writer, align_of};

/// The first bytes of a log.
pub(super) const MARK: [u8; 8] = frame::MARK;

/// Number of bytes by which a log can grow before it is rewritten.
const GROWTH_MAX: u64 = 256 << 20;

/// How long to wait for a lock held by a server that is exiting.
const LOCKED_MAX: Duration = Duration::from_secs(2);
/// Interval between attempts to get the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

const DAMAGED: &str = "restore a backup, or remove the store and its mark to start over from the \
     stock file, which may lack orders";

const LOST: &str = "the server stopped, because acknowledged orders are no longer in the store; \
     restore a backup of it";

/// Size limits of a log.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Number of orders to keep.
    kept: u64,
    /// Number of bytes by which it can grow.
    growth: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { kept: ORDERS_KEPT, growth: GROWTH_MAX }
    }
}

/// Log options.
#[derive(Debug, Clone, Copy)]
struct LogOptions {
    kind: StoreKind,
    durability: Durability,
    bounds: Bounds,
}

impl LogOptions {
    /// Returns true if commits are synced.
    fn syncs(&self) -> bool {
        matches!(self.durability, Durability::Group | Durability::Each)
    }
}

/// Appends frames to a file.
struct Tail {
    writer: Writer,
    /// The log number.
    log: u64,
    align: u32,
    /// Offset of the next frame.
    end: u64,
    /// Synced length.
    synced: u64,
    frame: Vec<u8>,
}

impl Tail {
    fn put(&mut self, kind: Kind, first: u64, content: &[u8], sync: bool) -> io::Result<()> {
        let Self { log, end: at, synced, .. } = *self;
        frame::put(&mut self.frame, &Head { log, at, synced, first, kind }, content, self.align);
        debug_assert!(self.synced <= self.end, "a torn tail would be mistaken for damage");
        self.writer.write(&self.frame, at, sync)?;
        self.end += self.frame.len() as u64;
        if sync {
            self.synced = self.end;
        }
        Ok(())
    }

    /// Writes the initial frames of a log.
    fn begin(
        &mut self,
        base: u64,
        lines: impl ExactSizeIterator<Item = Line>,
        hashes: &[u64],
    ) -> io::Result<()> {
        let (align, stocks) = (self.align, lines.len() as u64);
        let begun = frame::Beginning { align, stocks, hashes: hashes.to_vec() };
        self.put(Kind::Beginning, base, &begun.contents(), false)?;
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

/// An open raw log.
pub(super) struct Log {
    tail: Tail,
    path: PathBuf,
    options: LogOptions,
    /// Number of the latest order before the first one in the log.
    base: u64,
    latest: u64,
    /// Buffer for the contents of a frame, for reuse.
    content: Vec<u8>,
    hashes: Vec<u64>,
    /// Size at which the log is rewritten.
    shorten_at: u64,
    /// Number of the latest order at which the log is rewritten.
    full_at: u64,
    /// Whether the latest rewrite failed, which was reported.
    is_put_off: bool,
    /// Whether a write failed, leaving the contents of the file unknown.
    has_failed: bool,
}

/// Creates a log in a new file.
pub(super) fn make(kind: StoreKind, path: &Path, beginning: &Beginning<'_>) -> io::Result<()> {
    private_file(path)?;
    // Through the page cache: logs of all types start in the same way.
    let file = writing::open(path, StoreKind::Log, Durability::Os)?;
    writing::check(kind, &file).map_err(io::Error::other)?;
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

/// Returns true if a store is a raw log.
pub(super) fn is_log(kind: StoreKind) -> bool {
    matches!(
        kind,
        StoreKind::Log | StoreKind::LogDsync | StoreKind::LogDirect | StoreKind::LogUring
    )
}

/// Tests whether a log of this type works below a directory.
pub(super) fn probe(kind: StoreKind, dir: &Path) -> Result<(), String> {
    writing::probe(kind, dir)
}

/// Reads and verifies an existing log.
pub(super) fn prove(
    kind: StoreKind,
    path: &Path,
    durability: Durability,
    each: EachOrder<'_>,
) -> Result<Proven, StoreError> {
    let options = LogOptions { kind, durability, bounds: Bounds::default() };
    let (file, found) = Log::read(path, options, each)?;
    Ok(proven(path, options, file, found))
}

/// Like [`prove`], for a program that does not use the log: it need not be writable.
pub(super) fn prove_to_read(path: &Path, each: EachOrder<'_>) -> Result<Proven, StoreError> {
    let (kind, durability) = (StoreKind::Log, Durability::Os);
    let options = LogOptions { kind, durability, bounds: Bounds::default() };
    let file = open_to_lock(path).map_err(StoreError::unusable(Operation::Open, path))?;
    let found = Log::read_file(&file, path, options, each)?;
    Ok(proven(path, options, file, found))
}

fn proven(path: &Path, options: LogOptions, file: OwnedFd, found: Found) -> Proven {
    let unreadable = found.is_torn.then(|| Unreadable {
        file: path.to_owned(),
        from: found.end,
        bytes: found.after.used_end - found.end,
        latest: found.after.latest,
        damage: found.after.synced_frame.map(|_| INCOMPLETE),
    });
    let position = Position { log: found.log, written: found.end, synced: found.synced };
    let (state, hashes) = (found.state.clone(), found.hashes.clone());
    let path = path.to_owned();
    let begin = move || -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Log::begin(&path, options, file, found)?.0))
    };
    Proven { state, hashes, unreadable, position, begin: Box::new(begin) }
}

impl Log {
    /// Opens a log to use it, locks and reads it without modifying it.
    fn read(
        path: &Path,
        options: LogOptions,
        each: EachOrder<'_>,
    ) -> Result<(OwnedFd, Found), StoreError> {
        let file = writing::open(path, options.kind, options.durability)
            .map_err(StoreError::unusable(Operation::Open, path))?;
        let found = Self::read_file(&file, path, options, each)?;
        Ok((file, found))
    }

    /// Locks and reads an open log.
    fn read_file(
        file: &OwnedFd,
        path: &Path,
        options: LogOptions,
        each: EachOrder<'_>,
    ) -> Result<Found, StoreError> {
        if !lock(file, path).map_err(StoreError::unusable(Operation::Open, path))? {
            return Err(StoreError::locked(path, None));
        }
        let unreadable = |error, advice| StoreError::new(Operation::Read, path, error, advice);
        let found = recover::read(file, each).map_err(|problem| match problem {
            Problem::Read(error) => StoreError::unusable(Operation::Read, path)(error),
            Problem::NotOurs => {
                unreadable(invalid("not a store of this type and version"), OTHER_PATH)
            }
            Problem::Damaged(what, at) => {
                unreadable(io::Error::other(format!("damaged at byte {at}: {what}")), DAMAGED)
            }
        })?;
        if !found.align.is_multiple_of(align_of(options.kind)) {
            let unaligned = invalid(
                "written by store log, log-dsync or log-uring, whose frames are not aligned to \
                 whole blocks as log-direct requires",
            );
            return Err(StoreError::new(Operation::Open, path, unaligned, OTHER_KIND));
        }
        writing::check(options.kind, file).map_err(|reason| {
            StoreError::new(Operation::Open, path, io::Error::other(reason), OTHER_KIND)
        })?;
        Ok(found)
    }

    /// Starts to use a log: truncates everything after its last frame, and syncs it.
    fn begin(
        path: &Path,
        options: LogOptions,
        file: OwnedFd,
        found: Found,
    ) -> Result<(Self, State), StoreError> {
        let no_write = |error| StoreError::stopped(path, error);
        repair(&file, &found).map_err(no_write)?;
        let Found { log, align, state, base, hashes, end, .. } = found;
        let writer = Writer::new(file, options.kind, options.durability, end).map_err(no_write)?;
        let tail = Tail { writer, log, align, end, synced: end, frame: Vec::new() };
        let log = Self {
            tail,
            path: path.to_owned(),
            options,
            base,
            latest: state.seq(),
            content: Vec::new(),
            hashes,
            shorten_at: end + options.bounds.growth,
            full_at: base + 2 * options.bounds.kept,
            is_put_off: false,
            has_failed: false,
        };
        Ok((log, state))
    }

    fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let Some(last) = records.last() else { return Ok(()) };
        let latest = last.outcome.seq();
        let mut content = std::mem::take(&mut self.content);
        let mut first = self.latest + 1;
        for record in records {
            let seq = record.outcome.seq();
            if content.is_empty() {
                first = seq;
            }
            frame::push_record(&mut content, record);
            let is_last = seq == latest;
            if is_last || content.len() >= CONTENT_MAX / 2 {
                let sync = is_last && self.options.syncs();
                self.tail.put(Kind::Orders, first, &content, sync)?;
                content.clear();
            }
        }
        self.content = content;
        self.latest = latest;
        let is_full = self.latest >= self.full_at || self.tail.end >= self.shorten_at;
        if is_full { self.shorten() } else { Ok(()) }
    }

    /// Fails if another program has removed, renamed or truncated the file. A write beyond its end
    /// would hide that.
    fn check(&mut self) -> Result<(), StoreError> {
        let error = match self.tail.writer.loss(&self.path, self.tail.end) {
            Ok(None) => return Ok(()),
            Ok(Some(loss)) => {
                let advice = if loss == Loss::Moved { MOVED } else { LOST };
                let loss = io::Error::other(loss.text());
                StoreError::new(Operation::Write, &self.path, loss, advice)
            }
            Err(error) => StoreError::stopped(&self.path, error),
        };
        self.has_failed = true;
        Err(error)
    }

    /// Calls `f`, which writes, unless an earlier write failed.
    fn change(&mut self, f: impl FnOnce(&mut Self) -> io::Result<()>) -> Result<(), StoreError> {
        let changed = if self.has_failed {
            Err(io::Error::other("an earlier write failed"))
        } else {
            f(self)
        };
        self.has_failed |= changed.is_err();
        changed.map_err(|error| StoreError::stopped(&self.path, error))
    }
}

/// Locks a log and verifies that the path still refers to it: its owner may have rewritten it.
/// Waits briefly, because the lock of a killed server with requests in a ring outlives its process
/// for a moment.
fn lock(file: &OwnedFd, path: &Path) -> io::Result<bool> {
    let opened = file::identity(file)?;
    if opened.kind != file::Kind::Regular {
        let kind = opened.kind.word();
        let what = format!("it is {kind}, but a log is a regular file");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut is_ours = try_lock(file)?;
    let mut waited = Duration::ZERO;
    while !is_ours && waited < LOCKED_MAX {
        std::thread::sleep(LOCK_INTERVAL);
        waited += LOCK_INTERVAL;
        is_ours = try_lock(file)?;
    }
    let named = file::stat(path)?;
    Ok(is_ours && (named.inode, named.device) == (opened.inode, opened.device))
}

/// Truncates a torn tail, and rewrites bytes that may not be on disk.
fn repair(file: &OwnedFd, found: &Found) -> io::Result<()> {
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
        if self.options.syncs() {
            self.check()?;
        }
        self.change(|log| log.append(records))
    }

    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
        self.check()?;
        self.change(|log| {
            log.tail.put(Kind::Hashes, log.latest, &bytes::hashes(hashes), true)?;
            log.hashes = hashes.to_vec();
            Ok(())
        })
    }

    fn verify(&mut self) -> Result<(), StoreError> {
        self.check()
    }

    fn position(&self) -> Position {
        Position { log: self.tail.log, written: self.tail.end, synced: self.tail.synced }
    }
}
