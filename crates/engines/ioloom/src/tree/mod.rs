//! Files below directories: what to walk, and what a walk skipped.
//!
//! A tree is walked by threads of its own while files are processed. Each thread passes what it
//! finds through a bounded channel of up to 65,536 files. As many wait to be read by inode number, so the
//! walk runs ahead of the reads by about 131,000 files at most. It ends when the run does.

mod batch;
mod ignoring;
mod parked;
mod tally;
mod visitor;
mod walking;

pub(crate) use tally::Tally;
pub(crate) use walking::{Found, Walking};

use ioloom_sys::file;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Which symbolic links a walk follows. Roots are always followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Links {
    /// None; they are counted.
    #[default]
    Skip,
    /// Links to regular files.
    Files,
    /// Links to files and directories. A directory that contains itself is not entered again.
    All,
}

/// An entry that a walk found, for [`Files::filter_entry`](crate::Files::filter_entry).
#[derive(Debug)]
pub struct TreeEntry<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) name: &'a [u8],
    pub(crate) directory: bool,
    pub(crate) link: bool,
    /// Whether links to directories are followed.
    pub(crate) follows: bool,
    pub(crate) depth: usize,
}

impl TreeEntry<'_> {
    /// Returns the last name of the path.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(self.name)
    }

    /// Returns the path, which begins with the root as given. Built on each call.
    pub fn path(&self) -> PathBuf {
        self.dir.join(self.file_name())
    }

    /// Returns the directory that contains the entry.
    pub fn directory(&self) -> &Path {
        self.dir
    }

    /// Reports whether the entry is a directory, or with [`Links::All`] a symbolic link to one. Each
    /// call then queries the target of a link with `stat`.
    pub fn is_dir(&self) -> bool {
        let leads =
            || file::stat(&self.path()).is_ok_and(|facts| facts.kind == file::Kind::Directory);
        self.directory || self.follows && self.link && leads()
    }

    /// Reports whether the entry is a symbolic link, even if it is followed.
    pub fn is_symlink(&self) -> bool {
        self.link
    }

    /// Returns the number of directories between the entry and its root, including the root: 1 for
    /// what the root contains.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

/// What a walk visited and skipped. Of a run that ended early, what it had visited until then. The
/// counts of directories that threads of the walk are still reading 20 ms after the end are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Walked {
    /// Regular files found.
    pub files: u64,
    /// Directories entered, including roots.
    pub directories: u64,
    /// Entries skipped because they are hidden. A skipped directory counts once.
    pub hidden: u64,
    /// Entries skipped by ignore files. A skipped directory counts once.
    pub ignored: u64,
    /// Entries rejected by the filter. A rejected directory counts once.
    pub filtered: u64,
    /// Directories below the maximal depth.
    pub deep: u64,
    /// Directories on other file systems.
    pub foreign: u64,
    /// Symbolic links not followed.
    pub links: u64,
    /// Directories not entered because they contain themselves.
    pub loops: u64,
    /// Sockets, pipes and devices.
    pub special: u64,
    /// Sockets.
    pub sockets: u64,
    /// Named pipes.
    pub pipes: u64,
    /// Block and character devices.
    pub devices: u64,
    /// Directories and entries that could not be walked. They are failures of the run, too.
    pub failed: u64,
}

impl Walked {
    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.hidden += other.hidden;
        self.ignored += other.ignored;
        self.filtered += other.filtered;
        self.deep += other.deep;
        self.foreign += other.foreign;
        self.links += other.links;
        self.loops += other.loops;
        self.special += other.special;
        self.sockets += other.sockets;
        self.pipes += other.pipes;
        self.devices += other.devices;
        self.failed += other.failed;
    }
}

type Filter = dyn Fn(&TreeEntry<'_>) -> bool + Send + Sync;

/// What to walk.
#[derive(Clone, Default)]
pub(crate) struct TreeOptions {
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) skip_hidden: bool,
    pub(crate) ignore_files: bool,
    pub(crate) filter: Option<Arc<Filter>>,
    pub(crate) max_depth: Option<usize>,
    pub(crate) same_file_system: bool,
    pub(crate) links: Links,
    pub(crate) sorted: bool,
    /// How long the walk may run before the first read.
    pub(crate) ahead: Duration,
    /// Whether the threads of the walk lower their I/O priority.
    pub(crate) polite: bool,
}

impl fmt::Debug for TreeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeOptions").field("roots", &self.roots).finish_non_exhaustive()
    }
}
