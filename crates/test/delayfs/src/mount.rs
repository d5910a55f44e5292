//! Mounting, and what a user does with a mounted file system.

use crate::child::Child;
use crate::counters::Counters;
use crate::options::Options;
use crate::session::Session;
use crate::tree::Tree;
use std::io;
use std::path::{Path, PathBuf};

/// Ways to mount the file system.
#[derive(Debug)]
pub struct DelayFs;

impl DelayFs {
    /// Mounts on the directory `dir` and serves in this process. Only other processes should read
    /// it; see the documentation of the crate.
    ///
    /// # Errors
    /// `/dev/fuse` is missing, or the user is not allowed to mount.
    pub fn mount(dir: &Path, options: Options) -> io::Result<Mounted> {
        let serving = Serving::Here(Session::start(dir, options.clone())?);
        Ok(Mounted { root: dir.to_owned(), options, serving })
    }

    /// Mounts on the directory `dir` and serves in a child process: this test binary, which runs
    /// only the ignored test of the full name `test`. That test calls [`serve_for_parent`]. The
    /// child unmounts when this process ends, however it ends.
    ///
    /// [`serve_for_parent`]: crate::serve_for_parent
    ///
    /// # Errors
    /// Those of [`mount`](Self::mount); there is no such test.
    pub fn mount_in_child(dir: &Path, options: Options, test: &str) -> io::Result<Mounted> {
        let child = Child::start(dir, &options, test)?;
        Ok(Mounted { root: dir.to_owned(), options, serving: Serving::Child(child) })
    }
}

/// A mounted file system. Dropping it unmounts: at once for names, and for files that are still open
/// when they are closed.
#[derive(Debug)]
pub struct Mounted {
    root: PathBuf,
    options: Options,
    serving: Serving,
}

#[derive(Debug)]
enum Serving {
    Here(Session),
    Child(Child),
}

impl Mounted {
    /// Returns the directory on which it is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the paths of all files, in order of their index.
    pub fn paths(&self) -> Vec<PathBuf> {
        let tree = Tree::new(&self.options);
        (0..self.options.files).map(|file| self.root.join(tree.path(file))).collect()
    }

    /// Returns the size of a file in bytes.
    pub fn size(&self, file: usize) -> u64 {
        self.options.sizes[file % self.options.sizes.len()]
    }

    /// Returns the counters.
    ///
    /// # Panics
    /// The process that serves has ended.
    pub fn counters(&self) -> Counters {
        match &self.serving {
            Serving::Here(session) => session.counters(),
            Serving::Child(child) => child.counters(),
        }
    }

    /// Sets the totals to zero and the peaks to what is in flight.
    ///
    /// # Panics
    /// The process that serves has ended.
    pub fn reset(&self) {
        match &self.serving {
            Serving::Here(session) => session.reset(),
            Serving::Child(child) => child.reset(),
        }
    }
}

/// Checks by use whether this user can mount.
///
/// # Errors
/// What is missing.
pub fn available() -> Result<(), String> {
    let missing = |error: io::Error| format!("cannot mount a FUSE file system: {error}");
    let dir = tempfile::tempdir().map_err(missing)?;
    DelayFs::mount(dir.path(), Options::new(0, 0)).map(drop).map_err(missing)
}
