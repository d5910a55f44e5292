//! Walks for regular files with their paths, for programs that read them.
//!
//! The [`Visitor`] builds the path of a directory once and appends each name to it.

use crate::listing::Listing;
use crate::skipped::{Skipped, skip};
use crate::visit::{Control, DirRef, Found, NewDir, Visitor};
use crate::{Fields, Follow, Kind, Method, PathList, Refused, Report, Threads, Walk};
use ioloom_failure::{Operation, PathError};
use ioloom_sys::dir;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How to walk for regular files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkOptions {
    /// Threads that read directories. [`walk`] always uses one.
    pub threads: Threads,
    /// Most directories held open for their children. Each thread holds one more.
    pub descriptors_max: usize,
}

impl Default for WalkOptions {
    /// Chooses the number of threads automatically and holds at most 256 directories open, and at
    /// most an eighth of the descriptors that the process may have.
    fn default() -> Self {
        let Walk { threads, descriptors_max, .. } = Walk::default();
        Self { threads, descriptors_max }
    }
}

impl WalkOptions {
    fn walk(&self) -> Walk {
        Walk {
            method: Method::NamesOnly,
            threads: self.threads,
            fields: Fields::NONE,
            follow: Follow::Roots,
            descriptors_max: self.descriptors_max,
            ..Walk::default()
        }
    }
}

/// A regular file.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Path relative to [`Summary::base`], as bytes.
    pub path: &'a [u8],
    /// Offset of the last name in `path`.
    pub name_at: usize,
    /// Inode number.
    pub inode: u64,
}

impl<'a> Entry<'a> {
    /// Returns the path, relative to [`Summary::base`].
    pub fn as_path(&self) -> &'a Path {
        Path::new(OsStr::from_bytes(self.path))
    }

    /// Returns the last name of the path.
    pub fn name(&self) -> &'a [u8] {
        &self.path[self.name_at..]
    }
}

/// The result of a walk for regular files.
#[derive(Debug, Default)]
pub struct Summary {
    /// The directory that paths are relative to: the root, or the parent of a single file.
    pub base: PathBuf,
    /// Regular files visited.
    pub files: u64,
    /// Directories read, including the root.
    pub directories: u64,
    /// Entries skipped, by kind, without zeros.
    pub skipped: Vec<Skipped>,
    /// Names that no longer existed when they were visited.
    pub vanished: u64,
    /// The first [`crate::ERRORS_KEPT_MAX`] errors.
    pub errors: Vec<PathError>,
    /// Number of errors.
    pub errors_count: u64,
    /// Whether a visitor stopped the walk.
    pub stopped: bool,
}

impl Summary {
    /// Summarises a walk of `root`; an error if the root itself could not be opened.
    fn of(root: &Path, report: Result<Report, Refused>) -> Result<Self, PathError> {
        let fail = |source| PathError::new(Operation::Walk, root, source);
        let mut report = report.map_err(|refused| fail(io::Error::other(refused)))?;
        let unopened = |e: &PathError| e.path == root && e.operation != Operation::ReadDir;
        if report.entries == 0 && report.errors.first().is_some_and(unopened) {
            return Err(report.errors.swap_remove(0));
        }
        Ok(Self {
            base: root.to_owned(),
            directories: report.directories,
            vanished: report.vanished,
            errors: report.errors,
            errors_count: report.errors_count,
            stopped: report.stopped,
            ..Self::default()
        })
    }

    fn count(&mut self, files: u64, skipped: &[Skipped]) {
        self.files += files;
        for new in skipped {
            match self.skipped.iter_mut().find(|old| old.kind == new.kind) {
                Some(old) => old.count += new.count,
                None => self.skipped.push(*new),
            }
        }
        self.skipped.sort_by_key(|skipped| skipped.kind);
    }
}

/// Passes on regular files with their paths and counts the rest.
struct Regular<S, F> {
    state: S,
    visit: F,
    /// The path of the current directory, if `known`, followed by the last name.
    path: Vec<u8>,
    base: usize,
    known: bool,
    files: u64,
    skipped: Vec<Skipped>,
}

impl<S, F> Regular<S, F> {
    fn new(state: S, visit: F) -> Self {
        let (path, skipped) = (Vec::new(), Vec::new());
        Self { state, visit, path, base: 0, known: false, files: 0, skipped }
    }
}

impl<S, F: FnMut(&mut S, Entry<'_>) -> Control> Visitor for Regular<S, F> {
    type Dir = ();

    fn enter(&mut self, _dir: &NewDir<'_, ()>) -> Option<()> {
        self.known = false;
        Some(())
    }

    fn entry(&mut self, dir: DirRef<'_, ()>, found: &Found<'_>) -> Control {
        if found.kind != Kind::Regular {
            skip(&mut self.skipped, found.kind);
            return Control::Continue;
        }
        if !self.known {
            dir.write_relative(&mut self.path);
            self.base = self.path.len();
            self.known = true;
        }
        self.path.truncate(self.base);
        self.path.extend_from_slice(found.name);
        self.files += 1;
        let entry = Entry { path: &self.path, name_at: self.base, inode: found.inode };
        (self.visit)(&mut self.state, entry)
    }

    fn part(&mut self, _dir: DirRef<'_, ()>) {
        self.known = false;
    }
}

