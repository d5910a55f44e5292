//! Walks the roots and adds up what it finds.
//!
//! Roots are walked one after another, each with all threads, because an entry counted in an
//! earlier root must not be counted again. Within a root, totals do not depend on the threads: an
//! entry with one name is added where it is found, and an inode with several names is charged at
//! the end of the root (see [`crate::tree`]). The exception is `-L`, where a directory can be
//! reached in two ways and the first one wins; such a scan uses one thread if its directories are
//! listed.

use crate::Tally;
use crate::exclude::Exclude;
use crate::links::{FileId, LinkSet, Seen};
use crate::mounts::Unwanted;
use crate::tree::{Found, Kind, Part, ROOT, Tree};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::dir;
use ioloom_sys::mount::{Mount, mounts};
use ioloom_walk::{
    Control, DirRef, Fields, Follow, Meta, Method, NewDir, Refused, TablesUse, Threads, Visitor,
    Walk,
};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Maximum number of error messages to keep.
pub const ERRORS_KEPT_MAX: usize = ioloom_walk::ERRORS_KEPT_MAX;

/// How much of a tree to retain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detail {
    /// Maximum depth of directories that become nodes; 0 keeps only the root.
    pub depth_max: u32,
    /// Whether files down to that depth also become nodes.
    pub files: bool,
}

impl Detail {
    /// Retains everything.
    pub const ALL: Self = Self { depth_max: u32::MAX, files: true };
    /// Retains only the roots.
    pub const ROOTS: Self = Self { depth_max: 0, files: false };
}

/// Scan options.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// How much of the tree to retain.
    pub detail: Detail,
    /// Whether to count every hard link.
    pub count_links: bool,
    /// Whether to stay on the device of the root, as `du -x` does.
    pub one_file_system: bool,
    /// Whether to stay on the mount of the root, excluding bind mounts and other mounts of the same
    /// device.
    pub one_mount: bool,
    /// Whether to enter kernel and network file systems too.
    pub all_file_systems: bool,
    /// Which symbolic links to follow.
    pub follow: Follow,
    /// What to exclude.
    pub exclude: Exclude,
    /// How to read sizes.
    pub method: Method,
    /// Number of threads.
    pub threads: Threads,
}

impl Default for ScanOptions {
    /// Totals of the roots, without following links, and with an automatic number of threads.
    fn default() -> Self {
        Self {
            detail: Detail::ROOTS,
            count_links: false,
            one_file_system: false,
            one_mount: false,
            all_file_systems: false,
            follow: Follow::Never,
            exclude: Exclude::new(),
            method: Method::Statx,
            threads: Threads::Auto,
        }
    }
}

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

