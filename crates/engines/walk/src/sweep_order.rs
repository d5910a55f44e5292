//! Names that wait for a sweep, and the order in which it visits them.

use crate::node::Node;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Files of one inode order that a worker takes at once: the inodes of one readahead of 128 KiB.
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
    /// Adds a name of `node`. Returns true if the batch is full.
    pub(crate) fn push(&mut self, node: &Arc<Node<D>>, name: &CStr, inode: u64) -> bool {
        let name_at = self.names.len() as u32;
        self.names.extend_from_slice(name.to_bytes_with_nul());
        self.waiting.push(Waiting { inode, node: Arc::clone(node), name_at });
        self.waiting.len() >= BATCH_FILES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn get(&self, index: usize) -> (&Arc<Node<D>>, &CStr) {
        let waiting = &self.waiting[index];
        let name = CStr::from_bytes_until_nul(&self.names[waiting.name_at as usize..]);
        (&waiting.node, name.unwrap_or(c""))
    }
}

/// The batches that were handed in and are not yet ordered.
pub(crate) struct Batches<D> {
    files_max: usize,
    batches: Mutex<Vec<Batch<D>>>,
}

impl<D> Batches<D> {
    pub(crate) fn new(files_max: usize) -> Self {
        Self { files_max: files_max.max(1), batches: Mutex::default() }
    }

    /// Takes a batch. Returns everything handed in as one order once the window is full.
    pub(crate) fn hand_in(&self, batch: Batch<D>) -> Option<SweepOrder<D>> {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.push(batch);
        let files: usize = batches.iter().map(|batch| batch.waiting.len()).sum();
        (files >= self.files_max).then(|| std::mem::take(&mut *batches)).map(SweepOrder::new)
    }

    /// Returns everything handed in as one order, if there is anything.
    pub(crate) fn take_rest(&self) -> Option<SweepOrder<D>> {
        let batches =
            std::mem::take(&mut *self.batches.lock().unwrap_or_else(PoisonError::into_inner));
        (!batches.is_empty()).then(|| SweepOrder::new(batches))
    }
}

/// Files in the order of their inodes.
pub(crate) struct SweepOrder<D> {
    batches: Vec<Batch<D>>,
    /// Inode, batch, index in the batch.
    order: Vec<(u64, u32, u32)>,
    next: AtomicUsize,
}

impl<D> SweepOrder<D> {
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

    /// Returns how many workers have a full chunk to do.
    pub(crate) fn full_chunks(&self) -> usize {
        self.order.len() / CHUNK_FILES
    }

    /// Returns how many workers have anything to do.
    pub(crate) fn chunks(&self) -> usize {
        self.order.len().div_ceil(CHUNK_FILES)
    }

    /// Takes the next files; empty at the end.
    pub(crate) fn next_chunk(&self) -> &[(u64, u32, u32)] {
        let start = self.next.fetch_add(CHUNK_FILES, Ordering::Relaxed).min(self.order.len());
        &self.order[start..(start + CHUNK_FILES).min(self.order.len())]
    }

    pub(crate) fn get(&self, place: &(u64, u32, u32)) -> (&Arc<Node<D>>, &CStr) {
        self.batches[place.1 as usize].get(place.2 as usize)
    }
}
