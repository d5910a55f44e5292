//! The units of work of a walk.

use crate::held::HeldDir;
use crate::node::Node;
use crate::sweep_order::SweepOrder;
use std::ffi::CString;
use std::sync::Arc;

/// A directory that was found and is not yet opened.
pub(crate) struct DirTask<D> {
    pub(crate) parent: Arc<Node<D>>,
    pub(crate) name: CString,
    /// The open parent, if it could be held open.
    pub(crate) via: Option<Arc<HeldDir>>,
    /// Whether it was reached through a symbolic link.
    pub(crate) linked: bool,
    /// Inode number from the entry in its parent.
    pub(crate) inode: u64,
}

/// Names of a wide directory, for another worker.
pub(crate) struct PartTask<D> {
    pub(crate) node: Arc<Node<D>>,
    pub(crate) held: Arc<HeldDir>,
    pub(crate) records: Box<[u8]>,
}

impl<D> PartTask<D> {
    /// Adds a part to `node`, which is open.
    pub(crate) fn new(node: &Arc<Node<D>>, held: &Arc<HeldDir>, records: Box<[u8]>) -> Self {
        node.begin();
        Self { node: Arc::clone(node), held: Arc::clone(held), records }
    }
}

/// Work that can go to another worker.
pub(crate) enum Task<D> {
    Dir(DirTask<D>),
    Part(PartTask<D>),
    Sweep(Arc<SweepOrder<D>>),
}

impl<D> Task<D> {
    /// Returns the inode of a waiting directory; zero for other tasks.
    pub(crate) fn inode(&self) -> u64 {
        match self {
            Self::Dir(task) => task.inode,
            Self::Part(_) | Self::Sweep(_) => 0,
        }
    }
}
