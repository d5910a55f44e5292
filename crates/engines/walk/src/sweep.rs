//! Two phases: names first, then every file in the order of inode numbers.
//!
//! On a seeking medium the inodes of one directory lie together, but directories are read in the
//! order of their tree, so that the head goes back and forth between names and inode tables. Here
//! directories are read in the order of their inodes as far as they are known, names are kept, and
//! then all files are asked for in ascending order: one pass over the tables.
//!
//! Workers collect names in batches of their own. When nothing but names is left, or the window is
//! full, the batches become a [`Plan`]: one sorted order, of which every worker takes the next 512,
//! so that all of them work in the same place of the medium. Files are asked for by their path.
//! Cost: about 60 bytes and the name per file of a window.

use crate::node::Node;
use crate::open::reopen_node;
use crate::task::Task;
use crate::visit::{DirRef, Visitor};
use crate::worker::Worker;
use crate::{Fields, Meta};
use ioloom_sys::dir;
use std::ffi::CStr;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Files of one inode order that a worker takes at once: the inodes of one read-ahead of 128 KiB.
const CHUNK_FILES: usize = 512;

/// Files that a worker collects before it hands them in.
const BATCH_FILES: usize = 8192;

struct Waiting<D> {
    inode: u64,
    node: Arc<Node<D>>,
    name_at: u32,
}

/// Names that one worker collected.
pub(crate) struct Batch<D> {
    names: Vec<u8>,
    waiting: Vec<Waiting<D>>,
}

impl<D> Default for Batch<D> {
    fn default() -> Self {
        Self { names: Vec::new(), waiting: Vec::new() }
    }
}

impl<D> Batch<D> {
    fn get(&self, index: usize) -> (&Arc<Node<D>>, &CStr) {
        let waiting = &self.waiting[index];
        let name = CStr::from_bytes_until_nul(&self.names[waiting.name_at as usize..]);
        (&waiting.node, name.unwrap_or(c""))
    }
}

/// The batches that were handed in and not yet planned.
pub(crate) struct Sweeps<D> {
    files_max: usize,
    batches: Mutex<Vec<Batch<D>>>,
}

impl<D> Sweeps<D> {
    pub(crate) fn new(files_max: usize) -> Self {
        Self { files_max: files_max.max(1), batches: Mutex::default() }
    }

    /// Takes a batch; all batches come back when the window is full.
    fn hand_in(&self, batch: Batch<D>) -> Vec<Batch<D>> {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.push(batch);
        let files: usize = batches.iter().map(|batch| batch.waiting.len()).sum();
        if files >= self.files_max { std::mem::take(&mut *batches) } else { Vec::new() }
    }

    /// A task for each of `workers`, if anything waits.
    pub(crate) fn plan_rest(&self, workers: usize) -> Vec<Task<D>> {
        let batches =
            std::mem::take(&mut *self.batches.lock().unwrap_or_else(PoisonError::into_inner));
        if batches.is_empty() {
            return Vec::new();
        }
        let plan = Arc::new(Plan::new(batches));
        let tasks = workers.min(plan.order.len().div_ceil(CHUNK_FILES)).max(1);
        (0..tasks).map(|_| Task::Sweep(Arc::clone(&plan))).collect()
    }
}

/// Files in the order of their inodes.
pub(crate) struct Plan<D> {
    batches: Vec<Batch<D>>,
    /// Inode, batch, place in the batch.
    order: Vec<(u64, u32, u32)>,
    next: AtomicUsize,
}

impl<D> Plan<D> {
    fn new(batches: Vec<Batch<D>>) -> Self {
        let mut order = Vec::with_capacity(batches.iter().map(|batch| batch.waiting.len()).sum());
        for (number, batch) in (0u32..).zip(&batches) {
            order.extend(
                (0u32..).zip(&batch.waiting).map(|(index, file)| (file.inode, number, index)),
            );
        }
        order.sort_unstable();
        Self { batches, order, next: AtomicUsize::new(0) }
    }

