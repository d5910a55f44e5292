//! Workers that take file attributes from the inode tables of ext4.

use crate::Meta;
use crate::held::HeldDir;
use crate::node::Node;
use crate::sweep_order::SweepOrder;
use crate::tables::Tables;
use crate::visit::{DirRef, Visitor};
use crate::worker::Worker;
use ioloom_failure::Operation;
use ioloom_sys::dir::{Kind, Record};
use ioloom_sys_lab::ext4::{Inode, Span};
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

/// One in this many files read from the tables is also queried with `stat`, to verify it.
const SAMPLE_FILES: u64 = 1024;

impl<V: Visitor> Worker<'_, '_, V> {
    /// Keeps a name until its inode is read, or queries it by name if the tables do not contain it.
    pub(crate) fn entry_in_tables(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<HeldDir>,
        record: &Record<'_>,
    ) -> bool {
        if self.context.tables.as_ref().is_some_and(|tables| tables.hold(node, record)) {
            self.collect(node, record.name, record.inode);
            return true;
        }
        self.part.tables.asked += 1;
        let meta = held.dir.meta_at(record.name, false, self.fields);
        self.answered(node, Some(held), record.name, meta, false)
    }

    /// Looks up the files of an order until there are none left.
    pub(crate) fn look_up(&mut self, tables: &Tables, order: &SweepOrder<V::Dir>) {
        let mut bytes = Vec::new();
        loop {
            let mut rest = order.next_chunk();
            if rest.is_empty() {
                return;
            }
            while !rest.is_empty() {
                let span = tables.tables.span(rest.iter().map(|place| place.0));
                let (span, count) = span.unwrap_or((Span { at: 0, bytes: 0 }, 1));
                // After a failed read each file is queried by name, which reports its path.
                if tables.tables.read(span, &mut bytes).is_err() {
                    bytes.clear();
                }
                let (now, later) = rest.split_at(count);
                for run in now.chunk_by(|a, b| Arc::ptr_eq(order.get(a).0, order.get(b).0)) {
                    let node = order.get(&run[0]).0;
                    self.set_path(node);
                    for place in run {
                        let name = order.get(place).1;
                        let found = tables.tables.inode(place.0, span, &bytes).ok();
                        if !self.looked_up(tables, node, name, found) {
                            node.miss();
                            break;
                        }
                    }
                    self.visitor.part(DirRef(node));
                    self.finish_many(Arc::clone(node), run.len() as u32);
                }
                rest = later;
            }
        }
    }

    /// Visits one file, with its inode if the tables had it. Returns false when the walk ends.
    fn looked_up(
        &mut self,
        tables: &Tables,
        node: &Arc<Node<V::Dir>>,
        name: &CStr,
        found: Option<Inode>,
    ) -> bool {
        self.step();
        if self.context.pool.stopped() {
            return false;
        }
        // A directory was replaced by something else, or the reverse: query by name.
        let found = found.filter(|inode| inode.meta.kind != Kind::Directory);
        let meta = match found {
            Some(inode) => {
                let counts = &mut self.part.tables;
                counts.read += 1;
                if counts.read % SAMPLE_FILES == 1 {
                    self.sample(tables, node, name, &inode);
                }
                Ok(Meta { mount: node.meta.and_then(|dir| dir.mount), ..inode.meta })
            }
            None => {
                self.part.tables.asked += 1;
                self.meta_by_path(node, name)
            }
        };
        if self.answered(node, None, name, meta, false) {
            return true;
        }
        self.context.pool.stop();
        false
    }

    /// Verifies a file whose inode was read with a `stat`. A difference is an error, unless the
    /// file has changed since the sync.
    #[cold]
    fn sample(&mut self, tables: &Tables, node: &Arc<Node<V::Dir>>, name: &CStr, inode: &Inode) {
        let base = self.path.len();
        self.path.extend_from_slice(name.to_bytes());
        let path = PathBuf::from(OsStr::from_bytes(&self.path));
        self.path.truncate(base);
        // The file is gone, or its path is too long for one call: no sample.
        let Ok(asked) = std::fs::symlink_metadata(&path) else { return };
        self.part.tables.sampled += 1;
        let meta = &inode.meta;
        let current = (asked.ino(), asked.size(), asked.blocks(), asked.nlink());
        if current == (meta.inode, meta.bytes, meta.blocks_512, u64::from(meta.links)) {
            return;
        }
        if !tables.tables.is_settled(asked.ctime()) {
            self.part.tables.changed += 1;
            return;
        }
        let error = io::Error::other(
            "the inode tables differ in size, blocks or links, although the file has not changed since \
             the sync; do not use the method inode-tables here",
        );
        self.fail(Some(node), Operation::VerifyInode, path, error);
    }
}
