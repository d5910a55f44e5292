//! Verifies a file set against its description, and removes it.

use crate::content::{PIECE_BYTES, content};
use crate::error::{SetError, io_error};
use crate::layout::{files_dir, first_name, leaf, name, relative_path, run_files, size};
use crate::lock::{SetLock, lock, lock_shared};
use crate::manifest::{self, Manifest, State, load};
use crate::names::{MANIFEST, MANIFEST_NEW};
use ioloom_failure::{Operation, PathError, quoted, reason};
use ioloom_model::FileSetSpec;
use ioloom_sys::dir::Dir;
use ioloom_walk::{Control, Entry};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maximum number of faults to keep in full; any others are only counted.
const FAULTS_KEPT_MAX: usize = 1000;

/// Number of threads that remove files. They wait for the file system journal rather than for a
/// CPU.
const REMOVE_THREADS: usize = 8;

/// A file that does not match the set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Path relative to [`files_dir`].
    pub path: PathBuf,
    /// Description of the fault.
    pub what: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", quoted(&self.path), self.what)
    }
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Number of files that match the set.
    pub good: u64,
    /// Number of files in the set.
    pub files: u64,
    /// Number of bytes compared.
    pub bytes: u64,
    /// The first faults, sorted by path.
    pub faults: Vec<Fault>,
    /// Total number of faults: files that differ, are missing or do not belong to the set.
    pub faults_count: u64,
}

impl Verified {
    /// Returns true if every file matches and there are no other files.
    pub fn is_good(&self) -> bool {
        self.good == self.files && self.faults_count == 0
    }

    fn fault(&mut self, path: PathBuf, what: String) {
        self.faults_count += 1;
        if self.faults.len() < FAULTS_KEPT_MAX {
            self.faults.push(Fault { path, what });
        }
    }
}

/// Compares every byte of the set in `dir` with its description and looks for files that do not
/// belong to it. Afterwards, as many files as fit are in the page cache.
///
/// # Errors
/// Returns [`SetError::Busy`] if another process creates, uses or removes the set, and
/// [`SetError::Unfinished`] if its creation or removal was interrupted.
pub fn verify(dir: &Path, threads: usize) -> Result<Verified, SetError> {
    let _lock = lock_shared(dir)?;
    let Manifest { spec, state, .. } = load(dir)?;
    if state == State::Making {
        return Err(SetError::Unfinished { dir: dir.to_owned() });
    }
    let files = files_dir(dir);
    let root = Dir::open(&files).map_err(io_error(Operation::OpenDir, &files))?;
    let next = AtomicU64::new(0);
    let all = Mutex::new(Verified { files: spec.count, ..Verified::default() });
    let work = || {
        let (mut own, mut expected) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= spec.count {
                return;
            }
            let path = relative_path(&spec, index);
            let result = root
                .open_file_at(path.as_bytes())
                .map_err(|e| describe(&e))
                .and_then(|file| compare(&spec, index, file, &mut own, &mut expected))
                .and_then(|()| check_link(&spec, &root, index));
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(()) => {
                    all.good += 1;
                    all.bytes += size(&spec, index);
                }
                Err(what) => all.fault(path.into(), what),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            let builder = std::thread::Builder::new().name("ioloom-verify".to_owned());
            // If a thread cannot be started, the others do its work.
            let _ = builder.spawn_scoped(scope, work);
        }
        work();
    });
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    find_strangers(&spec, &files, &mut all)?;
    all.faults.sort();
    Ok(all)
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "missing".to_owned(),
        _ => format!("cannot be opened: {}", reason(error)),
    }
}