    pub(crate) fn next_chunk(&self) -> &[(u64, u32, u32)] {
        let start = self.next.fetch_add(CHUNK_FILES, Ordering::Relaxed).min(self.order.len());
        &self.order[start..(start + CHUNK_FILES).min(self.order.len())]
    }

    pub(crate) fn get(&self, place: &(u64, u32, u32)) -> (&Arc<Node<D>>, &CStr) {
        self.batches[place.1 as usize].get(place.2 as usize)
    }
}

impl<V: Visitor> Worker<'_, '_, V> {
    /// Keeps a name for the sweep.
    pub(crate) fn collect(&mut self, node: &Arc<Node<V::Dir>>, name: &CStr, inode: u64) {
        node.begin();
        let name_at = self.batch.names.len() as u32;
        self.batch.names.extend_from_slice(name.to_bytes_with_nul());
        self.batch.waiting.push(Waiting { inode, node: Arc::clone(node), name_at });
        if self.batch.waiting.len() >= BATCH_FILES {
            self.hand_in_batch();
        }
    }

    /// Hands in what was collected, and plans a sweep if the window is full.
    pub(crate) fn hand_in_batch(&mut self) {
        if self.batch.waiting.is_empty() {
            return;
        }
        let full = self.ground.sweeps.hand_in(std::mem::take(&mut self.batch));
        if full.is_empty() {
            return;
        }
        let plan = Arc::new(Plan::new(full));
        let helpers = self.ground.pool.active().min(plan.order.len() / CHUNK_FILES);
        if helpers > 1 {
            let tasks = (1..helpers).map(|_| Task::Sweep(Arc::clone(&plan)));
            let born = self.ground.pool.give(tasks);
            self.bear(born);
        }
        self.local.push(Task::Sweep(plan));
    }

    /// Asks for the next files of a plan until there are none.
    pub(crate) fn sweep(&mut self, plan: &Plan<V::Dir>) {
        loop {
            let chunk = plan.next_chunk();
            if chunk.is_empty() {
                return;
            }
            // Files of one directory that follow one another are one part of it.
            for run in chunk.chunk_by(|a, b| Arc::ptr_eq(plan.get(a).0, plan.get(b).0)) {
                let node = plan.get(&run[0]).0;
                self.sweep_run(node, run.iter().map(|place| plan.get(place).1));
                self.visitor.part(DirRef(node));
                self.finish_many(Arc::clone(node), run.len() as u32);
            }
        }
    }

    fn sweep_run<'n>(&mut self, node: &Arc<Node<V::Dir>>, names: impl Iterator<Item = &'n CStr>) {
        self.set_path(node);
        for name in names {
            self.step();
            if self.ground.pool.stopped() {
                return node.miss();
            }
            let meta = self.meta_by_path(node, name);
            if !self.answered(node, None, name, meta, false) {
                self.ground.pool.stop();
                return node.miss();
            }
        }
    }

    /// Makes `path` the path of `node` with a slash at its end.
    pub(crate) fn set_path(&mut self, node: &Node<V::Dir>) {
        self.path = node.whole_path(b"");
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
    }

    /// Asks for a name in the directory of `path`. Beyond what one call takes, below its directory.
    pub(crate) fn meta_by_path(&mut self, node: &Node<V::Dir>, name: &CStr) -> io::Result<Meta> {
        let fields = self.fields | Fields::IDENTITY;
        let base = self.path.len();
        self.path.extend_from_slice(name.to_bytes());
        let meta = dir::meta(&self.path, false, fields);
        self.path.truncate(base);
        match meta {
            Err(e) if e.kind() == io::ErrorKind::InvalidFilename => {
                reopen_node(node, self.ground.walk.follow)?.meta_at(name, false, fields)
            }
            meta => meta,
        }
    }
}
