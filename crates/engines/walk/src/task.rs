//! What waits for a worker, and the open directories it waits with.

use crate::node::Node;
use crate::sweep::Plan;
use ioloom_sys::dir::Dir;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Directories that may be held open for their children.
#[derive(Debug)]
pub(crate) struct Holds {
    held: AtomicUsize,
    most: AtomicUsize,
    squeezed: AtomicBool,
}

impl Holds {
    pub(crate) fn new(most: usize) -> Self {
        let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(most));
        Self { held, most, squeezed: AtomicBool::new(false) }
    }

    pub(crate) fn try_hold(self: &Arc<Self>) -> Option<Arc<Self>> {
        if self.held.fetch_add(1, Ordering::Relaxed) < self.most.load(Ordering::Relaxed) {
            return Some(Arc::clone(self));
        }
        self.held.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Whether parents that are held should be let go.
    #[inline]
    pub(crate) fn is_squeezed(&self) -> bool {
        self.squeezed.load(Ordering::Relaxed)
    }

    /// The process has no descriptors left: from now on none is held.
    pub(crate) fn squeeze(&self) {
        self.most.store(0, Ordering::Relaxed);
        self.squeezed.store(true, Ordering::Relaxed);
    }
}

/// An open directory; counted while children may be opened through it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) dir: Dir,
    counted: Option<Arc<Holds>>,
}

impl Held {
    pub(crate) fn new(dir: Dir, holds: &Arc<Holds>) -> Self {
        Self { dir, counted: holds.try_hold() }
    }

    /// Whether children that wait may keep it open.
    pub(crate) fn stays(&self) -> bool {
        self.counted.is_some()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(holds) = &self.counted {
            holds.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A directory that was found and waits.
pub(crate) struct DirTask<D> {
    pub(crate) parent: Arc<Node<D>>,
    pub(crate) name: CString,
    /// The open parent, if it could be held.
    pub(crate) via: Option<Arc<Held>>,
    /// Whether it was reached through a symbolic link.
    pub(crate) linked: bool,
    /// Inode number as its parent tells it.
    pub(crate) inode: u64,
}

/// Names of a wide directory that wait for another worker.
pub(crate) struct PartTask<D> {
    pub(crate) node: Arc<Node<D>>,
    pub(crate) held: Arc<Held>,
    pub(crate) records: Box<[u8]>,
}

impl<D> PartTask<D> {
    /// One more part of `node`, which is open.
    pub(crate) fn new(node: &Arc<Node<D>>, held: &Arc<Held>, records: Box<[u8]>) -> Self {
        node.begin();
        Self { node: Arc::clone(node), held: Arc::clone(held), records }
    }
}

/// Work that can go to another worker.
pub(crate) enum Task<D> {
    Dir(DirTask<D>),
    Part(PartTask<D>),
    Sweep(Arc<Plan<D>>),
}

impl<D> Task<D> {
    /// The inode of the directory that waits; zero for what is no directory.
    pub(crate) fn inode(&self) -> u64 {
        match self {
            Self::Dir(task) => task.inode,
            Self::Part(_) | Self::Sweep(_) => 0,
        }
    }
}
