//! The visitor of a scan: counts entries, and decides which directories to enter.
//!
//! Each thread has one. It records what it found in its own [`Part`]; only inodes that can be found
//! twice are shared ([`crate::links`]).

use crate::Tally;
use crate::links::{FileId, LinkSet, Seen};
use crate::mounts::Unwanted;
use crate::options::{ERRORS_KEPT_MAX, ScanOptions, ScanProgress};
use crate::tree::{Found, Kind, Part, ROOT};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::dir;
use ioloom_walk::{Control, DirRef, Follow, Meta, NewDir, Visitor};
use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The kernel follows at most this many symbolic links in a path. Deeper entries can be reached
/// from an open directory but not by their paths, so no other program could open them.
const LINKS_IN_PATH_MAX: u8 = 40;

/// Down to this depth each directory is compared with those above it; below, at each power of two, as the comparison
/// takes as long as the path is deep.
const COMPARED_DEPTH_MAX: usize = 64;

/// "No such file or directory".
const ENOENT: i32 = 2;
/// "Too many levels of symbolic links".
const ELOOP: i32 = 40;

/// The state shared between the threads of one root.
pub(crate) struct Common<'a> {
    pub(crate) options: &'a ScanOptions,
    pub(crate) links: &'a LinkSet,
    pub(crate) seen: &'a Seen,
    pub(crate) watched: &'a HashSet<FileId>,
    pub(crate) several: bool,
    /// Whether any file can be found again, as a later root.
    pub(crate) remembers: bool,
    /// Whether directories below the root are left out.
    pub(crate) alone: bool,
    pub(crate) unwanted: Unwanted,
    pub(crate) next: AtomicU32,
    pub(crate) not_entered: Mutex<Vec<(PathBuf, String)>>,
    /// Whether a directory was found below itself.
    pub(crate) circular: AtomicBool,
    pub(crate) progress: &'a ScanProgress,
}

/// The state of one directory.
pub(crate) struct DirState {
    /// The node that its entries are added to: its own or that of the nearest ancestor.
    node: u32,
    /// Whether the node is its own.
    own: bool,
    /// Device and mount of the root.
    device: (u32, u32),
    mount: Option<u64>,
    /// Skipped file systems below it.
    unwanted: Box<[u32]>,
    /// A bit for each directory from here up to the root, by inode number.
    above: u64,
    /// Whether a mount was entered between the root and this directory.
    crossed: bool,
    /// Symbolic links in its path.
    links: u8,
}

/// Returns the message of an error, with the verbs of GNU du.
pub(crate) fn message(error: PathError) -> String {
    let operation = match error.operation {
        Operation::Stat => Operation::Access,
        Operation::OpenDir => Operation::ReadDir,
        other => other,
    };
    PathError { operation, ..error }.to_string()
}

