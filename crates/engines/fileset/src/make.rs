//! Creates a set, or completes a partial one.
//!
//! Threads take runs of consecutive files from a shared counter. A thread keeps a directory open
//! until its next file is in another one, so each file costs one open, one write and one close. In
//! shuffled order, each file also costs opening its directory.

use crate::check::index_of;
use crate::content::{PIECE_BYTES, content};
use crate::error::{SetError, io_error};
use crate::layout::{
    FAN_OUT, directories, files_dir, first_name, leaf, made_as, name, relative_path, run_files,
    size,
};
use crate::lock::lock;
use crate::manifest::{self, FORMAT, Manifest, State};
use crate::names::MANIFEST_NEW;
use crate::{demand_ns, hash, medium, spell};
use ioloom_failure::{Operation, PathError};
use ioloom_model::{Distribution, FileSetRealised, FileSetSpec};
use ioloom_sys::dir::{Dir, Kind, ReadBuffer};
use ioloom_sys::mount::space;
use ioloom_walk::{Control, Entry, WalkOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes left free by default.
const RESERVE_BYTES: u64 = 1 << 30;

/// Number of files to check before a complete set is reused.
const SAMPLE_FILES: u64 = 64;

/// Options for creating a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOptions {
    /// Number of threads that create files.
    pub threads: usize,
    /// Bytes to leave free; `None` means 1 GiB, but at most 5 % of the file system.
    pub reserve_bytes: Option<u64>,
    /// Whether to sync the file system at the end.
    pub sync: bool,
}

impl Default for CreateOptions {
    /// Two threads per core, at most 16; the default reserve; with sync.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads: (2 * cores).min(16), reserve_bytes: None, sync: true }
    }
}

/// The progress of creating a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateProgress {
    /// Number of complete files, including existing ones.
    pub files_done: u64,
    /// Number of files in the set.
    pub files: u64,
    /// Total size of complete files in bytes.
    pub bytes_done: u64,
    /// Total size of the set in bytes.
    pub bytes: u64,
}

/// The result of [`create`].
#[derive(Debug, Clone, PartialEq)]
pub struct Created {
    /// The set.
    pub set: FileSetRealised,
    /// Number of files that did not exist before.
    pub files_made: u64,
}

/// Creates the set `spec` in `dir` or completes it; does nothing if it is already complete: if its
/// manifest says so, every name exists, and a sample of the files has the correct sizes. `progress` is called now and then from any thread; if it returns false, creation stops and can
/// be resumed later.
pub fn create(
    spec: &FileSetSpec,
    dir: &Path,
    options: &CreateOptions,
    progress: &(dyn Fn(CreateProgress) -> bool + Sync),
) -> Result<Created, SetError> {
    let bytes = check(spec)?;
    let made_dir = make_dir(dir)?;
    let _lock = lock(dir)?;
    let held = Dir::open(dir).map_err(io_error(Operation::OpenDir, dir))?;
    let found = manifest::read(&held, dir)?;
    let mut manifest = match found {
        None => {
            refuse_foreign(&held, dir)?;
            if let Err(refused) = check_room(spec, dir, &[], options) {
                if made_dir {
                    // Nothing has been created in it yet.
                    let _ = std::fs::remove_dir(dir);
                }
                return Err(refused);
            }
            let spec = spec.clone();
            Manifest { format: FORMAT, state: State::Making, made_dir, spec, realised: None }
        }
        Some(found) if found.spec == *spec => found,
        Some(found) => {
            let (theirs, ours) = (spell(&found.spec), spell(spec));
            return Err(SetError::OtherSet { dir: dir.to_owned(), theirs, ours });
        }
    };
    let files = files_dir(dir);
    if manifest.state == State::Complete {
        if let (Some(realised), true) = (&manifest.realised, seems_complete(spec, &files)) {
            let medium = medium(dir).ok();
            let set = FileSetRealised { name: name_of(dir), medium, ..realised.clone() };
            return Ok(Created { set, files_made: 0 });
        }
        manifest.state = State::Making;
        manifest.realised = None;
    }
    manifest::write(&held, dir, &manifest)?;
    held.make_dir_at(b"files").map_err(io_error(Operation::CreateDir, &files))?;
    let root = Dir::open(&files).map_err(io_error(Operation::OpenDir, &files))?;
    let kept = kept(spec, &root);
    check_room(spec, dir, &kept, options)?;
    Maker::new(spec, &files, &root, &kept, bytes, progress).run(options.threads)?;
    if options.sync {
        root.sync_file_system().map_err(io_error(Operation::SyncFs, &files))?;
    }
    let realised = realised(spec, dir, bytes);
    manifest.state = State::Complete;
    manifest.realised = Some(realised.clone());
    manifest::write(&held, dir, &manifest)?;
    let existed: u64 = kept.iter().map(|word| u64::from(word.count_ones())).sum();
    Ok(Created { set: realised, files_made: spec.count - existed })
}

