//! Walks the roots and adds up what it finds.
//!
//! Roots are walked one after another, each with all threads, because an entry counted in an
//! earlier root must not be counted again. Within a root, totals do not depend on the threads: an
//! entry with one name is added where it is found, and an inode with several names is charged at
//! the end of the root (see [`crate::tree`]). The exception is `-L`, where a directory can be
//! reached in two ways and the first one wins; such a scan uses one thread if its directories are
//! listed.
//!
//! A directory that was listed but whose entries cannot be queried is incomplete: each such entry
//! is an error. Messages are those of GNU du, followed by advice.

use crate::Tally;
use crate::links::{FileId, LinkSet, Seen};
use crate::mounts::{Unwanted, made_up};
pub use crate::options::{Detail, ERRORS_KEPT_MAX, Recorded, ScanOptions, ScanProgress, Time};
use crate::tree::{Kind, ROOT, Tree};
use crate::visit::{Common, Worker, message};
use ioloom_sys::dir;
use ioloom_sys::mount::{Mount, mounts};
use ioloom_walk::{Fields, Follow, Method, Refused, TablesUse, Threads, Walk};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Maximum number of errors that a document lists.
pub const ERRORS_LISTED: usize = 1000;

/// The reason why a scan cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The walker refused to start.
    #[error(transparent)]
    Walk(#[from] Refused),
    /// The method does not read sizes.
    #[error("the method names-only does not read sizes; use statx")]
    NoSizes,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// One tree per root, except for roots that are inside an earlier one or could not be read.
    pub roots: Vec<Tree>,
    /// Totals of the trees that were dropped by [`Scanner::drop_trees`].
    pub dropped: Tally,
    /// Messages of the first [`ERRORS_KEPT_MAX`] errors of each root; of those that
    /// [`Scanner::take_errors`] has returned, the first [`ERRORS_LISTED`].
    pub errors: Vec<String>,
    /// Total number of errors.
    pub errors_count: u64,
    /// Number of names that disappeared before they could be read.
    pub vanished: u64,
    /// Mount points that were skipped, with their file system types.
    pub not_entered: Vec<(PathBuf, String)>,
    /// Whether the scan was stopped early.
    pub interrupted: bool,
    /// The signal that stopped it, if the caller recorded one.
    pub signal: Option<i32>,
    /// What decides which entries it counts; `None` for an import.
    pub options: Option<Recorded>,
    /// Name of the method; `None` for an import.
    pub method: Option<String>,
    /// Number of threads, and the reason for it; `None` for an import.
    pub threads: Option<String>,
    /// Inode table statistics for each device; empty for all other methods.
    pub inode_tables: Vec<TablesUse>,
    /// Duration of the walks in nanoseconds.
    pub elapsed_ns: u64,
    /// Start time in seconds since 1970.
    pub started_unix_s: u64,
}

impl Scan {
    /// Returns the totals over all roots.
    pub fn total(&self) -> Tally {
        self.roots.iter().fold(self.dropped, |sum, tree| sum + tree.root().total)
    }

    /// Adds the inode table statistics of one root to those of the same device. Keeps the time of
    /// the first sync.
    fn add_tables(&mut self, new: Option<TablesUse>) {
        let Some(new) = new else { return };
        let same = |old: &&mut TablesUse| old.device == new.device;
        match self.inode_tables.iter_mut().find(same) {
            Some(old) => {
                old.read += new.read;
                old.asked += new.asked;
                old.sampled += new.sampled;
                old.changed += new.changed;
            }
            None => self.inode_tables.push(new),
        }
    }
}

/// Scans roots one after another.
#[derive(Debug)]
pub struct Scanner {
    options: ScanOptions,
    links: LinkSet,
    seen: Seen,
    /// Roots and mount points that are not directories: an entry in another root can be the same file.
    watched: HashSet<FileId>,
    /// Whether directories (and, with `-L`, files) can be found twice.
    several: bool,
    /// Whether all files are remembered, because the roots are not known in advance.
    remembers: bool,
    /// The mounts among which files are looked up if all files are remembered, and the devices for which this
    /// was done.
    points: (Vec<Mount>, HashSet<(u32, u32)>),
    mounts: Vec<Mount>,
    /// Those of them that walks skip, unless the root is on one.
    made_up: Vec<usize>,
    stop: Arc<AtomicBool>,
    progress: Arc<ScanProgress>,
    /// The errors that were taken, and those of them whose messages remain.
    taken: (u64, usize),
    scan: Scan,
}

