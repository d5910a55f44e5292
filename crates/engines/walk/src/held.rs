//! Directories kept open so that their subdirectories are opened through them.

use ioloom_sys::dir::Dir;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Limits the directories held open for their children.
#[derive(Debug)]
pub(crate) struct HeldDirs {
    held: AtomicUsize,
    most: AtomicUsize,
    exhausted: AtomicBool,
    /// Whether the last wait for a descriptor, of any worker, was in vain.
    gave_up: AtomicBool,
}

impl HeldDirs {
    pub(crate) fn new(most: usize) -> Self {
        let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(most));
        let (exhausted, gave_up) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { held, most, exhausted, gave_up }
    }

    pub(crate) fn try_hold(self: &Arc<Self>) -> Option<Arc<Self>> {
        if self.held.fetch_add(1, Ordering::Relaxed) < self.most.load(Ordering::Relaxed) {
            return Some(Arc::clone(self));
        }
        self.held.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Reports whether held parents should be closed.
    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Stops holding directories, because the process has no descriptors left.
    pub(crate) fn exhaust(&self) {
        self.most.store(0, Ordering::Relaxed);
        self.exhausted.store(true, Ordering::Relaxed);
    }

    /// Reports whether the last wait for a descriptor was in vain. Waiting again for every
    /// directory would take hours in a large tree.
    pub(crate) fn gave_up(&self) -> bool {
        self.gave_up.load(Ordering::Relaxed)
    }

    /// Records how a wait for a descriptor ended.
    pub(crate) fn waited(&self, in_vain: bool) {
        self.gave_up.store(in_vain, Ordering::Relaxed);
    }
}

/// An open directory, counted while its children may be opened through it.
#[derive(Debug)]
pub(crate) struct HeldDir {
    pub(crate) dir: Dir,
    counted: Option<Arc<HeldDirs>>,
}

impl HeldDir {
    pub(crate) fn new(dir: Dir, held_dirs: &Arc<HeldDirs>) -> Self {
        Self { dir, counted: held_dirs.try_hold() }
    }

    /// Reports whether waiting children may keep it open.
    pub(crate) fn stays(&self) -> bool {
        self.counted.is_some()
    }
}

impl Drop for HeldDir {
    fn drop(&mut self) {
        if let Some(held_dirs) = &self.counted {
            let before = held_dirs.held.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(before > 0, "each held directory is counted once, within the limit");
        }
    }
}
