//! What a user of the walker writes: a [`Visitor`].
//!
//! Each thread has a visitor of its own, so that nothing per file is shared. What belongs to a
//! directory (its sums, its place in a tree) is the visitor's [`Visitor::Dir`], made when the
//! directory is entered and let go after everything below is done. Calls for one directory:
//!
//! ```text
//! enter ─► entry … entry ─► part        once per thread that took part in the directory
//!             (subdirectories: enter … leave, on any thread, at any time in between)
//!                                └────► leave   after all parts and all subdirectories
//! ```
//!
//! So sums go upward without a lock per file: add to numbers of the visitor in `entry`, add those
//! to the directory in `part`, add the directory to its parent in `leave`.

use crate::node::Node;
use ioloom_failure::PathError;
use ioloom_sys::dir::{Kind, Meta};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// To the next entry.
    Continue,
    /// End the walk now. Directories that were entered are still left, marked as not whole.
    Stop,
}

/// An entry that is no directory.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The last name of its path.
    pub name: &'a [u8],
    /// What it is.
    pub kind: Kind,
    /// Inode number.
    pub inode: u64,
    /// What was asked for; `None` if nothing was.
    pub meta: Option<&'a Meta>,
}

/// A directory that was opened and is about to be read.
#[derive(Debug)]
pub struct NewDir<'a, D> {
    /// The last name of its path; for a root the path as it was given.
    pub name: &'a [u8],
    /// What was asked for of the open directory; `None` if nothing was.
    pub meta: Option<&'a Meta>,
    /// The directory it lies in; `None` for a root.
    pub parent: Option<DirRef<'a, D>>,
    /// Which root it lies below, counted from zero.
    pub root: usize,
    /// Whether it was reached through a symbolic link.
    pub linked: bool,
}

impl<D> NewDir<'_, D> {
    /// Directories between it and its root; 0 for the root.
    pub fn depth(&self) -> usize {
        self.parent.map_or(0, |parent| parent.depth() + 1)
    }

    /// The whole path, with the root as it was given. Built anew on each call.
    pub fn path(&self) -> PathBuf {
        match self.parent {
            Some(parent) => parent.path_of(self.name),
            None => crate::node::path_from(self.name.to_vec()),
        }
    }
}

/// A directory that was entered: a link in the chain up to its root.
#[derive(Debug)]
pub struct DirRef<'a, D>(pub(crate) &'a Arc<Node<D>>);

impl<D> Clone for DirRef<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for DirRef<'_, D> {}

impl<'a, D> DirRef<'a, D> {
    /// What the visitor made of it on entering.
    pub fn data(&self) -> &'a D {
        &self.0.data
    }

    /// The directory it lies in; `None` for a root.
    pub fn parent(&self) -> Option<Self> {
        self.0.parent.as_ref().map(DirRef)
    }

    /// The last name of its path; for a root the path as it was given.
    pub fn name(&self) -> &'a [u8] {
        &self.0.name
    }

    /// What was asked for when it was opened; `None` if nothing was.
    pub fn meta(&self) -> Option<&'a Meta> {
        self.0.meta.as_ref()
    }

    /// Directories between it and its root; 0 for the root.
    pub fn depth(&self) -> usize {
        self.0.depth as usize
    }

    /// Which root it lies below, counted from zero.
    pub fn root(&self) -> usize {
        self.0.root as usize
    }

    /// Whether nothing in or below it was missed so far: no error, no early end. What vanished
    /// while the walk ran is not missed. Final when it is left.
    pub fn is_whole(&self) -> bool {
        self.0.is_whole()
    }

    /// The whole path, with the root as it was given. Built anew on each call.
    pub fn path(&self) -> PathBuf {
        self.path_of(b"")
    }

    /// The path of `name` in this directory.
    pub fn path_of(&self, name: &[u8]) -> PathBuf {
        crate::node::path_from(self.0.whole_path(name))
    }

    /// Writes the path below the root, with a slash at its end; empty for the root.
    pub fn write_relative(&self, path: &mut Vec<u8>) {
        self.0.write_path(path);
    }

    /// A handle that outlives the walk's interest in the directory.
    pub fn keep(&self) -> RetainedDir<D> {
        RetainedDir(Arc::clone(self.0))
    }
}

/// A directory that a visitor keeps, with the chain up to its root: about 150 bytes each.
#[derive(Debug)]
pub struct RetainedDir<D>(Arc<Node<D>>);

impl<D> Clone for RetainedDir<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D> RetainedDir<D> {
    /// The directory.
    pub fn get(&self) -> DirRef<'_, D> {
        DirRef(&self.0)
    }
}

/// What is done with what a walk finds; one per thread.
pub trait Visitor {
    /// What belongs to one directory while it and what lies below are walked.
    type Dir: Send + Sync;

    /// Looks at a name before anything is asked about it; false leaves it out, a directory with all
    /// below. The kind may be [`Kind::Unknown`], and a followed link is still [`Kind::Symlink`].
    #[inline]
    fn wants(&mut self, dir: DirRef<'_, Self::Dir>, name: &[u8], kind: Kind) -> bool {
        let _ = (dir, name, kind);
        true
    }

    /// A directory was opened. `None` leaves it out with all below; it is then not left.
    ///
    /// One that can be seen but not opened or read is entered too, then [`failed`](Self::failed) is
    /// called, and it is left.
    fn enter(&mut self, dir: &NewDir<'_, Self::Dir>) -> Option<Self::Dir>;

    /// An entry that is no directory.
    fn entry(&mut self, dir: DirRef<'_, Self::Dir>, found: &Found<'_>) -> Control;

    /// A root that is no directory.
    #[inline]
    fn root_entry(&mut self, root: usize, path: &Path, found: &Found<'_>) -> Control {
        let _ = (root, path, found);
        Control::Continue
    }

    /// This thread has visited its part of the entries of `dir`.
    #[inline]
    fn part(&mut self, dir: DirRef<'_, Self::Dir>) {
        let _ = dir;
    }

    /// Everything in and below `dir` is done. Called once for each directory that was entered.
    #[inline]
    fn leave(&mut self, dir: DirRef<'_, Self::Dir>) {
        let _ = dir;
    }

    /// Something could not be read. `dir` is the directory that misses it: the one itself if it was
    /// entered, else the one it lies in, `None` for a root. The walk keeps the error too.
    #[inline]
    fn failed(&mut self, dir: Option<DirRef<'_, Self::Dir>>, error: &PathError) {
        let _ = (dir, error);
    }

    /// With [`crate::Follow::Always`], a link or directory led back to a directory above it. It is
    /// not entered.
    #[inline]
    fn looped(&mut self, dir: DirRef<'_, Self::Dir>, name: &[u8]) {
        let _ = (dir, name);
    }
}