impl Scanner {
    /// Creates a scanner for these roots. Setting `stop` makes the scan return early; `progress` is
    /// updated during the scan.
    pub fn new(
        options: ScanOptions,
        roots: &[PathBuf],
        stop: Arc<AtomicBool>,
        progress: Arc<ScanProgress>,
    ) -> Result<Self, ScanError> {
        if options.method == Method::NamesOnly {
            return Err(ScanError::NoSizes);
        }
        let each_once = (roots.len() > 1 || options.each_once) && !options.count_links;
        let several = each_once || options.follow == Follow::Always && !options.count_links;
        // Without /proc, file systems cannot be skipped by type.
        let mounts = mounts().unwrap_or_default();
        progress.walking.store(true, Ordering::Relaxed);
        let watched = match each_once {
            true => watched(roots, &mounts, options.follow != Follow::Never, &stop),
            false => HashSet::new(),
        };
        progress.walking.store(false, Ordering::Relaxed);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let scan = Scan {
            options: Some(Recorded::of(&options)),
            method: Some(options.method.word().to_owned()),
            started_unix_s: started.as_secs(),
            ..Scan::default()
        };
        let mounts = if options.all_file_systems { Vec::new() } else { mounts };
        Ok(Self {
            options,
            links: LinkSet::default(),
            seen: Seen::default(),
            watched,
            several,
            remembers: false,
            points: Default::default(),
            made_up: made_up(&mounts),
            mounts,
            stop,
            progress,
            taken: (0, 0),
            scan,
        })
    }

    /// Prepares for further roots that are not known in advance. Any file can then be a later root, so all are
    /// remembered, which takes about 20 bytes for each entry.
    #[must_use]
    pub fn with_further_roots(mut self) -> Self {
        if !self.options.count_links {
            self.several = true;
            self.remembers = true;
            self.points.0 = mounts().unwrap_or_default();
        }
        self
    }

    /// Drops the trees of the roots scanned so far. Their totals remain.
    pub fn drop_trees(&mut self) {
        for tree in self.scan.roots.drain(..) {
            self.scan.dropped += tree.root().total;
        }
    }

    /// Records the files mounted on others on a device that was not seen before: one root can contain them twice.
    fn watch_mounts(&mut self, device: (u32, u32)) {
        if !self.points.1.insert(device) {
            return;
        }
        for id in mounted_files(&self.points.0, &HashSet::from([device])) {
            // One that was counted must not be charged again.
            if self.seen.first(id) {
                self.watched.insert(id);
            }
        }
    }

    /// Scans one root. Returns `None` if it could not be read at all or is inside an earlier root.
    pub fn root(&mut self, root: &Path) -> Result<Option<&Tree>, ScanError> {
        self.walk(root, false)
    }

    /// Scans a directory without the directories in it: itself and its other entries.
    pub fn root_alone(&mut self, root: &Path) -> Result<Option<&Tree>, ScanError> {
        self.walk(root, true)
    }

    fn walk(&mut self, root: &Path, alone: bool) -> Result<Option<&Tree>, ScanError> {
        // An excluded path is not even queried.
        if self.options.exclude.matches(root.as_os_str().as_bytes()) {
            return Ok(None);
        }
        let started = Instant::now();
        // Already the first call can block.
        self.progress.walking.store(true, Ordering::Relaxed);
        let fields = Fields::IDENTITY | Fields::MOUNT;
        // A link that is not followed is a file; its target may be on a server that does not answer.
        let follow = self.options.follow != Follow::Never;
        let meta = dir::meta(root.as_os_str().as_bytes(), follow, fields).ok();
        let is_file = meta.as_ref().is_some_and(|meta| meta.kind != dir::Kind::Directory);
        if self.remembers
            && let Some(meta) = &meta
        {
            self.watch_mounts(meta.device);
        }
        let common = Common {
            options: &self.options,
            links: &self.links,
            seen: &self.seen,
            watched: &self.watched,
            several: self.several,
            remembers: self.remembers,
            alone,
            // Most roots of a long list are files, which contain no mounts.
            unwanted: match meta {
                Some(meta) if !is_file => self.unwanted(root, meta.mount),
                _ => Unwanted::default(),
            },
            next: AtomicU32::new(ROOT),
            not_entered: Mutex::default(),
            circular: AtomicBool::new(false),
            progress: &self.progress,
        };
        let walk = self.settings(is_file);
        let walked = walk.run(&[root.to_owned()], |_| Worker::new(&common));
        self.progress.walking.store(false, Ordering::Relaxed);
        let (workers, report) = walked?;
        let mut parts = Vec::with_capacity(workers.len());
        for mut worker in workers {
            worker.show_progress();
            self.scan.errors_count += worker.errors_count;
            self.scan.errors.extend(worker.errors);
            parts.push(worker.part);
        }
        let not_entered = common.not_entered.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.scan.not_entered.extend(not_entered);
        self.scan.errors.extend(report.errors.into_iter().map(message));
        self.scan.errors.truncate(self.taken.1 + ERRORS_KEPT_MAX);
        self.scan.errors_count += report.errors_count;
        self.scan.vanished += report.vanished;
        self.scan.interrupted |= report.stopped;
        if !is_file || self.scan.threads.is_none() {
            let why = if is_file { "1 thread, for a file".to_owned() } else { report.threads_why };
            self.scan.threads = Some(why);
        }
        self.scan.add_tables(report.tables);
        let tree = Tree::build(parts, &self.links);
        self.scan.elapsed_ns += u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Do not count a file again that was counted in an earlier root.
        match tree.filter(|t| t.root().kind == Kind::Directory || t.root().total.inodes > 0) {
            None => Ok(None),
            Some(tree) => {
                self.scan.roots.push(tree);
                Ok(self.scan.roots.last())
            }
        }
    }

