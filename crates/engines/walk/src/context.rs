//! What all workers of one walk share.

use crate::held::HeldDirs;
use crate::method::{Method, Refused};
use crate::pool::Pool;
use crate::sweep_order::Batches;
use crate::tables::Tables;
use crate::task::Task;
use crate::walk::Walk;
use crate::watch::Watch;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all workers of one walk share.
pub(crate) struct WalkContext<'w, D> {
    pub(crate) walk: &'w Walk,
    pub(crate) roots: &'w [PathBuf],
    pub(crate) next_root: AtomicUsize,
    pub(crate) pool: Pool<Task<D>>,
    pub(crate) held_dirs: Arc<HeldDirs>,
    /// Decides the number of workers; `None` if it is fixed.
    pub(crate) watch: Option<Watch>,
    pub(crate) batches: Batches<D>,
    /// The inode tables, if the method reads them.
    pub(crate) tables: Option<Tables>,
    /// Workers numbered below this may create a ring.
    pub(crate) rings_max: usize,
}

/// Returns the number of workers that may create a ring. Each keeps its ring open while it waits, so
/// all rings together take at most a quarter of the limit on open files.
fn rings_max() -> usize {
    let limit = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
    usize::try_from((limit / 4).max(1)).unwrap_or(usize::MAX)
}

impl<'w, D> WalkContext<'w, D> {
    pub(crate) fn new(
        walk: &'w Walk,
        roots: &'w [PathBuf],
        active: usize,
        watch: Option<Watch>,
    ) -> Result<Self, Refused> {
        let by_tables = walk.method == Method::InodeTables && !walk.fields.is_none();
        let tables = if by_tables { Tables::below(roots)? } else { None };
        let pool = Pool::new(active);
        pool.arrive();
        let held_dirs = Arc::new(HeldDirs::new(walk.descriptors_max));
        let batches = Batches::new(walk.sweep_files_max);
        let next_root = AtomicUsize::new(0);
        let rings_max = if walk.method == Method::Uring { rings_max() } else { 0 };
        Ok(Self { walk, roots, next_root, pool, held_dirs, watch, batches, tables, rings_max })
    }

    /// Takes the next root.
    pub(crate) fn take_root(&self) -> Option<(usize, &'w Path)> {
        if self.next_root.load(Ordering::Relaxed) >= self.roots.len() {
            return None;
        }
        let index = self.next_root.fetch_add(1, Ordering::Relaxed);
        self.roots.get(index).map(|root| (index, root.as_path()))
    }
}