fn compare(
    spec: &FileSetSpec,
    index: u64,
    mut file: File,
    own: &mut [u8],
    expected: &mut [u8],
) -> Result<(), String> {
    let unreadable = |e: io::Error| format!("cannot be read: {}", reason(&e));
    let meta = file.metadata().map_err(unreadable)?;
    let bytes = size(spec, index);
    if !meta.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if meta.len() != bytes {
        return Err(format!("has {} bytes, not {bytes}", meta.len()));
    }
    content(spec, first_name(spec, index), bytes, expected, |offset, piece| {
        let own = &mut own[..piece.len()];
        file.read_exact(own).map_err(unreadable)?;
        match own.iter().zip(piece).position(|(a, b)| a != b) {
            Some(at) => Err(format!("differs at byte {}", offset + at as u64)),
            None => Ok(()),
        }
    })
}

fn check_link(spec: &FileSetSpec, root: &Dir, index: u64) -> Result<(), String> {
    if is_linked(spec, root, index) {
        return Ok(());
    }
    let first = relative_path(spec, first_name(spec, index));
    Err(format!("is not a hard link to {}", quoted(Path::new(&first))))
}

/// Returns whether a second name is one of its file, and not one of a file that an interrupted removal
/// has left with it alone, or of a copy.
pub(crate) fn is_linked(spec: &FileSetSpec, root: &Dir, index: u64) -> bool {
    let first = first_name(spec, index);
    let stat = |index| root.stat_at(relative_path(spec, index).as_bytes());
    let file = |index| stat(index).map(|stat| (stat.device, stat.inode));
    first == index || file(first).is_ok_and(|first| file(index).is_ok_and(|own| own == first))
}

fn find_strangers(spec: &FileSetSpec, files: &Path, all: &mut Verified) -> Result<(), SetError> {
    let options = ioloom_walk::WalkOptions::default();
    let summary = ioloom_walk::walk(files, &options, &mut |entry: Entry<'_>| {
        if index_of(spec, entry.path).is_none() {
            all.fault(entry.as_path().to_owned(), "does not belong to the set".to_owned());
        }
        Control::Continue
    })?;
    for skipped in summary.skipped {
        all.fault(PathBuf::from("."), format!("contains {}: {skipped}", skipped.kind.plural()));
    }
    for error in summary.errors {
        all.fault(error.path.clone(), error.to_string());
    }
    Ok(())
}

/// Returns the index of the file at `path` if it belongs to the set.
pub(crate) fn index_of(spec: &FileSetSpec, path: &[u8]) -> Option<u64> {
    let path = std::str::from_utf8(path).ok()?;
    let index = path.rsplit('/').next()?.parse().ok()?;
    (index < spec.count && relative_path(spec, index) == path).then_some(index)
}

/// The result of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// Number of files removed.
    pub files: u64,
    /// Total size of their data in bytes. Further links to a file and sparse files count nothing.
    pub bytes: u64,
    /// Directories that remain because they contain other files.
    pub left: Vec<PathBuf>,
}

/// Removes the files, directories and manifest of the set in `dir`, and nothing else. After an
/// interrupted removal, [`crate::create`] can complete the set, and this function can remove the
/// rest.
pub fn remove(dir: &Path) -> Result<Removed, SetError> {
    remove_locked(&lock(dir)?)
}

/// Like [`remove`], for a caller that holds the lock of the set because it removes other files
/// first.
pub fn remove_locked(lock: &SetLock) -> Result<Removed, SetError> {
    let dir = lock.dir();
    // The directory itself cannot be removed as `.` or through a link.
    let real = dir.canonicalize().map_err(io_error(Operation::OpenDir, dir))?;
    let held = Dir::open(dir).map_err(io_error(Operation::OpenDir, dir))?;
    let mut manifest =
        manifest::read(&held, dir)?.ok_or_else(|| SetError::NoSet { dir: dir.to_owned() })?;
    let mut is_recorded = manifest.state == State::Making && manifest.realised.is_none();
    manifest.state = State::Making;
    manifest.realised = None;
    if !is_recorded {
        match manifest::write(&held, dir, &manifest) {
            // Removing the files makes space for it.
            Err(error) if error.is_full() => {}
            written => {
                written?;
                is_recorded = true;
            }
        }
    }
    let files = files_dir(dir);
    let mut removed = Removed::default();
    let emptied = match held.open_at(b"files") {
        Ok(root) => remove_files(&manifest.spec, &files, &root, &mut removed),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => return Err(io_error(Operation::OpenDir, &files)(e)),
    };
    let recorded = if !is_recorded && (emptied.is_err() || !removed.left.is_empty()) {
        manifest::write(&held, dir, &manifest)
    } else {
        Ok(())
    };
    emptied.and(recorded)?;
    if removed.left.is_empty() && !remove_dir(&held, b"files", &files)? {
        removed.left.push(files);
    }
    if !removed.left.is_empty() {
        // Keep the manifest too: without it, the directory cannot be identified as a set.
        return Ok(removed);
    }
    held.remove_file_at(MANIFEST.as_bytes())
        .map_err(io_error(Operation::Remove, &dir.join(MANIFEST)))?;
    let _ = held.remove_file_at(MANIFEST_NEW.as_bytes());
    if manifest.made_dir {
        match std::fs::remove_dir(&real) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {
                removed.left.push(dir.to_owned());
            }
            Err(e) => return Err(io_error(Operation::RemoveDir, dir)(e)),
        }
    }
    Ok(removed)
}