/// The visitor of one thread.
pub(crate) struct Worker<'a> {
    common: &'a Common<'a>,
    pub(crate) part: Part,
    /// Total over the entries of the current directory.
    sum: Tally,
    /// Entries and disk usage that the progress does not contain yet.
    seen: (u64, u64),
    /// The path of the directory whose names are matched, with a slash at the end, and of one of them.
    path: Vec<u8>,
    /// Length of the path of that directory; zero if it is not known yet.
    dir_bytes: usize,
    pub(crate) errors: Vec<String>,
    pub(crate) errors_count: u64,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(common: &'a Common<'a>) -> Self {
        Self {
            common,
            part: Part::default(),
            sum: Tally::default(),
            seen: (0, 0),
            path: Vec::new(),
            dir_bytes: 0,
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
        true
    }

    /// Marks the directory of an entry that could not be read, if it has a node.
    fn lacks_entry(&mut self, state: &DirState) {
        if state.own {
            self.part.incomplete(state.node);
        }
    }

    /// Records an error of a path that the walk could query but that is not counted.
    fn cannot_access(&mut self, path: PathBuf, source: io::Error) {
        self.error(message(PathError::new(Operation::Access, path, source)));
    }

    fn error(&mut self, message: String) {
        self.errors_count += 1;
        if self.errors.len() < ERRORS_KEPT_MAX {
            self.errors.push(message);
        }
    }

    /// Returns whether a directory is one of those above it. Below a bind mount of a directory above, they
    /// come again. Within one mount it is an error: the file system is damaged, the program that serves it
    /// is wrong, or it shows several file systems as one. `mounted`: a mount is between the root and it.
    fn is_circular(
        &mut self,
        dir: &NewDir<'_, DirState>,
        meta: &Meta,
        state: &DirState,
        mounted: bool,
    ) -> bool {
        let (depth, circular) = (dir.depth(), &self.common.circular);
        let compares = || {
            mounted
                || depth <= COMPARED_DEPTH_MAX
                || depth.is_power_of_two()
                || circular.load(Ordering::Relaxed)
        };
        if state.above & bit(meta) == 0 || !compares() {
            return false;
        }
        let Some(same) = same_above(dir.parent, meta) else { return false };
        // Without numbers of mounts (Linux before 5.8), it may be one.
        if meta.mount.is_none() || same.mount != meta.mount {
            return true;
        }
        circular.store(true, Ordering::Relaxed);
        self.lacks_entry(state);
        self.error(format!(
            "WARNING: Circular directory structure: {} has the device and inode number of a directory above \
             it; the file system is damaged, or a share of several file systems",
            quoted(&dir.path())
        ));
        true
    }

    /// Returns whether a pattern excludes a name.
    fn excludes(&mut self, dir: DirRef<'_, DirState>, name: &[u8]) -> bool {
        if self.dir_bytes == 0 {
            self.path = dir.path().into_os_string().into_vec();
            if self.path.last() != Some(&b'/') {
                self.path.push(b'/');
            }
            self.dir_bytes = self.path.len();
        }
        self.path.truncate(self.dir_bytes);
        self.path.extend_from_slice(name);
        self.common.options.exclude.matches(&self.path)
    }

    /// Returns the totals of one entry.
    #[inline]
    fn size(&self, meta: &Meta) -> Tally {
        let size = Tally::entry(meta.bytes, meta.disk_bytes());
        match self.common.options.time {
            None => size,
            Some(time) => size.at(time.of(meta)),
        }
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
        let again = common.remembers || common.options.follow == Follow::Always;
        !again || common.seen.first(id)
    }

    /// Counts an entry for the progress.
    #[inline]
    fn see(&mut self, size: Tally) {
        self.seen.0 += size.inodes;
        self.seen.1 = self.seen.1.saturating_add(size.disk_bytes);
    }

    /// Adds what was counted since the last call to the progress.
    pub(crate) fn show_progress(&mut self) {
        let (entries, disk_bytes) = std::mem::take(&mut self.seen);
        let progress = self.common.progress;
        progress.entries.fetch_add(entries, Ordering::Relaxed);
        progress.disk_bytes.fetch_add(disk_bytes, Ordering::Relaxed);
    }

    /// Counts one entry below the node `parent`.
    #[inline]
    fn account(&mut self, meta: &Meta, name: &[u8], parent: u32, own_node: bool) {
        let size = self.size(meta);
        if !own_node {
            if self.counts(meta, size, parent) {
                self.see(size);
                self.sum += size;
            }
            return;
        }
        let node = self.number();
        let counts = self.counts(meta, size, node);
        if counts {
            self.see(size);
        }
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
        let (state, options) = (dir.data(), self.common.options);
        if !options.exclude.is_empty() && self.excludes(dir, name) {
            return false;
        }
        if !state.unwanted.is_empty()
            && let Some(kind) = self.common.unwanted.on(&state.unwanted, dir.depth(), name)
        {
            // Without them, it would be left out silently, too.
            if !options.one_file_system && !options.one_mount {
                self.leave_out(dir.path_of(name), kind);
            }
            return false;
        }
        true
    }

    fn enter(&mut self, dir: &NewDir<'_, DirState>) -> Option<DirState> {
        // The fields are always requested, so they are present.
        let meta = dir.meta?;
        let options = self.common.options;
        let (depth, above) = (dir.depth(), dir.parent.map(|parent| parent.data()));
        let (mut crossed, mut links) = (false, u8::from(dir.linked));
        if let Some(state) = above {
            if self.common.alone || options.one_file_system && meta.device != state.device {
                return None;
            }
            let mount_above = dir.parent.and_then(|p| p.meta()).and_then(|m| m.mount);
            let crossing = meta.mount != mount_above;
            if crossing && !self.crosses(dir, meta, state) {
                return None;
            }
            crossed = crossing || state.crossed;
            if self.is_circular(dir, meta, state, crossed) {
                return None;
            }
            links = state.links.saturating_add(u8::from(dir.linked));
            if links > LINKS_IN_PATH_MAX {
                self.lacks_entry(state);
                self.cannot_access(dir.path(), io::Error::from_raw_os_error(ELOOP));
                return None;
            }
        }
        if above.is_none() && options.exclude.matches(dir.name) {
            return None;
        }
        let id = FileId::new(meta.device, meta.inode);
        if self.common.several && !self.common.seen.first(id) {
            return None;
        }
        let size = self.size(meta);
        self.see(size);
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
            above: above.map_or(0, |state| state.above) | bit(meta),
            crossed,
            links,
        })
    }

    #[inline]
    fn entry(&mut self, dir: DirRef<'_, DirState>, found: &ioloom_walk::Found<'_>) -> Control {
        let (state, options) = (dir.data(), self.common.options);
        let Some(meta) = found.meta else { return Control::Continue };
        if options.follow == Follow::Always && meta.kind == dir::Kind::Symlink {
            // With -L, an entry is reported as a link only if it is broken.
            self.lacks_entry(state);
            self.cannot_access(dir.path_of(found.name), io::Error::from_raw_os_error(ENOENT));
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

    fn root_entry(&mut self, _: usize, root: &Path, found: &ioloom_walk::Found<'_>) -> Control {
        let (path, options) = (root.as_os_str().as_bytes(), self.common.options);
        let Some(meta) = found.meta.filter(|_| !options.exclude.matches(path)) else {
            return Control::Continue;
        };
        if options.follow == Follow::Always && meta.kind == dir::Kind::Symlink {
            self.cannot_access(root.to_owned(), io::Error::from_raw_os_error(ENOENT));
        } else {
            self.account(meta, path, ROOT, true);
        }
        Control::Continue
    }

    fn part(&mut self, dir: DirRef<'_, DirState>) {
        self.dir_bytes = 0;
        let sum = std::mem::take(&mut self.sum);
        self.part.add(dir.data().node, sum);
        self.show_progress();
    }

    fn failed(&mut self, dir: Option<DirRef<'_, DirState>>, error: &PathError) {
        let Some(state) = dir.map(|dir| dir.data()) else { return };
        if error.operation == Operation::Stat {
            // The directory of the entry is still readable.
            self.lacks_entry(state);
        } else if state.own {
            self.part.unreadable(state.node);
        }
    }
}

/// Returns the bit of a directory in [`DirState::above`].
fn bit(meta: &Meta) -> u64 {
    // The upper bits of this product are spread evenly, whatever the inode numbers have in common.
    1 << (meta.inode.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58)
}

/// Returns the directory from `dir` up to the root that is the one of `meta`.
fn same_above<'d>(dir: Option<DirRef<'d, DirState>>, meta: &Meta) -> Option<&'d Meta> {
    let mut above = dir;
    while let Some(at) = above {
        if let Some(own) = at.meta().filter(|own| own.identity() == meta.identity()) {
            return Some(own);
        }
        above = at.parent();
    }
    None
}
