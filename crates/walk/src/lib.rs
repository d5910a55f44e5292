//! A directory walker that yields regular files and says what it skipped.
//!
//! One task is one directory. It is opened below its parent's descriptor and never through a
//! symbolic link, its names are read into a buffer owned by the thread, and only the names of
//! subdirectories are kept until their turn comes. Threads take the directories from stacks, so
//! that depth costs no call stack, and few descriptors stay open: beyond
//! [`Options::descriptors_max`] a directory is opened again from the root by its path, in pieces
//! when the path is longer than the kernel takes.
//!
//! Cost: one open, one close and one or two reads per directory, nothing per file but the visit.
//! Memory grows with the directories that wait, about 100 bytes each, not with the files.
//!
//! What is not a regular file is counted by kind; what cannot be read is collected with its path
//! and its reason, and the walk goes on. Mounted file systems below the root are entered.

mod list;
mod paths;
mod work;

pub use list::{ListError, ListReader, PATH_BYTES_MAX, Separator, read_list};
pub use paths::PathList;

use ioloom_sys::dir::{self, Kind};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Threads that a walk uses at most when it is not told.
const THREADS_DEFAULT_MAX: usize = 16;

/// Errors that are kept in full; further ones are counted.
pub const ERRORS_KEPT_MAX: usize = 1000;

/// How to walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Threads that read directories. [`walk`] uses one in any case.
    pub threads: usize,
    /// Directories held open for their children, at most. Each thread has one more open.
    pub descriptors_max: usize,
}

impl Default for Options {
    /// Four threads per usable core, at most 16: a cold walk waits for the device most of the
    /// time. At most a quarter of the descriptors that the process may have, and 256.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let limit = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
        Self {
            threads: (cores * 4).min(THREADS_DEFAULT_MAX),
            descriptors_max: (limit / 4).min(256) as usize,
        }
    }
}

/// A regular file that was found.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Path relative to [`Summary::base`], as bytes.
    pub path: &'a [u8],
    /// Where the last name starts in `path`.
    pub name_at: usize,
    /// Inode number.
    pub inode: u64,
}

impl<'a> Entry<'a> {
    /// The path, relative to [`Summary::base`].
    pub fn as_path(&self) -> &'a Path {
        Path::new(OsStr::from_bytes(self.path))
    }

    /// The last name of the path.
    pub fn name(&self) -> &'a [u8] {
        &self.path[self.name_at..]
    }
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// To the next file.
    Continue,
    /// End the walk now.
    Stop,
}

/// How many entries of one kind were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// What they are.
    pub kind: Kind,
    /// How many.
    pub count: u64,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} skipped", self.count, self.kind.plural())
    }
}

/// A directory or name that could not be walked.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}; {}", .path.display(), advice(.source))]
pub struct WalkError {
    /// What was tried: `open directory`, `read directory`, `ask for`.
    pub operation: &'static str,
    /// The path, with the root as the user gave it.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run as a user who may read it, or leave it out",
        io::ErrorKind::NotFound => "check the path; it may have been removed meanwhile",
        io::ErrorKind::NotADirectory => "it was replaced while the walk ran; walk again",
        _ if error.raw_os_error() == Some(24) => "raise the limit with 'ulimit -n'",
        _ => "check the file system and the kernel log",
    }
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct Summary {
    /// The directory that paths are relative to: the root, or the parent of a single file.
    pub base: PathBuf,
    /// Regular files visited.
    pub files: u64,
    /// Directories read, the root included.
    pub directories: u64,
    /// What was left out, by kind, without zeros.
    pub skipped: Vec<Skipped>,
    /// What could not be read: the first [`ERRORS_KEPT_MAX`].
    pub errors: Vec<WalkError>,
    /// All that could not be read.
    pub errors_count: u64,
    /// Whether a visitor ended the walk.
    pub stopped: bool,
}