/// The progress of a scan. A timer reads it; each thread updates it once per directory.
#[derive(Debug, Default)]
pub struct ScanProgress {
    /// Number of entries.
    pub entries: AtomicU64,
    /// Disk usage in bytes. Files with several links are added at the end of their root.
    pub disk_bytes: AtomicU64,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// One tree per root, except for roots that are inside an earlier one or could not be read.
    pub roots: Vec<Tree>,
    /// Messages of the first [`ERRORS_KEPT_MAX`] errors.
    pub errors: Vec<String>,
    /// Total number of errors.
    pub errors_count: u64,
    /// Number of names that disappeared before they could be read.
    pub vanished: u64,
    /// Mount points that were skipped, with their file system types.
    pub not_entered: Vec<(PathBuf, String)>,
    /// Whether the scan was stopped early.
    pub interrupted: bool,
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
        self.roots.iter().fold(Tally::default(), |sum, tree| sum + tree.root().total)
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
    /// Roots that are not directories: an entry in another root can be the same file.
    watched: HashSet<FileId>,
    /// Whether directories (and, with `-L`, files) can be found twice.
    several: bool,
    mounts: Vec<Mount>,
    stop: Arc<AtomicBool>,
    progress: Arc<ScanProgress>,
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
        let several = (roots.len() > 1 || options.follow == Follow::Always) && !options.count_links;
        let mut watched = HashSet::new();
        if roots.len() > 1 && several {
            let follow = options.follow != Follow::Never;
            for root in roots {
                // The error is reported when this root is scanned.
                match dir::meta(root.as_os_str().as_bytes(), follow, Fields::IDENTITY) {
                    Ok(meta) if meta.kind != dir::Kind::Directory => {
                        watched.insert(FileId::new(meta.device, meta.inode));
                    }
                    _ => {}
                }
            }
        }
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let scan = Scan {
            method: Some(options.method.word().to_owned()),
            started_unix_s: started.as_secs(),
            ..Scan::default()
        };
        // Without /proc, file systems cannot be skipped by type.
        let mounts =
            if options.all_file_systems { Vec::new() } else { mounts().unwrap_or_default() };
        let (links, seen) = (LinkSet::default(), Seen::default());
        Ok(Self { options, links, seen, watched, several, mounts, stop, progress, scan })
    }

    /// Scans one root. Returns `None` if it could not be read at all or is inside an earlier root.
    pub fn root(&mut self, root: &Path) -> Result<Option<&Tree>, ScanError> {
        let started = Instant::now();
        let common = Common {
            options: &self.options,
            links: &self.links,
            seen: &self.seen,
            watched: &self.watched,
            several: self.several,
            unwanted: self.unwanted(root),
            next: AtomicU32::new(ROOT),
            not_entered: Mutex::default(),
            progress: &self.progress,
        };
        let nodes = self.options.detail.depth_max > 0;
        let ordered = self.options.follow == Follow::Always && nodes;
        let walk = Walk {
            method: self.options.method,
            threads: if ordered { Threads::Count(1) } else { self.options.threads },
            fields: Fields::BYTES | Fields::DISK | Fields::LINKS | Fields::MOUNT,
            follow: self.options.follow,
            cancel: Some(Arc::clone(&self.stop)),
            ..Walk::default()
        };
        let (workers, report) = walk.run(&[root.to_owned()], |_| Worker::new(&common))?;
        let mut parts = Vec::with_capacity(workers.len());
        for worker in workers {
            self.scan.errors_count += worker.errors_count;
            self.scan.errors.extend(worker.errors);
            parts.push(worker.part);
        }
        let not_entered = common.not_entered.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.scan.not_entered.extend(not_entered);
        self.scan.errors.extend(report.errors.iter().map(ToString::to_string));
        self.scan.errors.truncate(ERRORS_KEPT_MAX);
        self.scan.errors_count += report.errors_count;
        self.scan.vanished += report.vanished;
        self.scan.interrupted |= report.stopped;
        self.scan.threads = Some(report.threads_why);
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

    fn unwanted(&self, root: &Path) -> Unwanted {
        let meta = dir::meta(root.as_os_str().as_bytes(), true, Fields::MOUNT);
        match (std::fs::canonicalize(root), meta) {
            (Ok(real), Ok(meta)) => Unwanted::below(&self.mounts, &real, meta.mount),
            _ => Unwanted::default(),
        }
    }

    /// Returns true if the scan should stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the result.
    pub fn finish(mut self) -> Scan {
        self.scan.interrupted |= self.stopped();
        self.scan.not_entered.sort();
        self.scan
    }
}

/// The state shared between the threads of one root.
struct Common<'a> {
    options: &'a ScanOptions,
    links: &'a LinkSet,
    seen: &'a Seen,
    watched: &'a HashSet<FileId>,
    several: bool,
    unwanted: Unwanted,
    next: AtomicU32,
    not_entered: Mutex<Vec<(PathBuf, String)>>,
    progress: &'a ScanProgress,
}

/// The state of one directory.
struct DirState {
    /// The node that its entries are added to: its own or that of the nearest ancestor.
    node: u32,
    /// Whether the node is its own.
    own: bool,
    /// Device and mount of the root.
    device: (u32, u32),
    mount: Option<u64>,
    /// Skipped file systems below it.
    unwanted: Box<[u32]>,
    /// Its path, if needed for pattern matching.
    path: Option<Box<[u8]>>,
}

