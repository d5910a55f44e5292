//! The open source and target of each directory.
//!
//! The last 128 pairs are kept, or fewer under a low descriptor limit. A thread that leaves a directory goes up by `..` if the
//! pair of the directory above is not open, so the calls of a copy grow with the number of
//! directories, not with their depth. A directory that is opened again must be the same one: another user can
//! have exchanged it.

use super::{Worker, locked};
use crate::dirs::{CopyDir, DirPair, c_name, check_same, open_target};
use crate::options::Follow;
use ioloom_sys::attr;
use ioloom_sys::dir::Dir;
use ioloom_walk::DirRef;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Worker<'_> {
    /// Returns the pair for a directory that is being copied.
    pub(super) fn pair_of(&mut self, dir: DirRef<'_, CopyDir>) -> io::Result<Arc<DirPair>> {
        let pair = self.open_or_take(dir)?;
        self.last_pair = Some((dir.data().id, Arc::clone(&pair)));
        Ok(pair)
    }

    /// Returns the pair for a directory without making it the current one.
    pub(super) fn open_or_take(&self, dir: DirRef<'_, CopyDir>) -> io::Result<Arc<DirPair>> {
        if let Some((at, pair)) = &self.last_pair
            && *at == dir.data().id
        {
            return Ok(Arc::clone(pair));
        }
        let open = locked(&dir.data().pair).clone();
        open.map_or_else(|| self.open_pair(dir).map(Arc::new), Ok)
    }

    /// Opens a pair, starting from the nearest open ancestor.
    fn open_pair(&self, dir: DirRef<'_, CopyDir>) -> io::Result<DirPair> {
        let mut below = Vec::new();
        let mut at = dir;
        let mut pair = loop {
            if let Some(pair) = locked(&at.data().pair).clone() {
                break DirPair {
                    from: pair.from.open_at(b".")?,
                    to: pair.to.open_child_path_only(c".", false)?,
                };
            }
            match at.parent() {
                Some(parent) => {
                    below.push(at);
                    at = parent;
                }
                None => {
                    let from = Dir::open(&self.roots.from[at.root()])?;
                    break DirPair { from, to: self.open_root_target(at)? };
                }
            }
        };
        let follow = self.context.options.follow == Follow::Always;
        while let Some(next) = below.pop() {
            let from = pair.from.open_child(&c_name(next.name())?, follow, false)?;
            pair = DirPair { from, to: open_target(&pair.to, next.name(), next.data())? };
        }
        // The identity of the last directories proves that of those above.
        check_source(&pair.from, dir)?;
        check_target(&pair.to, dir)?;
        Ok(pair)
    }

    fn open_root_target(&self, root: DirRef<'_, CopyDir>) -> io::Result<Dir> {
        let to = &self.roots.to[root.root()];
        open_target(&self.roots.parents[to.parent].dir, to.name.to_bytes(), root.data())
    }

    /// Opens only the target of a directory that may already be complete.
    pub(super) fn target_of(&self, dir: DirRef<'_, CopyDir>) -> io::Result<Dir> {
        let mut below = Vec::new();
        let mut at = dir;
        while let Some(parent) = at.parent() {
            below.push(at);
            at = parent;
        }
        let mut to = self.open_root_target(at)?;
        while let Some(next) = below.pop() {
            to = open_target(&to, next.name(), next.data())?;
        }
        check_target(&to, dir)?;
        Ok(to)
    }

    /// Remembers the pair for a directory, and keeps it open for other threads unless too many are.
    /// A hidden directory that will be renamed stays open, because its lock protects it.
    pub(super) fn keep_open(&mut self, dir: &CopyDir, pair: DirPair) {
        let pair = Arc::new(pair);
        self.dirs.pairs.fetch_add(1, Ordering::Relaxed);
        self.share(dir, &pair);
        self.last_pair = Some((dir.id, pair));
    }

    /// Makes a pair available to other threads, and closes the oldest one if too many are open.
    fn share(&self, dir: &CopyDir, pair: &Arc<DirPair>) {
        *locked(&dir.pair) = Some(Arc::clone(pair));
        if dir.hidden_name.is_some() {
            return;
        }
        let mut recent = locked(&self.dirs.recent);
        recent.push_back(Arc::clone(&dir.pair));
        let oldest = if recent.len() > self.dirs.pairs_max { recent.pop_front() } else { None };
        drop(recent);
        if let Some(oldest) = oldest {
            locked(&oldest).take();
        }
    }

    /// Closes the pair of a finished directory and reports errors of the close. If the directory
    /// above is not open, goes up to it.
    pub(super) fn close_pair(&mut self, dir: DirRef<'_, CopyDir>) {
        let data = dir.data();
        let last = self.last_pair.take_if(|(at, _)| *at == data.id).map(|(_, pair)| pair);
        if let (Some(pair), Some(above)) = (&last, dir.parent())
            && !above.data().absent
            && locked(&above.data().pair).is_none()
            && let Ok(Some(pair)) = climb(pair, above.data())
        {
            let pair = Arc::new(pair);
            self.share(above.data(), &pair);
            self.last_pair = Some((above.data().id, pair));
        }
        if !data.absent {
            self.dirs.pairs.fetch_sub(1, Ordering::Relaxed);
        }
        drop(locked(&data.pair).take());
        // Another thread may still use the pair; the last one closes it.
        if let Some(Ok(pair)) = last.map(Arc::try_unwrap)
            && let Err(error) = pair.to.close()
        {
            let error = self.failed_at(dir, ioloom_failure::Operation::Close, error);
            self.context.failed(error);
        }
    }
}

/// Fails if an opened target is not the one that was created or found.
fn check_target(to: &Dir, dir: DirRef<'_, CopyDir>) -> io::Result<()> {
    check_same(to, |found| found.identity() == dir.data().own || is_merged(dir))
}

fn check_source(from: &Dir, dir: DirRef<'_, CopyDir>) -> io::Result<()> {
    // The number of the device changes when an automatic mount expires.
    check_same(from, |found| found.inode == dir.data().source.inode)
}

/// Returns true if a directory, or one above it, was merged into an existing one.
fn is_merged(dir: DirRef<'_, CopyDir>) -> bool {
    let mut at = Some(dir);
    while let Some(dir) = at {
        if dir.data().merged.load(Ordering::Acquire) {
            return true;
        }
        at = dir.parent();
    }
    false
}

/// Opens the pair above by `..`; `None` if the directory was moved, or reached through a link.
fn climb(pair: &DirPair, above: &CopyDir) -> io::Result<Option<DirPair>> {
    let (from, to) = (pair.from.open_above()?, pair.to.open_child_path_only(c"..", false)?);
    let same = attr::of_file(&from)?.identity() == above.source.identity()
        && attr::of_file(&to)?.identity() == above.own;
    Ok(same.then_some(DirPair { from, to }))
}
