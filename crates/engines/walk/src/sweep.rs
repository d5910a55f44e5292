//! Two phases: names first, then every file in the order of inode numbers.
//!
//! On a seeking medium the inodes of one directory are close together, but directories are read in
//! tree order, so the head moves back and forth between names and inode tables. Here directories
//! are read in the order of their inodes as far as they are known, names are kept, and then all
//! files are queried in ascending order: one pass over the tables.
//!
//! Workers collect names in batches of their own. When only names are left, or the window is full,
//! the batches become a [`SweepOrder`]: one sorted order, from which every worker takes the next
//! 512 files, so that all of them work in the same place of the medium. Files are queried by path.
//! Cost: about 60 bytes plus the name per file of a window.

use crate::node::Node;
use crate::open::reopen_node;
use crate::sweep_order::SweepOrder;
use crate::task::Task;
use crate::visit::{DirRef, Visitor};
use crate::worker::Worker;
use crate::{Fields, Meta};
use ioloom_sys::dir;
use std::ffi::CStr;
use std::io;
use std::sync::Arc;

impl<V: Visitor> Worker<'_, '_, V> {
    /// Keeps a name for the sweep.
    pub(crate) fn collect(&mut self, node: &Arc<Node<V::Dir>>, name: &CStr, inode: u64) {
        node.begin();
        if self.batch.push(node, name, inode) {
            self.hand_in_batch();
        }
    }

    /// Hands in the collected names, and starts a sweep if the window is full.
    pub(crate) fn hand_in_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let Some(order) = self.context.batches.hand_in(std::mem::take(&mut self.batch)) else {
            return;
        };
        let order = Arc::new(order);
        let helpers = self.context.pool.active().min(order.full_chunks());
        if helpers > 1 {
            let tasks = (1..helpers).map(|_| Task::Sweep(Arc::clone(&order)));
            let number = self.context.pool.give(tasks);
            self.start_worker(number);
        }
        self.local.push(Task::Sweep(order));
    }

    /// Queries the next files of an order until there are none left.
    pub(crate) fn sweep(&mut self, order: &SweepOrder<V::Dir>) {
        loop {
            let chunk = order.next_chunk();
            if chunk.is_empty() {
                return;
            }
            // Consecutive files of one directory form one part of it.
            for run in chunk.chunk_by(|a, b| Arc::ptr_eq(order.get(a).0, order.get(b).0)) {
                let node = order.get(&run[0]).0;
                self.sweep_run(node, run.iter().map(|place| order.get(place).1));
                self.visitor.part(DirRef(node));
                self.finish_many(Arc::clone(node), run.len() as u32);
            }
        }
    }

    fn sweep_run<'n>(&mut self, node: &Arc<Node<V::Dir>>, names: impl Iterator<Item = &'n CStr>) {
        self.set_path(node);
        for name in names {
            self.step();
            if self.context.pool.stopped() {
                return node.miss();
            }
            let meta = self.meta_by_path(node, name);
            if !self.answered(node, None, name, meta, false) {
                self.context.pool.stop();
                return node.miss();
            }
        }
    }

    /// Sets `path` to the path of `node`, with a final slash.
    pub(crate) fn set_path(&mut self, node: &Node<V::Dir>) {
        self.path = node.whole_path(b"");
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
    }

    /// Queries a name in the directory of `path`. A path that is too long for one call is queried
    /// relative to its directory.
    pub(crate) fn meta_by_path(&mut self, node: &Node<V::Dir>, name: &CStr) -> io::Result<Meta> {
        let fields = self.fields | Fields::IDENTITY;
        let base = self.path.len();
        self.path.extend_from_slice(name.to_bytes());
        let meta = dir::meta(&self.path, false, fields);
        self.path.truncate(base);
        match meta {
            Err(e) if e.kind() == io::ErrorKind::InvalidFilename => {
                reopen_node(node, self.context.walk.follow)?.meta_at(name, false, fields)
            }
            meta => meta,
        }
    }
}
