//! Rewrites a log: the stocks before the latest orders, followed by those orders.
//!
//! The new log is complete and synced before it replaces the old one, so an interruption leaves one
//! of the two intact. It is locked before it is renamed: a server that opens the old file at that
//! moment notices that the path refers to a different file. Both files are processed in pieces;
//! only the stocks are in memory.

use super::super::copying::remove_leftovers;
use super::super::interface::invalid;
use super::frame::{self, CONTENT_MAX, Frames, Kind};
use super::recover::{self, Problem};
use super::writing::{self, Writer};
use super::{Bounds, Log, Tail};
use crate::temporary;
use ioloom_exchange::{Line, OrderOutcome};
use ioloom_sys::fault;
use ioloom_sys::file::OpenHow;
use ioloom_sys::make::{private_file, random_number, try_lock};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// Target of the messages in the server's log.
const TARGET: &str = "ioloom::serve";

fn bad(problem: Problem) -> io::Error {
    match problem {
        Problem::Read(e) => e,
        Problem::NotOurs => invalid("missing first frame"),
        Problem::Damaged(what, at) => {
            io::Error::new(io::ErrorKind::InvalidData, format!("damaged at byte {at}: {what}"))
        }
    }
}

impl Log {
    /// Rewrites the log, retaining only the latest orders. If the new log cannot be written, the old
    /// one, which contains every order, remains in use.
    pub(super) fn shorten(&mut self) -> io::Result<()> {
        // What an interrupted rewrite left behind only takes up space.
        let _ = fault::call("unlink", || remove_leftovers(&self.path));
        let temp = temporary::name_for(&self.path);
        let remove = |_: &io::Error| {
            let _ = std::fs::remove_file(&temp);
        };
        let tail = match self.shortened(&temp).inspect_err(remove) {
            // The old log is damaged or was replaced.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(error) => {
                self.put_off(&error);
                return Ok(());
            }
            Ok(tail) => tail,
        };
        fault::call("rename", || std::fs::rename(&temp, &self.path)).inspect_err(remove)?;
        self.tail = tail;
        let dir = super::super::path::directory_of(&self.path);
        fault::call("sync-directory", || File::open(dir)?.sync_all())?;
        self.base = self.base.max(self.latest.saturating_sub(self.options.bounds.kept));
        self.shorten_at = self.tail.end + self.options.bounds.growth;
        self.full_at = self.base + 2 * self.options.bounds.kept;
        self.is_put_off = false;
        Ok(())
    }

    /// Postpones a rewrite that failed. Reports only the first of several failures.
    fn put_off(&mut self, error: &io::Error) {
        let Bounds { kept, growth } = self.options.bounds;
        self.shorten_at = self.tail.end + (growth / 8).max(1);
        self.full_at = self.latest + (kept / 8).max(1);
        if !std::mem::replace(&mut self.is_put_off, true) {
            let path = self.path.display();
            tracing::warn!(
                target: TARGET,
                "cannot rewrite log '{path}': {error}; the log grows, and the server tries again \
                 later"
            );
        }
    }

    /// Writes the new log to the file `temp` and syncs it.
    fn shortened(&self, temp: &Path) -> io::Result<Tail> {
        let base = self.base.max(self.latest.saturating_sub(self.options.bounds.kept));
        // The log descriptor may use direct I/O, which would require aligned reads.
        let old = ioloom_sys::file::open(&self.path, OpenHow::default())?;
        let mut frames = Frames::new(&old)?;
        let begun = recover::beginning(&mut frames).map_err(bad)?;
        if begun.log != self.tail.log {
            return Err(invalid("the file was replaced by another log"));
        }
        let mut stocks: BTreeMap<u32, Line> =
            begun.lines.into_iter().map(|line| (line.id, line)).collect();
        let start = self.replay(&mut frames, begun.end, base, &mut stocks)?;
        private_file(temp)?;
        let file = writing::open(temp, self.options.kind, self.options.durability)?;
        if !try_lock(&file)? {
            return Err(io::Error::other("another process has locked the new log"));
        }
        let writer = Writer::new(file, self.options.kind, self.options.durability, 0)?;
        let (log, align) = (random_number(), self.tail.align);
        let mut tail = Tail { writer, log, align, end: 0, synced: 0, frame: Vec::new() };
        let lines: Vec<Line> = stocks.into_values().collect();
        tail.begin(base, lines.into_iter(), &self.hashes)?;
        self.copy(&mut frames, start, base, &mut tail)?;
        tail.writer.sync_all()?;
        tail.synced = tail.end;
        // Proves that everything before it is on disk.
        tail.put(Kind::Hashes, self.latest, &super::bytes::hashes(&self.hashes), true)?;
        Ok(tail)
    }

    /// Applies orders up to number `base` to the stocks. Returns the offset of the frame that
    /// contains the next order.
    fn replay(
        &self,
        frames: &mut Frames<'_>,
        mut at: u64,
        base: u64,
        stocks: &mut BTreeMap<u32, Line>,
    ) -> io::Result<u64> {
        while at < self.tail.end {
            let (head, content, end) = frames.frame(at)?.ok_or_else(|| gone(at))?;
            if head.kind == Kind::Orders {
                for (seq, value) in (head.first..).zip(frame::orders(content)) {
                    if seq > base {
                        return Ok(at);
                    }
                    let record = value.and_then(|value| frame::record(seq, value));
                    let record = record.ok_or_else(|| gone(at))?;
                    if let OrderOutcome::Done { left, .. } = record.outcome {
                        stocks.get_mut(&record.order.stock()).ok_or_else(|| gone(at))?.left = left;
                    }
                }
            }
            at = end;
        }
        Ok(at)
    }

    /// Copies orders after number `base`, starting at an offset in the old log.
    fn copy(
        &self,
        frames: &mut Frames<'_>,
        mut at: u64,
        base: u64,
        tail: &mut Tail,
    ) -> io::Result<()> {
        let mut content = Vec::new();
        let (mut first, mut next) = (base + 1, base + 1);
        while at < self.tail.end {
            let (head, orders, end) = frames.frame(at)?.ok_or_else(|| gone(at))?;
            if head.kind == Kind::Orders {
                for (seq, value) in (head.first..).zip(frame::orders(orders)) {
                    let value = value.ok_or_else(|| gone(at))?;
                    if seq <= base {
                        continue;
                    }
                    frame::push_order(&mut content, value);
                    next = seq + 1;
                }
            }
            if content.len() >= CONTENT_MAX / 2 {
                tail.put(Kind::Orders, first, &content, false)?;
                content.clear();
                first = next;
            }
            at = end;
        }
        if !content.is_empty() {
            tail.put(Kind::Orders, first, &content, false)?;
        }
        if next == self.latest + 1 { Ok(()) } else { Err(gone(at)) }
    }
}

fn gone(at: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("missing data written at byte {at}"))
}
