//! Reads directories: names in blocks, and the attributes of each.

use crate::held::HeldDir;
use crate::node::{Node, path_from};
use crate::open::is_gone;
use crate::task::{DirTask, PartTask, Task};
use crate::visit::{Control, DirRef, Found, Visitor};
use crate::walk::Follow;
use crate::worker::Worker;
use crate::{Fields, Meta, Method};
use ioloom_failure::{Operation, is_out_of_descriptors};
use ioloom_sys::dir::{BUFFER_BYTES, Block, Dir, Kind, Record, Records, StatRing};
use std::cmp::Reverse;
use std::ffi::CStr;
use std::io;
use std::sync::Arc;

/// Requests in flight on one ring.
const RING_DEPTH: u32 = 128;

impl<V: Visitor> Worker<'_, '_, V> {
    /// Reads an entered directory, or reports why it cannot be read, and finishes it.
    pub(crate) fn read(&mut self, node: Node<V::Dir>, opened: io::Result<Dir>) {
        let node = Arc::new(node);
        match opened {
            Err(error) => {
                self.fail(Some(&node), Operation::OpenDir, path_from(node.whole_path(b"")), error);
            }
            Ok(dir) => {
                let held = Arc::new(HeldDir::new(dir, &self.context.held_dirs));
                let mut block = self.block.take().unwrap_or_else(|| Block::new(BUFFER_BYTES));
                let first = self.local.len();
                self.blocks(&node, &held, &mut block);
                let found = first.min(self.local.len())..;
                if matches!(self.context.walk.method, Method::Sweep | Method::InodeTables) {
                    // The directory with the lowest inode comes next.
                    self.local[found].sort_unstable_by_key(|task| Reverse(task.inode()));
                } else {
                    // Next comes the one found first, as in programs that create trees: their
                    // directories are read in the order in which they were written.
                    self.local[found].reverse();
                }
                self.block = Some(block);
                self.visitor.part(DirRef(&node));
            }
        }
        self.finish(node);
    }

    fn blocks(&mut self, node: &Arc<Node<V::Dir>>, held: &Arc<HeldDir>, block: &mut Block) {
        loop {
            match block.fill(&held.dir) {
                Ok(true) => {}
                Ok(false) => return,
                // A directory that is removed while it is read has no more names.
                Err(error) if is_gone(&error) => return,
                Err(error) => {
                    let path = path_from(node.whole_path(b""));
                    return self.fail(Some(node), Operation::ReadDir, path, error);
                }
            }
            if self.context.pool.stopped() {
                return node.miss();
            }
            if block.is_full() && self.local.is_empty() && self.context.pool.idle() > 0 {
                // A wide directory: this thread goes on reading names, others query them.
                let part = PartTask::new(node, held, block.filled().into());
                let number = self.context.pool.give([Task::Part(part)]);
                self.start_worker(number);
                self.poll();
                continue;
            }
            if !self.entries(node, held, &mut Records::new(block.filled())) {
                return;
            }
        }
    }