/// The visitor of one thread.
struct Worker<'a> {
    common: &'a Common<'a>,
    part: Part,
    /// Total over the entries of the current directory.
    sum: Tally,
    path: Vec<u8>,
    errors: Vec<String>,
    errors_count: u64,
}

impl<'a> Worker<'a> {
    fn new(common: &'a Common<'a>) -> Self {
        Self {
            common,
            part: Part::default(),
            sum: Tally::default(),
            path: Vec::new(),
            errors: Vec::new(),
            errors_count: 0,
        }
    }

    fn number(&self) -> u32 {
        self.common.next.fetch_add(1, Ordering::Relaxed)
    }

    fn leave_out(&self, path: PathBuf, file_system: &str) {
        let list = &self.common.not_entered;
        let entry = (path, file_system.to_owned());
        list.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    /// Decides whether to enter a directory on a different mount than its parent.
    fn crosses(&self, dir: &NewDir<'_, DirState>, meta: &Meta, state: &DirState) -> bool {
        let options = self.common.options;
        if options.one_mount && meta.mount != state.mount {
            return false;
        }
        if let Some(kind) = meta.mount.and_then(|id| self.common.unwanted.mounted(id)) {
            self.leave_out(dir.path(), kind);
            return false;
        }
        // A bind-mounted ancestor would be counted twice.
        let mut above = dir.parent;
        while let Some(at) = above {
            if at.meta().is_some_and(|own| own.identity() == meta.identity()) {
                return false;
            }
            above = at.parent();
        }
        true
    }

    /// Returns true if an entry is to be counted now; one with possibly several names is recorded
    /// instead.
    #[inline]
    fn counts(&mut self, meta: &Meta, size: Tally, node: u32) -> bool {
        let common = self.common;
        if common.options.count_links {
            return true;
        }
        let id = FileId::new(meta.device, meta.inode);
        let watched = !common.watched.is_empty() && common.watched.contains(&id);
        if meta.links > 1 || watched {
            common.links.note(id, size, meta.links, node);
            return false;
        }
        common.options.follow != Follow::Always || common.seen.first(id)
    }

    /// Counts one entry below the node `parent`.
    #[inline]
    fn account(&mut self, meta: &Meta, name: &[u8], parent: u32, own_node: bool) {
        let size = Tally::entry(meta.bytes, meta.disk_bytes());
        if !own_node {
            if self.counts(meta, size, parent) {
                self.sum += size;
            }
            return;
        }
        let node = self.number();
        let counts = self.counts(meta, size, node);
        let id = FileId::new(meta.device, meta.inode);
        let found = Found { kind: kind_of(meta.kind), size, id, links: meta.links, counts };
        self.part.make(node, parent, name, found);
    }
}

fn kind_of(kind: dir::Kind) -> Kind {
    match kind {
        dir::Kind::Directory => Kind::Directory,
        dir::Kind::Regular => Kind::Regular,
        dir::Kind::Symlink => Kind::Symlink,
        _ => Kind::Other,
    }
}

impl Visitor for Worker<'_> {
    type Dir = DirState;

    #[inline]
    fn wants(&mut self, dir: DirRef<'_, DirState>, name: &[u8], _: dir::Kind) -> bool {
        let state = dir.data();
        if !state.unwanted.is_empty()
            && let Some(kind) = self.common.unwanted.on(&state.unwanted, dir.depth(), name)
        {
            self.leave_out(dir.path_of(name), kind);
            return false;
        }
        let Some(path) = &state.path else { return true };
        self.path.clear();
        self.path.extend_from_slice(path);
        if path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        !self.common.options.exclude.matches(&self.path)
    }