impl Summary {
    fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.errors_count += other.errors_count;
        self.stopped |= other.stopped;
        let room = ERRORS_KEPT_MAX.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.into_iter().take(room));
        for skipped in other.skipped {
            self.skip(skipped.kind, skipped.count);
        }
    }

    fn skip(&mut self, kind: Kind, count: u64) {
        match self.skipped.iter_mut().find(|s| s.kind == kind) {
            Some(skipped) => skipped.count += count,
            None => self.skipped.push(Skipped { kind, count }),
        }
    }

    fn fail(&mut self, operation: &'static str, path: PathBuf, source: io::Error) {
        self.errors_count += 1;
        if self.errors.len() < ERRORS_KEPT_MAX {
            self.errors.push(WalkError { operation, path, source });
        }
    }
}

/// Walks `root`, a directory or a single regular file, on the calling thread and visits each
/// regular file. The order is that of the file system. Fails only if the root itself cannot be
/// opened.
pub fn walk(
    root: &Path,
    options: &Options,
    visit: &mut dyn FnMut(Entry<'_>) -> Control,
) -> Result<Summary, WalkError> {
    match start(root)? {
        Start::File { base, name, inode } => Ok(visit_one(base, &name, inode, visit)),
        Start::Dir(dir) => Ok(work::walk_alone(root, dir, options, visit)),
    }
}

/// Walks `root` with [`Options::threads`] threads. `make` makes the state of one thread, by its
/// number, and `visit` is called with the state of the thread that found the file. The states come
/// back in the order of their threads.
pub fn walk_parallel<S: Send>(
    root: &Path,
    options: &Options,
    make: impl Fn(usize) -> S,
    visit: impl Fn(&mut S, Entry<'_>) -> Control + Sync,
) -> Result<(Vec<S>, Summary), WalkError> {
    match start(root)? {
        Start::File { base, name, inode } => {
            let mut state = make(0);
            let summary = visit_one(base, &name, inode, &mut |entry| visit(&mut state, entry));
            Ok((vec![state], summary))
        }
        Start::Dir(dir) => Ok(work::walk_together(root, dir, options, &make, &visit)),
    }
}

/// Lists the regular files below `root`, in no order, with the root in front of each path as the
/// user gave it, and with inode numbers. Memory: the bytes of the paths and 16 per path.
pub fn files(root: &Path, options: &Options) -> Result<(PathList, Summary), WalkError> {
    let root_bytes = root.as_os_str().as_bytes();
    let (dir, mut prefix) = match start(root)? {
        Start::File { base, inode, .. } => {
            let mut list = PathList::new();
            list.push_found(&[root_bytes], inode);
            return Ok((list, Summary { base, files: 1, ..Summary::default() }));
        }
        Start::Dir(dir) => (dir, root_bytes.to_vec()),
    };
    if prefix.last() != Some(&b'/') {
        prefix.push(b'/');
    }
    let make = |_| PathList::new();
    let visit = |list: &mut PathList, entry: Entry<'_>| {
        list.push_found(&[&prefix, entry.path], entry.inode);
        Control::Continue
    };
    let (lists, summary) = work::walk_together(root, dir, options, &make, &visit);
    let mut all = PathList::new();
    for list in lists {
        all.append(list);
    }
    Ok((all, summary))
}

enum Start {
    File { base: PathBuf, name: Vec<u8>, inode: u64 },
    Dir(dir::Dir),
}

fn start(root: &Path) -> Result<Start, WalkError> {
    let fail = |operation, source| WalkError { operation, path: root.to_owned(), source };
    let stat = dir::stat(root).map_err(|e| fail("ask for", e))?;
    match (stat.kind, root.file_name()) {
        (Kind::Directory, _) => {
            dir::Dir::open(root).map(Start::Dir).map_err(|e| fail("open directory", e))
        }
        (Kind::Regular, Some(name)) => Ok(Start::File {
            base: parent_of(root),
            name: name.as_bytes().to_vec(),
            inode: stat.inode,
        }),
        _ => Err(fail("walk", io::Error::other("it is neither a directory nor a regular file"))),
    }
}

fn parent_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn visit_one(
    base: PathBuf,
    name: &[u8],
    inode: u64,
    visit: &mut dyn FnMut(Entry<'_>) -> Control,
) -> Summary {
    let stopped = visit(Entry { path: name, name_at: 0, inode }) == Control::Stop;
    Summary { base, files: 1, stopped, ..Summary::default() }
}