    /// Returns the inodes with several links that were found so far, with size and link count.
    pub fn linked(&self) -> Vec<(FileId, Tally, u32)> {
        self.links.inodes()
    }

    /// Records an error of a root that cannot be scanned.
    pub fn fail(&mut self, message: String) {
        self.scan.errors_count += 1;
        if self.scan.errors.len() < self.taken.1 + ERRORS_KEPT_MAX {
            self.scan.errors.push(message);
        }
    }

    /// Returns the messages of the errors since the last call, and the number of further errors. Most of the
    /// messages are then no longer kept, so that the memory does not grow with the number of roots.
    pub fn take_errors(&mut self) -> (Vec<String>, u64) {
        let (count, kept) = self.taken;
        let messages = self.scan.errors.split_off(kept);
        let samples = messages.iter().take(ERRORS_LISTED.saturating_sub(kept)).cloned();
        self.scan.errors.extend(samples);
        self.taken = (self.scan.errors_count, self.scan.errors.len());
        let more = (self.scan.errors_count - count).saturating_sub(messages.len() as u64);
        (messages, more)
    }

    /// Returns the settings of the walk of a root, which can be a single file.
    fn settings(&self, is_file: bool) -> Walk {
        let nodes = self.options.detail.depth_max > 0;
        let ordered = self.options.follow == Follow::Always && nodes;
        Walk {
            method: self.options.method,
            // To start more threads for one file would take longer than to query it.
            threads: if ordered || is_file { Threads::Count(1) } else { self.options.threads },
            fields: self.options.time.map_or(Fields::IDENTITY, Time::fields)
                | Fields::BYTES
                | Fields::DISK
                | Fields::LINKS
                | Fields::MOUNT,
            follow: self.options.follow,
            cancel: Some(Arc::clone(&self.stop)),
            ..Walk::default()
        }
    }

    /// Returns the mounts to skip below a directory.
    fn unwanted(&self, root: &Path, mount: Option<u64>) -> Unwanted {
        match std::fs::canonicalize(root) {
            Ok(real) => Unwanted::among(&self.mounts, &self.made_up, &real, mount),
            Err(_) => Unwanted::default(),
        }
    }

    /// Returns true if the scan should stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns true if the walk of a root was stopped early.
    pub fn was_cut(&self) -> bool {
        self.scan.interrupted
    }

    /// Returns the result.
    pub fn finish(mut self) -> Scan {
        self.scan.interrupted |= self.stopped();
        self.scan.not_entered.sort();
        self.scan
    }
}

/// Returns the files with one name that several roots can contain: roots that are files, and files that are
/// mounted on others. Returns early if `stop` is set.
fn watched(
    roots: &[PathBuf],
    mounts: &[Mount],
    follow: bool,
    stop: &AtomicBool,
) -> HashSet<FileId> {
    let mut watched = HashSet::new();
    let mut devices = HashSet::new();
    for root in roots {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // An error is reported when this root is scanned.
        let path = root.as_os_str().as_bytes();
        let Ok(found) = dir::meta(path, follow, Fields::IDENTITY) else { continue };
        devices.insert(found.device);
        if found.kind != dir::Kind::Directory {
            watched.insert(FileId::new(found.device, found.inode));
        }
    }
    // The file systems of the roots answer, others may not.
    watched.extend(mounted_files(mounts, &devices));
    watched
}

/// Returns the files on these devices that are mounted on others.
fn mounted_files(mounts: &[Mount], devices: &HashSet<(u32, u32)>) -> Vec<FileId> {
    let mut files = Vec::new();
    for mount in mounts.iter().filter(|mount| devices.contains(&mount.device)) {
        let point = mount.point.as_os_str().as_bytes();
        if let Ok(found) = dir::meta(point, false, Fields::IDENTITY)
            && found.kind != dir::Kind::Directory
        {
            files.push(FileId::new(found.device, found.inode));
        }
    }
    files
}

/// Scans roots in order.
pub fn scan(roots: &[PathBuf], options: ScanOptions) -> Result<Scan, ScanError> {
    let mut scanner = Scanner::new(options, roots, Arc::default(), Arc::default())?;
    for root in roots {
        scanner.root(root)?;
    }
    Ok(scanner.finish())
}
