//! The interface for users of the walker: a [`Visitor`].
//!
//! Each thread has its own visitor, so that nothing per file is shared. The state of a directory
//! (its sums, its place in a tree) is the visitor's [`Visitor::Dir`], created when the directory is
//! entered and dropped when everything below it is done. Calls for one directory:
//!
//! ```text
//! enter ─► entry … entry ─► part        once per thread that took part in the directory
//!             (subdirectories: enter … leave, on any thread, at any time in between)
//!                                └────► leave   after all parts and all subdirectories
//! ```
//!
//! Sums need no lock per file: add to fields of the visitor in `entry`, add those to the directory
//! in `part`, and add the directory to its parent in `leave`.

use crate::node::Node;
use ioloom_failure::PathError;
use ioloom_sys::dir::{Kind, Meta};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Go on to the next entry.
    Continue,
    /// Stop the walk. Directories that were entered are still left, marked as incomplete.
    Stop,
}

/// An entry that is not a directory.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The last name of its path.
    pub name: &'a [u8],
    /// Its kind.
    pub kind: Kind,
    /// Inode number.
    pub inode: u64,
    /// The requested attributes; `None` if none were requested.
    pub meta: Option<&'a Meta>,
    /// Whether its name may be that of a symbolic link that was followed.
    pub linked: bool,
}

/// A directory that was opened and is about to be read.
#[derive(Debug)]
pub struct NewDir<'a, D> {
    /// The last name of its path; for a root the path as given.
    pub name: &'a [u8],
    /// The requested attributes of the open directory; `None` if none were requested.
    pub meta: Option<&'a Meta>,
    /// The parent directory; `None` for a root.
    pub parent: Option<DirRef<'a, D>>,
    /// Index of its root.
    pub root: usize,
    /// Whether it was reached through a symbolic link.
    pub linked: bool,
}

impl<D> NewDir<'_, D> {
    /// Returns the number of directories between it and its root; 0 for the root.
    pub fn depth(&self) -> usize {
        self.parent.map_or(0, |parent| parent.depth() + 1)
    }

    /// Returns the whole path, which begins with the root as given. Built on each call.
    pub fn path(&self) -> PathBuf {
        match self.parent {
            Some(parent) => parent.path_of(self.name),
            None => crate::node::path_from(self.name.to_vec()),
        }
    }
}

/// A directory that was entered, linked to its parents up to the root.
#[derive(Debug)]
pub struct DirRef<'a, D>(pub(crate) &'a Arc<Node<D>>);

impl<D> Clone for DirRef<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for DirRef<'_, D> {}

impl<'a, D> DirRef<'a, D> {
    /// Returns the visitor's state of the directory.
    pub fn data(&self) -> &'a D {
        &self.0.data
    }

    /// Returns the parent directory; `None` for a root.
    pub fn parent(&self) -> Option<Self> {
        self.0.parent.as_ref().map(DirRef)
    }

    /// Returns the last name of its path; for a root the path as given.
    pub fn name(&self) -> &'a [u8] {
        &self.0.name
    }

    /// Returns the attributes requested when it was opened; `None` if none were requested.
    pub fn meta(&self) -> Option<&'a Meta> {
        self.0.meta.as_ref()
    }

    /// Returns the number of directories between it and its root; 0 for the root.
    pub fn depth(&self) -> usize {
        self.0.depth as usize
    }

    /// Returns the index of its root.
    pub fn root(&self) -> usize {
        self.0.root as usize
    }

    /// Reports whether it is complete so far: no error and no early end in or below it. Files that
    /// vanished during the walk do not count. Final when the directory is left.
    pub fn is_whole(&self) -> bool {
        self.0.is_whole()
    }

    /// Returns the whole path, which begins with the root as given. Built on each call.
    pub fn path(&self) -> PathBuf {
        self.path_of(b"")
    }

    /// Returns the path of `name` in this directory.
    pub fn path_of(&self, name: &[u8]) -> PathBuf {
        crate::node::path_from(self.0.whole_path(name))
    }

    /// Writes the path below the root, with a final slash; empty for the root.
    pub fn write_relative(&self, path: &mut Vec<u8>) {
        self.0.write_path(path);
    }

    /// Returns a handle that keeps the directory alive.
    pub fn keep(&self) -> RetainedDir<D> {
        RetainedDir(Arc::clone(self.0))
    }
}

/// A directory that a visitor retains, with its parents up to the root: about 150 bytes each.
#[derive(Debug)]
pub struct RetainedDir<D>(Arc<Node<D>>);

impl<D> Clone for RetainedDir<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D> RetainedDir<D> {
    /// Returns the directory.
    pub fn get(&self) -> DirRef<'_, D> {
        DirRef(&self.0)
    }
}

/// Receives what a walk finds. One per thread.
pub trait Visitor {
    /// State of one directory while it and everything below it is walked.
    type Dir: Send + Sync;

    /// Filters a name before it is queried. Returning false skips it, a directory with everything
    /// below it. The kind may be [`Kind::Unknown`] (see [`Visitor::needs_kinds`]), and a followed link
    /// is still [`Kind::Symlink`].
    #[inline]
    fn wants(&mut self, dir: DirRef<'_, Self::Dir>, name: &[u8], kind: Kind) -> bool {
        let _ = (dir, name, kind);
        true
    }

    /// Returns whether [`Visitor::wants`] depends on the kind. Where the file system does not report
    /// kinds, names are then queried before they are filtered.
    #[inline]
    fn needs_kinds(&self) -> bool {
        false
    }

    /// Enters an open directory. Returning `None` skips it with everything below it; it is then not
    /// left.
    ///
    /// A directory that exists but cannot be opened or read is also entered, then
    /// [`failed`](Self::failed) is called, and it is left.
    fn enter(&mut self, dir: &NewDir<'_, Self::Dir>) -> Option<Self::Dir>;

    /// Visits an entry that is not a directory.
    fn entry(&mut self, dir: DirRef<'_, Self::Dir>, found: &Found<'_>) -> Control;

    /// Visits a root that is not a directory.
    #[inline]
    fn root_entry(&mut self, root: usize, path: &Path, found: &Found<'_>) -> Control {
        let _ = (root, path, found);
        Control::Continue
    }

    /// Ends this thread's part of the entries of `dir`.
    #[inline]
    fn part(&mut self, dir: DirRef<'_, Self::Dir>) {
        let _ = dir;
    }

    /// Leaves `dir` after everything in and below it is done. Called once per entered directory.
    #[inline]
    fn leave(&mut self, dir: DirRef<'_, Self::Dir>) {
        let _ = dir;
    }

    /// Handles something that could not be read. `dir` is the directory that is now incomplete: the
    /// failed one if it was entered, otherwise its parent, or `None` for a root. The walk also
    /// keeps the error.
    #[inline]
    fn failed(&mut self, dir: Option<DirRef<'_, Self::Dir>>, error: &PathError) {
        let _ = (dir, error);
    }

    /// A name in `dir` was found, and gone when it was to be opened or queried. Not an error of the walk.
    #[inline]
    fn vanished(&mut self, dir: DirRef<'_, Self::Dir>, name: &[u8]) {
        let _ = (dir, name);
    }

    /// With [`crate::Follow::Always`]: a link or directory led back to a directory above it and is
    /// not entered.
    #[inline]
    fn looped(&mut self, dir: DirRef<'_, Self::Dir>, name: &[u8]) {
        let _ = (dir, name);
    }
}