/// Walks `root`, a directory or a single regular file, on the calling thread and visits each
/// regular file, in the order of the file system.
///
/// # Errors
///
/// Fails only if the root itself cannot be opened.
pub fn walk(
    root: &Path,
    options: &WalkOptions,
    visit: &mut dyn FnMut(Entry<'_>) -> Control,
) -> Result<Summary, PathError> {
    if let Some(file) = single_file(root)? {
        return Ok(file.visit(root, visit));
    }
    let mut regular = Regular::new((), |(): &mut (), entry: Entry<'_>| visit(entry));
    let report = options.walk().run_here(&[root.to_owned()], &mut regular);
    let mut summary = Summary::of(root, report)?;
    summary.count(regular.files, &regular.skipped);
    Ok(summary)
}

/// Walks `root` with up to [`WalkOptions::threads`] threads. `make` creates the state of a thread
/// from its number, and `visit` is called with the state of the thread that found the file. Returns
/// the states in the order of thread numbers, at least one.
///
/// # Errors
///
/// Fails only if the root itself cannot be opened.
pub fn walk_parallel<S: Send>(
    root: &Path,
    options: &WalkOptions,
    make: impl Fn(usize) -> S + Sync,
    visit: impl Fn(&mut S, Entry<'_>) -> Control + Sync,
) -> Result<(Vec<S>, Summary), PathError> {
    if let Some(file) = single_file(root)? {
        let mut state = make(0);
        let summary = file.visit(root, &mut |entry| visit(&mut state, entry));
        return Ok((vec![state], summary));
    }
    let visit = &visit;
    let regular =
        |number| Regular::new(make(number), |state: &mut S, entry: Entry<'_>| visit(state, entry));
    let (visitors, report) = match options.walk().run(&[root.to_owned()], regular) {
        Ok((visitors, report)) => (visitors, Ok(report)),
        Err(refused) => (Vec::new(), Err(refused)),
    };
    let mut summary = Summary::of(root, report)?;
    let mut states = Vec::with_capacity(visitors.len());
    for visitor in visitors {
        summary.count(visitor.files, &visitor.skipped);
        states.push(visitor.state);
    }
    Ok((states, summary))
}

/// Lists the regular files below `root`, with their inode numbers. Paths begin with the root as
/// given and are sorted: directory by directory, and by name in each. Memory: the bytes of the
/// paths plus 16 per path, twice while the list is joined.
///
/// # Errors
///
/// Fails only if the root itself cannot be opened.
pub fn files(root: &Path, options: &WalkOptions) -> Result<(PathList, Summary), PathError> {
    let root_bytes = root.as_os_str().as_bytes();
    if let Some(file) = single_file(root)? {
        let mut list = PathList::new();
        list.push_found(&[root_bytes], file.inode);
        let summary = file.visit(root, &mut |_| Control::Continue);
        return Ok((list, summary));
    }
    let (listings, report) = match options.walk().run(&[root.to_owned()], |_| Listing::new(root)) {
        Ok((listings, report)) => (listings, Ok(report)),
        Err(refused) => (Vec::new(), Err(refused)),
    };
    let mut summary = Summary::of(root, report)?;
    for listing in &listings {
        summary.count(listing.files(), listing.skipped());
    }
    Ok((Listing::join(listings), summary))
}

/// A root that is a regular file.
struct SingleFile {
    name: Vec<u8>,
    inode: u64,
}

impl SingleFile {
    fn visit(self, root: &Path, visit: &mut dyn FnMut(Entry<'_>) -> Control) -> Summary {
        let entry = Entry { path: &self.name, name_at: 0, inode: self.inode };
        let stopped = visit(entry) == Control::Stop;
        Summary { base: parent_of(root), files: 1, stopped, ..Summary::default() }
    }
}

/// Returns the root as a regular file, `None` if it is a directory, an error if it is neither.
fn single_file(root: &Path) -> Result<Option<SingleFile>, PathError> {
    let fail = |operation, source| PathError::new(operation, root, source);
    let stat = dir::stat(root).map_err(|e| fail(Operation::Stat, e))?;
    match (stat.kind, root.file_name()) {
        (Kind::Directory, _) => Ok(None),
        (Kind::Regular, Some(name)) => {
            Ok(Some(SingleFile { name: name.as_bytes().to_vec(), inode: stat.inode }))
        }
        _ => Err(fail(Operation::Walk, io::Error::other("not a directory or regular file"))),
    }
}

fn parent_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