/// Checks a description; returns the total size of the set in bytes.
fn check(spec: &FileSetSpec) -> Result<u64, SetError> {
    let refuse = |reason: &str| Err(SetError::Spec { reason: reason.to_owned() });
    if spec.count == 0 {
        return refuse("it has no files; count must be at least 1");
    }
    if [Some(&spec.size), spec.compute.as_ref()].into_iter().flatten().any(is_empty_list) {
        return refuse("list() is empty; specify at least one value");
    }
    let links = u64::from(spec.making.links);
    if links == 1 || (links > 1 && !run_files(spec).is_multiple_of(links)) {
        return refuse("links must divide the files of a directory: 2 or 4");
    }
    let total = (0..spec.count).try_fold(0u64, |sum, index| sum.checked_add(size(spec, index)));
    match total {
        Some(bytes) => Ok(bytes),
        None => refuse("the total size exceeds 16 EiB; add max= to the distribution"),
    }
}

fn is_empty_list(distribution: &Distribution) -> bool {
    match distribution {
        Distribution::List(values) => values.is_empty(),
        Distribution::Mixture(parts) => parts.iter().any(|(_, part)| is_empty_list(part)),
        _ => false,
    }
}

/// Creates the directory and its parents; returns true if it is new.
fn make_dir(dir: &Path) -> Result<bool, SetError> {
    if let Some(parent) = dir.parent() {
        std::fs::create_dir_all(parent).map_err(io_error(Operation::CreateDir, parent))?;
    }
    match std::fs::create_dir(dir) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(io_error(Operation::CreateDir, dir)(e)),
    }
}

/// Refuses a directory without a manifest unless it is empty, ignoring `lost+found` and an
/// unfinished manifest.
fn refuse_foreign(held: &Dir, dir: &Path) -> Result<(), SetError> {
    let ours = [MANIFEST_NEW.as_bytes(), b"lost+found"];
    let empty = held
        .read(&mut ReadBuffer::new(), &mut |entry| ours.contains(&entry.name))
        .map_err(io_error(Operation::ReadDir, dir))?;
    if empty { Ok(()) } else { Err(SetError::NotOurs { dir: dir.to_owned() }) }
}

fn name_of(dir: &Path) -> String {
    dir.display().to_string()
}

/// Returns true if every name exists, and a sample of the files has the correct sizes. Reading the
/// directories costs much less than a stat of every file.
fn seems_complete(spec: &FileSetSpec, files: &Path) -> bool {
    let Ok(root) = Dir::open(files) else { return false };
    let mut names = 0;
    let walked = ioloom_walk::walk(files, &WalkOptions::default(), &mut |entry: Entry<'_>| {
        names += u64::from(index_of(spec, entry.path).is_some());
        Control::Continue
    });
    if walked.is_err() || names < spec.count {
        return false;
    }
    let step = (spec.count / SAMPLE_FILES).max(1);
    let mut indices = (0..spec.count).step_by(step as usize).chain([spec.count - 1]);
    indices.all(|index| is_there(spec, &root, index))
}

fn is_there(spec: &FileSetSpec, root: &Dir, index: u64) -> bool {
    root.stat_at(relative_path(spec, index).as_bytes())
        .is_ok_and(|stat| stat.kind == Kind::Regular && stat.bytes == size(spec, index))
}

