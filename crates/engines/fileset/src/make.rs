//! Creates a set, or completes a partial one.
//!
//! Threads take runs of consecutive files from a shared counter. A thread keeps a directory open
//! until its next file is in another one, so each file costs one open, one write and one close. In
//! shuffled order, each file also costs opening its directory.

use crate::check::{index_of, is_linked};
use crate::content::{PIECE_BYTES, content};
use crate::error::{SetError, io_error, is_full};
use crate::layout::{
    FAN_OUT, directories, files_dir, first_name, leaf, made_as, name, relative_path, run_files,
    size,
};
use crate::lock::lock;
use crate::manifest::{self, FORMAT, Manifest, State};
use crate::names::{MANIFEST, MANIFEST_NEW};
use crate::{demand_ns, hash, medium, spell};
use ioloom_failure::{Operation, PathError};
use ioloom_model::{Distribution, FileSetRealised, FileSetSpec};
use ioloom_sys::dir::{Dir, Kind, ReadBuffer};
use ioloom_sys::mount::{Space, space};
use ioloom_walk::{Control, Entry, WalkOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes left free by default.
const RESERVE_BYTES: u64 = 1 << 30;

/// Number of files to check before a complete set is reused.
const SAMPLE_FILES: u64 = 64;

/// Numbers of files between two calls of the progress function while files are queried, and while only
/// their sizes are computed, which is done for complete sets, too.
const QUERIED_FILES: u64 = 1 << 12;
const COMPUTED_FILES: u64 = 1 << 20;

/// Sets with more files are compared with the file system before their sizes are computed, which can
/// take hours.
const MANY_FILES: u64 = 1 << 22;

/// Reports progress; returns false to stop.
type Progress<'a> = &'a (dyn Fn(CreateProgress) -> bool + Sync);

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
    /// Total size of the set in bytes; 0 until files are created.
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
    check(spec)?;
    refuse_other_early(spec, dir)?;
    check_count(spec, dir, options)?;
    let bytes = total_bytes(spec, progress)?;
    let made_dir = make_dir(dir)?;
    let _lock = lock(dir)?;
    let held = Dir::open(dir).map_err(io_error(Operation::OpenDir, dir))?;
    let found = manifest::read(&held, dir)?;
    let mut manifest = match found {
        None => {
            refuse_foreign(&held, dir)?;
            if let Err(refused) = check_room(spec, dir, &Kept::default(), options, progress) {
                if made_dir {
                    // Nothing has been created in it yet.
                    let _ = std::fs::remove_dir(dir);
                }
                return Err(refused);
            }
            let spec = spec.clone();
            Manifest { format: FORMAT, state: State::Making, made_dir, spec, realised: None }
        }
        Some(found) => {
            refuse_other(&found.spec, spec, dir)?;
            found
        }
    };
    let files = files_dir(dir);
    if manifest.state == State::Complete {
        let complete = seems_complete(spec, &files, progress)?;
        if let (Some(realised), true) = (&manifest.realised, complete) {
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
    let kept = kept(spec, &root, progress)?;
    check_room(spec, dir, &kept, options, progress)?;
    Maker::new(spec, &files, &root, &kept, bytes, progress).run(options.threads)?;
    if options.sync {
        root.sync_file_system().map_err(io_error(Operation::SyncFs, &files))?;
    }
    let realised = realised(spec, dir, bytes);
    manifest.state = State::Complete;
    manifest.realised = Some(realised.clone());
    manifest::write(&held, dir, &manifest)?;
    Ok(Created { set: realised, files_made: spec.count - kept.files })
}

/// Refuses a directory that contains another set before the sizes of many files are computed.
fn refuse_other_early(spec: &FileSetSpec, dir: &Path) -> Result<(), SetError> {
    match manifest::load(dir) {
        Ok(found) => refuse_other(&found.spec, spec, dir),
        Err(error @ SetError::Manifest { .. }) => Err(error),
        // Reported when the directory is locked, unless it is created by then.
        Err(_) => Ok(()),
    }
}

fn refuse_other(found: &FileSetSpec, spec: &FileSetSpec, dir: &Path) -> Result<(), SetError> {
    if found == spec {
        return Ok(());
    }
    let (dir, theirs, ours) = (dir.to_owned(), spell(found), spell(spec));
    Err(if theirs == ours {
        SetError::OtherSizes { dir, text: ours }
    } else {
        SetError::OtherSet { dir, theirs, ours }
    })
}

/// Checks a description, but not its sizes.
fn check(spec: &FileSetSpec) -> Result<(), SetError> {
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
    Ok(())
}

/// Returns the total size of the set in bytes.
fn total_bytes(spec: &FileSetSpec, progress: Progress<'_>) -> Result<u64, SetError> {
    let mut total = 0u64;
    for index in 0..spec.count {
        poll((index, COMPUTED_FILES), spec, 0, progress)?;
        total = total.checked_add(size(spec, index)).ok_or_else(|| {
            let reason = "the total size exceeds 16 EiB; add max= to the distribution";
            SetError::Spec { reason: reason.to_owned() }
        })?;
    }
    Ok(total)
}

/// Calls `progress` with `made` files done if `index` is a multiple of `every`.
fn poll(
    (index, every): (u64, u64),
    spec: &FileSetSpec,
    made: u64,
    progress: Progress<'_>,
) -> Result<(), SetError> {
    let files = spec.count;
    let now = CreateProgress { files_done: made, files, bytes_done: 0, bytes: 0 };
    if index > 0 && index.is_multiple_of(every) && !progress(now) {
        return Err(SetError::Stopped { made, files });
    }
    Ok(())
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

/// Returns true if every name exists, and a sample of the files has the correct sizes and links. Reading the
/// directories costs much less than a stat of every file.
fn seems_complete(
    spec: &FileSetSpec,
    files: &Path,
    progress: Progress<'_>,
) -> Result<bool, SetError> {
    let Ok(root) = Dir::open(files) else { return Ok(false) };
    let (mut names, mut polled) = (0, Ok(()));
    let walked = ioloom_walk::walk(files, &WalkOptions::default(), &mut |entry: Entry<'_>| {
        names += u64::from(index_of(spec, entry.path).is_some());
        polled = poll((names, COMPUTED_FILES), spec, 0, progress);
        if polled.is_ok() { Control::Continue } else { Control::Stop }
    });
    polled?;
    if walked.is_err() || names < spec.count {
        return Ok(false);
    }
    let step = (spec.count / SAMPLE_FILES).max(1);
    let mut indices = (0..spec.count).step_by(step as usize).chain([spec.count - 1]);
    // The second name of each group of names, which the steps may never meet.
    let links = u64::from(spec.making.links).max(1);
    let second = |index: u64| (index / links * links + links - 1).min(spec.count - 1);
    Ok(indices.all(|index| is_there(spec, &root, index) && is_linked(spec, &root, second(index))))
}

fn is_there(spec: &FileSetSpec, root: &Dir, index: u64) -> bool {
    root.stat_at(relative_path(spec, index).as_bytes())
        .is_ok_and(|stat| stat.kind == Kind::Regular && stat.bytes == size(spec, index))
}

/// The existing files of a set.
#[derive(Default)]
struct Kept {
    /// One bit per file; empty for a new set.
    bits: Vec<u64>,
    files: u64,
    /// Their total size in bytes.
    bytes: u64,
}

impl Kept {
    fn has(&self, index: u64) -> bool {
        self.bits.get(index as usize / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }
}

/// Returns which files exist.
fn kept(spec: &FileSetSpec, root: &Dir, progress: Progress<'_>) -> Result<Kept, SetError> {
    let mut any = false;
    // A new set is recognised by reading one directory instead of calling stat on every file.
    let read = root.read(&mut ReadBuffer::new(), &mut |_| {
        any = true;
        false
    });
    if read.is_ok() && !any {
        return Ok(Kept::default());
    }
    let bits = vec![0; (spec.count as usize).div_ceil(64)];
    let mut kept = Kept { bits, ..Kept::default() };
    for index in 0..spec.count {
        poll((index, QUERIED_FILES), spec, kept.files, progress)?;
        if is_there(spec, root, index) && is_linked(spec, root, index) {
            kept.bits[index as usize / 64] |= 1 << (index % 64);
            kept.files += 1;
            kept.bytes += size(spec, index);
        }
    }
    Ok(kept)
}

/// Refuses a new set whose number of files alone exceeds the space or the inodes.
fn check_count(spec: &FileSetSpec, dir: &Path, options: &CreateOptions) -> Result<(), SetError> {
    if spec.count <= MANY_FILES || dir.join(MANIFEST).exists() {
        return Ok(());
    }
    let above = dir.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
    let room = space(above).map_err(io_error(Operation::StatFs, above))?;
    let second_names = spec.count.checked_div(spec.making.links.into()).unwrap_or(0);
    let files = directories(spec).saturating_add(spec.count - second_names);
    let needed = Need { bytes: directories_bytes(spec, &room), files, is_least: true };
    refuse_lack(dir, &room, &needed, options)
}

/// Returns the size of the directories: one block each, plus about 40 bytes per name.
fn directories_bytes(spec: &FileSetSpec, room: &Space) -> u64 {
    let blocks = directories(spec).saturating_mul(room.block_bytes);
    blocks.saturating_add(spec.count.saturating_mul(40))
}

fn check_room(
    spec: &FileSetSpec,
    dir: &Path,
    kept: &Kept,
    options: &CreateOptions,
    progress: Progress<'_>,
) -> Result<(), SetError> {
    let room = space(dir).map_err(io_error(Operation::StatFs, dir))?;
    let block = room.block_bytes;
    let mut needed = directories_bytes(spec, &room);
    let mut files = directories(spec);
    for index in 0..spec.count {
        poll((index, COMPUTED_FILES), spec, kept.files, progress)?;
        if !kept.has(index) && first_name(spec, index) == index {
            let blocks = if spec.making.sparse { 0 } else { size(spec, index).div_ceil(block) };
            needed = needed.saturating_add(blocks.saturating_mul(block));
            files += 1;
        }
    }
    refuse_lack(dir, &room, &Need { bytes: needed, files, is_least: false }, options)
}

/// What a set still needs on the file system.
struct Need {
    bytes: u64,
    /// Files and directories.
    files: u64,
    /// Whether `bytes` leaves out the sizes of the files.
    is_least: bool,
}

/// Refuses a set that needs more space or inodes than are free.
fn refuse_lack(
    dir: &Path,
    room: &Space,
    need: &Need,
    options: &CreateOptions,
) -> Result<(), SetError> {
    let reserve_bytes =
        options.reserve_bytes.unwrap_or_else(|| RESERVE_BYTES.min(room.total_bytes / 20));
    let (dir, free_bytes) = (dir.to_owned(), room.available_bytes);
    let &Need { bytes: needed_bytes, files, is_least } = need;
    if needed_bytes.saturating_add(reserve_bytes) > free_bytes {
        let room = SetError::NoRoom { dir, needed_bytes, is_least, free_bytes, reserve_bytes };
        return Err(room);
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
    kept: &'a Kept,
    bytes: u64,
    progress: Progress<'a>,
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
        kept: &'a Kept,
        bytes: u64,
        progress: Progress<'a>,
    ) -> Self {
        let (files_done, bytes_done) = (AtomicU64::new(kept.files), AtomicU64::new(kept.bytes));
        let (next, stop, error) = Default::default();
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
            Some(error) if is_full(&error.source) => {
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
        if is_file && !self.kept.has(index) {
            let mut file = dir.create_at(own.as_bytes()).map_err(fail(Operation::Create))?;
            if spec.making.sparse {
                file.set_len(bytes).map_err(fail(Operation::Truncate))?;
            } else {
                content(spec, index, bytes, buffer, |_, piece| file.write(piece))
                    .map_err(fail(Operation::Write))?;
            }
            if let Err(error) = file.close() {
                // Its size is right, so a later run would keep it, but its bytes may be lost.
                let _ = dir.remove_file_at(own.as_bytes());
                return Err(fail(Operation::Close)(error));
            }
        }
        // A second name is created together with its file, no matter which one comes up first.
        let second = index + 1;
        if is_file
            && second < spec.count
            && first_name(spec, second) == index
            && !self.kept.has(second)
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
        if !self.kept.has(index) {
            self.files_done.fetch_add(1, Ordering::Relaxed);
            self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        }
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