    /// Visits names. Returns false when the walk ends.
    pub(crate) fn entries<'r>(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<HeldDir>,
        records: &mut Records<'r>,
    ) -> bool {
        if self.context.walk.method == Method::Lstat {
            self.set_path(node);
        }
        let mut later: Vec<&'r CStr> = Vec::new();
        while let Some(record) = records.next() {
            if self.context.pool.stopped() || !self.entry(node, held, &record, &mut later) {
                self.context.pool.stop();
                node.miss();
                return false;
            }
            if self.context.pool.idle() > 0 {
                self.share_within(node, held, records);
            }
            self.step();
        }
        if !later.is_empty() && !self.stat_by_ring(node, held, &later) {
            self.context.pool.stop();
            node.miss();
            return false;
        }
        true
    }

    /// Visits one name. Returns false when the visitor stops the walk. Names to query by ring are
    /// added to `later`.
    #[inline]
    fn entry<'r>(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<HeldDir>,
        record: &Record<'r>,
        later: &mut Vec<&'r CStr>,
    ) -> bool {
        if record.kind == Kind::Unknown {
            return self.entry_unknown(node, held, record);
        }
        let name = record.name.to_bytes();
        if !self.visitor.wants(DirRef(node), name, record.kind) {
            return true;
        }
        match record.kind {
            Kind::Directory => {
                self.found_dir(node, Some(held), record.name, (false, record.inode));
                return true;
            }
            Kind::Symlink if self.context.walk.follow == Follow::Always => {
                return self.entry_linked(node, held, record);
            }
            _ => {}
        }
        if self.fields.is_none() {
            let (kind, inode) = (record.kind, record.inode);
            self.part.entries += 1;
            let found = Found { name, kind, inode, meta: None, linked: false };
            return self.visitor.entry(DirRef(node), &found) == Control::Continue;
        }
        let meta = match self.context.walk.method {
            Method::Lstat => self.meta_by_path(node, record.name),
            Method::Uring => {
                later.push(record.name);
                return true;
            }
            Method::InodeTables => return self.entry_in_tables(node, held, record),
            Method::Sweep => {
                self.collect(node, record.name, record.inode);
                return true;
            }
            _ => held.dir.meta_at(record.name, false, self.fields),
        };
        self.answered(node, Some(held), record.name, meta, false)
    }

    /// Queries names of one directory by ring, or one by one if no ring can be created. Returns false
    /// when the visitor stops the walk.
    fn stat_by_ring(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<HeldDir>,
        names: &[&CStr],
    ) -> bool {
        let fields = self.fields | Fields::IDENTITY;
        let Some(mut ring) = self.ring.take().or_else(|| self.new_ring()) else {
            return names.iter().all(|name| {
                let meta = held.dir.meta_at(name, false, fields);
                self.answered(node, Some(held), name, meta, false)
            });
        };
        let mut metas = Vec::new();
        match ring.stat_all(&held.dir, names, fields, &mut metas) {
            Ok(()) => self.ring = Some(ring),
            Err(error) => {
                let path = path_from(node.whole_path(b""));
                self.fail(Some(node), Operation::StatEntries, path, error);
                return true;
            }
        }
        let mut answers = names.iter().zip(metas);
        answers.all(|(name, meta)| self.answered(node, Some(held), name, meta, false))
    }

    /// Creates a ring, unless the process has no descriptors left or the kernel refuses.
    fn new_ring(&mut self) -> Option<StatRing> {
        if self.context.held_dirs.is_exhausted() {
            return None;
        }
        match StatRing::new(RING_DEPTH, self.context.walk.ring_workers_max) {
            Ok(ring) => Some(ring),
            Err(error) => {
                if is_out_of_descriptors(&error) {
                    self.context.held_dirs.exhaust();
                    self.save_descriptors();
                }
                None
            }
        }
    }

    /// Visits an entry whose attributes were queried. Returns false when the visitor stops the
    /// walk.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: Option<&Arc<HeldDir>>,
        name: &CStr,
        meta: io::Result<Meta>,
        linked: bool,
    ) -> bool {
        match meta {
            Ok(meta) if meta.kind == Kind::Directory => {
                self.found_dir(node, held, name, (linked, meta.inode));
                true
            }
            Ok(meta) => {
                self.part.entries += 1;
                let asked = (!self.fields.is_none()).then_some(&meta);
                let name = name.to_bytes();
                let Meta { kind, inode, .. } = meta;
                let found = Found { name, kind, inode, meta: asked, linked };
                self.visitor.entry(DirRef(node), &found) == Control::Continue
            }
            Err(error) => {
                self.unanswered(node, name, error);
                true
            }
        }
    }

    /// Records a name that could not be queried.
    #[cold]
    fn unanswered(&mut self, node: &Arc<Node<V::Dir>>, name: &CStr, error: io::Error) {
        if is_gone(&error) {
            self.part.vanished += 1;
            self.visitor.vanished(DirRef(node), name.to_bytes());
        } else {
            let path = path_from(node.whole_path(name.to_bytes()));
            self.fail(Some(node), Operation::Stat, path, error);
        }
    }

    /// Visits a name whose kind the file system does not report.
    #[cold]
    fn entry_unknown(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<HeldDir>,
        record: &Record<'_>,
    ) -> bool {
        let name = record.name.to_bytes();
        let needs_kinds = self.visitor.needs_kinds();
        if !needs_kinds && !self.visitor.wants(DirRef(node), name, Kind::Unknown) {
            return true;
        }
        let meta = held.dir.meta_at(record.name, false, self.fields | Fields::IDENTITY);
        let kind = meta.as_ref().map_or(Kind::Unknown, |meta| meta.kind);
        if needs_kinds && !self.visitor.wants(DirRef(node), name, kind) {
            return true;
        }
        match meta {
            Ok(meta)
                if meta.kind == Kind::Symlink && self.context.walk.follow == Follow::Always =>
            {
                self.entry_linked(node, held, record)
            }
            meta => self.answered(node, Some(held), record.name, meta, false),
        }
    }

    fn entry_linked(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<HeldDir>,
        record: &Record<'_>,
    ) -> bool {
        let fields = self.fields | Fields::IDENTITY;
        let meta = match held.dir.meta_at(record.name, true, fields) {
            Err(e) if is_gone(&e) => held.dir.meta_at(record.name, false, fields),
            meta => meta,
        };
        self.answered(node, Some(held), record.name, meta, true)
    }

    /// Pushes a subdirectory onto the stack; `how`: whether it was reached through a link, and its
    /// inode.
    fn found_dir(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: Option<&Arc<HeldDir>>,
        name: &CStr,
        how: (bool, u64),
    ) {
        node.begin();
        let via = held.filter(|held| held.stays()).cloned();
        let (linked, inode) = how;
        let (parent, name) = (Arc::clone(node), name.to_owned());
        self.local.push(Task::Dir(DirTask { parent, name, via, linked, inode }));
    }
}