/// Returns which files exist, one bit per file; empty for a new set.
fn kept(spec: &FileSetSpec, root: &Dir) -> Vec<u64> {
    let mut any = false;
    // A new set is recognised by reading one directory instead of calling stat on every file.
    let read = root.read(&mut ReadBuffer::new(), &mut |_| {
        any = true;
        false
    });
    if read.is_ok() && !any {
        return Vec::new();
    }
    let mut bits = vec![0; (spec.count as usize).div_ceil(64)];
    for index in 0..spec.count {
        if is_there(spec, root, index) && is_linked(spec, root, index) {
            bits[index as usize / 64] |= 1 << (index % 64);
        }
    }
    bits
}

/// Returns whether a second name is one of its file, and not one of a file that an interrupted removal
/// has left with it alone.
fn is_linked(spec: &FileSetSpec, root: &Dir, index: u64) -> bool {
    let first = first_name(spec, index);
    let stat = |index| root.stat_at(relative_path(spec, index).as_bytes());
    first == index
        || stat(first).is_ok_and(|first| stat(index).is_ok_and(|own| own.inode == first.inode))
}

fn is_kept(kept: &[u64], index: u64) -> bool {
    kept.get(index as usize / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
}

fn check_room(
    spec: &FileSetSpec,
    dir: &Path,
    kept: &[u64],
    options: &CreateOptions,
) -> Result<(), SetError> {
    let room = space(dir).map_err(io_error(Operation::StatFs, dir))?;
    let block = room.block_bytes;
    let leaves = directories(spec);
    // A directory takes one block, plus about 40 bytes per name.
    let mut needed = leaves.saturating_mul(block).saturating_add(spec.count.saturating_mul(40));
    let mut files = leaves;
    for index in (0..spec.count).filter(|index| !is_kept(kept, *index)) {
        if first_name(spec, index) == index {
            let blocks = if spec.making.sparse { 0 } else { size(spec, index).div_ceil(block) };
            needed = needed.saturating_add(blocks.saturating_mul(block));
            files += 1;
        }
    }
    let reserve_bytes =
        options.reserve_bytes.unwrap_or_else(|| RESERVE_BYTES.min(room.total_bytes / 20));
    let (dir, free_bytes) = (dir.to_owned(), room.available_bytes);
    if needed.saturating_add(reserve_bytes) > free_bytes {
        return Err(SetError::NoRoom { dir, needed_bytes: needed, free_bytes, reserve_bytes });
    }
    match room.available_files {
        // File systems that allocate inodes dynamically report 0.
        Some(free) if free > 0 && files > free => {
            Err(SetError::NoInodes { dir, needed: files, free })
        }
        _ => Ok(()),
    }
}

/// Describes the created set. Sizes follow from the description.
fn realised(spec: &FileSetSpec, dir: &Path, bytes: u64) -> FileSetRealised {
    let mean = |total: f64| total / spec.count as f64;
    let demand = || (0..spec.count).map(|index| demand_ns(spec, index) as f64).sum();
    FileSetRealised {
        name: name_of(dir),
        files: spec.count,
        bytes_total: bytes,
        bytes_mean: mean(bytes as f64),
        compute_ns_mean: spec.compute.as_ref().map(|_| mean(demand())),
        hash: hash(spec),
        medium: medium(dir).ok(),
    }
}

struct Maker<'a> {
    spec: &'a FileSetSpec,
    files: &'a Path,
    root: &'a Dir,
    kept: &'a [u64],
    bytes: u64,
    progress: &'a (dyn Fn(CreateProgress) -> bool + Sync),
    next: AtomicU64,
    files_done: AtomicU64,
    bytes_done: AtomicU64,
    stop: AtomicBool,
    error: Mutex<Option<PathError>>,
}

impl<'a> Maker<'a> {
    fn new(
        spec: &'a FileSetSpec,
        files: &'a Path,
        root: &'a Dir,
        kept: &'a [u64],
        bytes: u64,
        progress: &'a (dyn Fn(CreateProgress) -> bool + Sync),
    ) -> Self {
        let (next, files_done, bytes_done) = Default::default();
        let (stop, error) = Default::default();
        Self { spec, files, root, kept, bytes, progress, next, files_done, bytes_done, stop, error }
    }