/// Removes the files with several threads, each taking a run of files from one directory; then
/// removes the directories, deepest first.
fn remove_files(
    spec: &FileSetSpec,
    files: &Path,
    root: &Dir,
    removed: &mut Removed,
) -> Result<(), SetError> {
    let next = AtomicU64::new(0);
    let (gone, gone_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let run = run_files(spec);
    let error = Mutex::new(None);
    let work = || {
        loop {
            let first = next.fetch_add(run, Ordering::Relaxed);
            if first >= spec.count {
                return;
            }
            let last = (first + run).min(spec.count);
            match remove_run(spec, root, first..last) {
                Ok((count, bytes)) => {
                    gone.fetch_add(count, Ordering::Relaxed);
                    gone_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                Err(source) => {
                    let path = files.join(leaf(spec, first));
                    let mut error = error.lock().unwrap_or_else(PoisonError::into_inner);
                    error
                        .get_or_insert_with(|| PathError::new(Operation::RemoveFrom, path, source));
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..REMOVE_THREADS {
            // If a thread cannot be started, the others do its work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    removed.files = gone.into_inner();
    removed.bytes = gone_bytes.into_inner();
    if let Some(error) = error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error.into());
    }
    let mut above: BTreeSet<String> = BTreeSet::new();
    for first in (0..spec.count).step_by(run as usize) {
        let leaf = leaf(spec, first);
        let mut dir = leaf.trim_end_matches('/');
        while !dir.is_empty() {
            above.insert(dir.to_owned());
            dir = dir.rsplit_once('/').map_or("", |(upper, _)| upper);
        }
    }
    // In reverse order, a directory comes after its subdirectories.
    for relative in above.iter().rev() {
        let path = files.join(relative);
        let blocked = removed.left.iter().any(|left| left.starts_with(&path));
        if !blocked && !remove_dir(root, relative.as_bytes(), &path)? {
            removed.left.push(path);
        }
    }
    Ok(())
}

/// Removes files from one directory; returns how many existed and the size of their data in bytes.
fn remove_run(spec: &FileSetSpec, root: &Dir, run: Range<u64>) -> io::Result<(u64, u64)> {
    let leaf = leaf(spec, run.start);
    let dir = match root.open_below(leaf.trim_end_matches('/').as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((0, 0)),
        dir => dir?,
    };
    let (mut count, mut bytes) = (0, 0);
    for index in run {
        match dir.remove_file_at(name(spec, index).as_bytes()) {
            Ok(()) => {
                count += 1;
                if !spec.making.sparse && first_name(spec, index) == index {
                    bytes += size(spec, index);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok((count, bytes))
}

/// Removes an empty directory; returns false if it is not empty.
fn remove_dir(held: &Dir, name: &[u8], path: &Path) -> Result<bool, SetError> {
    match held.remove_dir_at(name) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(e) => Err(io_error(Operation::RemoveDir, path)(e)),
    }
}