    fn enter(&mut self, dir: &NewDir<'_, DirState>) -> Option<DirState> {
        // The fields are always requested, so they are present.
        let meta = dir.meta?;
        let options = self.common.options;
        let (depth, above) = (dir.depth(), dir.parent.map(|parent| parent.data()));
        if let Some(state) = above {
            if options.one_file_system && meta.device != state.device {
                return None;
            }
            let mount_above = dir.parent.and_then(|p| p.meta()).and_then(|m| m.mount);
            if meta.mount != mount_above && !self.crosses(dir, meta, state) {
                return None;
            }
        }
        let path = (!options.exclude.is_empty()).then(|| dir.path().into_os_string());
        let path: Option<Box<[u8]>> = path.map(|path| Box::from(path.as_bytes()));
        if above.is_none() && path.as_deref().is_some_and(|p| options.exclude.matches(p)) {
            return None;
        }
        let id = FileId::new(meta.device, meta.inode);
        if self.common.several && !self.common.seen.first(id) {
            return None;
        }
        let size = Tally::entry(meta.bytes, meta.disk_bytes());
        let own = depth as u64 <= u64::from(options.detail.depth_max);
        let node = match above {
            Some(state) if !own => {
                self.part.add(state.node, size);
                state.node
            }
            above => {
                let node = self.number();
                let (kind, links) = (Kind::Directory, meta.links);
                let found = Found { kind, size, id, links, counts: true };
                self.part.make(node, above.map_or(ROOT, |state| state.node), dir.name, found);
                node
            }
        };
        let unwanted = match above {
            None => self.common.unwanted.all(),
            Some(state) if state.unwanted.is_empty() => Box::default(),
            Some(state) => self.common.unwanted.within(&state.unwanted, depth - 1, dir.name),
        };
        Some(DirState {
            node,
            own,
            device: above.map_or(meta.device, |state| state.device),
            mount: above.map_or(meta.mount, |state| state.mount),
            unwanted,
            path,
        })
    }

    #[inline]
    fn entry(&mut self, dir: DirRef<'_, DirState>, found: &ioloom_walk::Found<'_>) -> Control {
        let (state, options) = (dir.data(), self.common.options);
        let Some(meta) = found.meta else { return Control::Continue };
        if options.follow == Follow::Always && meta.kind == dir::Kind::Symlink {
            // With -L, an entry is reported as a link only if it is broken.
            self.errors_count += 1;
            if self.errors.len() < ERRORS_KEPT_MAX {
                let path = dir.path_of(found.name);
                self.errors.push(format!(
                    "cannot follow {}: broken symbolic link; remove it, or omit -L",
                    quoted(&path)
                ));
            }
            return Control::Continue;
        }
        if options.one_file_system && meta.device != state.device
            || options.one_mount && meta.mount != state.mount
        {
            return Control::Continue;
        }
        let detail = options.detail;
        let own = detail.files && (dir.depth() as u64) < u64::from(detail.depth_max);
        self.account(meta, found.name, state.node, own);
        Control::Continue
    }

    fn root_entry(&mut self, _: usize, path: &Path, found: &ioloom_walk::Found<'_>) -> Control {
        let path = path.as_os_str().as_bytes();
        if let Some(meta) = found.meta.filter(|_| !self.common.options.exclude.matches(path)) {
            self.account(meta, path, ROOT, true);
        }
        Control::Continue
    }

    fn part(&mut self, dir: DirRef<'_, DirState>) {
        let sum = std::mem::take(&mut self.sum);
        self.part.add(dir.data().node, sum);
        let progress = self.common.progress;
        progress.entries.fetch_add(sum.inodes + 1, Ordering::Relaxed);
        progress.disk_bytes.fetch_add(sum.disk_bytes, Ordering::Relaxed);
    }

    fn failed(&mut self, dir: Option<DirRef<'_, DirState>>, error: &PathError) {
        // If stat fails for an entry, its directory is still readable.
        if let Some(state) = dir.map(|dir| dir.data()).filter(|state| state.own)
            && error.operation != Operation::Stat
        {
            self.part.unreadable(state.node);
        }
    }
}

/// Scans roots in order.
pub fn scan(roots: &[PathBuf], options: ScanOptions) -> Result<Scan, ScanError> {
    let mut scanner = Scanner::new(options, roots, Arc::default(), Arc::default())?;
    for root in roots {
        scanner.root(root)?;
    }
    Ok(scanner.finish())
}