    fn run(self, threads: usize) -> Result<(), SetError> {
        let threads = threads.max(1);
        // Runs are short to make all threads finish at about the same time, and divide the number
        // of files per directory.
        let run = (self.spec.count / (threads as u64 * 8)).clamp(1, FAN_OUT);
        let run = match run_files(self.spec) {
            FAN_OUT => 1 << run.ilog2(),
            few => few,
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // If a thread cannot be started, the others do its work.
                let _ = std::thread::Builder::new()
                    .name("ioloom-fileset".to_owned())
                    .spawn_scoped(scope, || self.work(run));
            }
            self.work(run);
        });
        let made = self.files_done.load(Ordering::Relaxed);
        let files = self.spec.count;
        match self.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None if made == files => Ok(()),
            None => Err(SetError::Stopped { made, files }),
            Some(error)
                if matches!(
                    error.source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                Err(SetError::Full { dir: self.files.to_owned(), made, files })
            }
            Some(error) => Err(error.into()),
        }
    }

    fn work(&self, run: u64) {
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at: Option<(String, Dir)> = None;
        while !self.stop.load(Ordering::Relaxed) {
            let first = self.next.fetch_add(run, Ordering::Relaxed);
            if first >= self.spec.count {
                return;
            }
            let last = (first + run).min(self.spec.count);
            let made = (first..last).map(|nth| made_as(self.spec, nth)).try_for_each(|index| {
                let dir = self.enter(index, &mut at)?;
                self.file(dir, index, &mut buffer)
            });
            if let Err(error) = made {
                self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                self.stop.store(true, Ordering::Relaxed);
            } else if !self.report() {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Opens the directory of file `index`, creating it if necessary. It stays open until another
    /// one is needed.
    fn enter<'d>(
        &self,
        index: u64,
        at: &'d mut Option<(String, Dir)>,
    ) -> Result<&'d Dir, PathError> {
        let path = leaf(self.spec, index);
        let fail = |e| PathError::new(Operation::CreateDir, self.files.join(&path), e);
        let dir = match at.take() {
            Some((open, dir)) if open == path => dir,
            _ => {
                let mut dir = self.root.open_at(b".").map_err(fail)?;
                for name in path.split_terminator('/') {
                    dir.make_dir_at(name.as_bytes()).map_err(fail)?;
                    dir = dir.open_at(name.as_bytes()).map_err(fail)?;
                }
                dir
            }
        };
        Ok(&at.insert((path, dir)).1)
    }

    fn file(&self, dir: &Dir, index: u64, buffer: &mut [u8]) -> Result<(), PathError> {
        let spec = self.spec;
        let bytes = size(spec, index);
        let path = || self.files.join(relative_path(spec, index));
        let fail = |operation| move |e| PathError::new(operation, path(), e);
        let own = name(spec, index);
        let is_file = first_name(spec, index) == index;
        if is_file && !is_kept(self.kept, index) {
            let mut file = dir.create_at(own.as_bytes()).map_err(fail(Operation::Create))?;
            if spec.making.sparse {
                file.set_len(bytes).map_err(fail(Operation::Truncate))?;
            } else {
                content(spec, index, bytes, buffer, |_, piece| file.write(piece))
                    .map_err(fail(Operation::Write))?;
            }
        }
        // A second name is created together with its file, no matter which one comes up first.
        let second = index + 1;
        if is_file
            && second < spec.count
            && first_name(spec, second) == index
            && !is_kept(self.kept, second)
        {
            let name = name(spec, second);
            match dir.remove_file_at(name.as_bytes()) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(fail(Operation::Remove)(e));
                }
                _ => {}
            }
            dir.link_at(own.as_bytes(), name.as_bytes()).map_err(fail(Operation::HardLink))?;
        }
        self.files_done.fetch_add(1, Ordering::Relaxed);
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn report(&self) -> bool {
        (self.progress)(CreateProgress {
            files_done: self.files_done.load(Ordering::Relaxed),
            files: self.spec.count,
            bytes_done: self.bytes_done.load(Ordering::Relaxed),
            bytes: self.bytes,
        })
    }
}
