//! The visitor of a walk: filters entries, and sends the files that remain.

use super::batch::Batch;
use super::ignoring::Rules;
use super::parked::Parked;
use super::tally::Tally;
use super::{Links, TreeEntry, TreeOptions, Walked};
use crate::error::FileError;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::dir::Dir;
use ioloom_sys::{attr, file};
use ioloom_walk::{Control, DirRef, Found, Kind, NewDir, Visitor};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

/// Entries that a thread collects before it sends them: as many as one read of a directory returns.
/// The first batches are shorter.
pub(super) const BATCH_MAX: usize = 1024;
/// Files, and bytes of their paths, for which a thread reserves memory with the first one.
const RESERVED: (usize, usize) = (BATCH_MAX / 2, 16 << 10);

/// One thread's view of a walk.
pub(super) struct Finder {
    options: Arc<TreeOptions>,
    /// The roots as absolute paths, which rules of ignore files need.
    absolute: Arc<Vec<PathBuf>>,
    send: SyncSender<Batch>,
    parked: Arc<Parked>,
    batch: Batch,
    batch_max: usize,
    walked: Walked,
    tally: Arc<Tally>,
    /// The path of the current directory, if `known`.
    path: PathBuf,
    /// The same with a slash at its end, unless it is empty.
    prefix: Vec<u8>,
    known: bool,
    /// Whether entries must be checked by [`Self::is_wanted`].
    chooses: bool,
    /// Whether the receiver is gone.
    gone: bool,
}

/// What a directory passes on to those below it.
pub(super) struct Below {
    rules: Option<Arc<Rules>>,
    device: (u32, u32),
    /// Whether the kernel makes up its files. Their sizes must be queried, because reads of them
    /// end early.
    made_up: bool,
}

impl Finder {
    pub(super) fn new(
        options: &Arc<TreeOptions>,
        absolute: &Arc<Vec<PathBuf>>,
        send: SyncSender<Batch>,
        parked: Arc<Parked>,
        tally: &Arc<Tally>,
    ) -> Self {
        Self {
            options: options.clone(),
            absolute: absolute.clone(),
            send,
            parked,
            batch: Batch::default(),
            batch_max: 1,
            walked: Walked::default(),
            tally: tally.clone(),
            path: PathBuf::new(),
            prefix: Vec::new(),
            known: false,
            chooses: options.skip_hidden
                || options.max_depth.is_some()
                || options.ignore_files
                || options.filter.is_some(),
            gone: false,
        }
    }

    /// Counts a file that was added to the batch.
    fn added(&mut self) {
        self.walked.files += 1;
        if self.batch.len() >= self.batch_max {
            self.batch_max = (2 * self.batch_max).min(BATCH_MAX);
            self.flush();
        }
    }

    /// Adds a name of the current directory; with its inode if it is known to be a regular file.
    fn found_here(&mut self, name: &[u8], inode: Option<u64>) {
        let path: [&[u8]; 2] = [&self.prefix, name];
        match inode {
            Some(inode) => self.batch.files.push_found(&path, inode),
            None => self.batch.files.push(&path.concat()),
        }
        self.added();
    }

    /// Adds the counts, and sends what was found. The counts are added even if nothing was found: the next
    /// directory may not answer, and the run does not wait for it.
    fn flush(&mut self) {
        self.tally.add(&std::mem::take(&mut self.walked));
        if self.batch.len() > 0 {
            let files = &mut self.batch.files;
            // Files are read by inode number. Here, the paths are still in the cache of a processor.
            let files = if self.options.sorted { files.take() } else { files.take_by_inode() };
            let batch = Batch { files, failed: std::mem::take(&mut self.batch.failed) };
            self.tally.found.fetch_add(batch.len() as u64, Ordering::Relaxed);
            if let Some(batch) = self.parked.park(batch) {
                self.gone |= self.send.send(batch).is_err();
            }
        }
    }

    fn fail(&mut self, error: PathError) {
        self.walked.failed += 1;
        self.batch.failed.push(FileError::walk(0, error));
        self.flush();
    }

    fn know(&mut self, dir: DirRef<'_, Below>) {
        if !self.known {
            self.path = dir.path();
            self.prefix.clear();
            self.prefix.extend_from_slice(self.path.as_os_str().as_bytes());
            if self.prefix.last().is_some_and(|last| *last != b'/') {
                self.prefix.push(b'/');
            }
            self.batch.files.reserve(RESERVED.0, RESERVED.1);
            self.known = true;
        }
    }

    fn control(&self) -> Control {
        if self.gone { Control::Stop } else { Control::Continue }
    }

    /// Takes an entry of the current directory that is not a directory.
    fn take(&mut self, dir: DirRef<'_, Below>, found: &Found<'_>) {
        let Found { kind, inode, name, linked, .. } = *found;
        match (kind, self.options.links) {
            (Kind::Regular, _) => {
                // A link that was followed is opened as such.
                let is_plain = !linked && !dir.data().made_up;
                let inode = is_plain.then_some(inode);
                self.found_here(name, inode);
            }
            (Kind::Symlink, Links::Files) => {
                let path = self.path.join(OsStr::from_bytes(name));
                if file::stat(&path).is_ok_and(|facts| facts.kind == file::Kind::Regular) {
                    self.found_here(name, None);
                } else {
                    self.walked.links += 1;
                }
            }
            (Kind::Symlink, _) => self.walked.links += 1,
            (other, _) => {
                self.walked.special += 1;
                match other {
                    Kind::Socket => self.walked.sockets += 1,
                    Kind::Fifo => self.walked.pipes += 1,
                    _ => self.walked.devices += 1,
                }
            }
        }
    }

    /// Reads the rules of a new directory.
    fn rules(&mut self, dir: &NewDir<'_, Below>) -> Option<Arc<Rules>> {
        if !self.options.ignore_files {
            return None;
        }
        let mut failed = Vec::new();
        let root = &self.absolute[dir.root];
        let rules = match dir.parent {
            None => Rules::of_root(root, &mut failed),
            Some(parent) => {
                let path = below(root, parent, dir.name);
                Rules::of(&path, parent.data().rules.clone(), &mut failed)
            }
        };
        for (path, error) in failed {
            self.fail(PathError::new(Operation::Read, path, error));
        }
        rules
    }

    /// Applies the rules to an entry of `dir`.
    fn is_wanted(&mut self, dir: DirRef<'_, Below>, name: &[u8], kind: Kind) -> bool {
        let (directory, depth) = (kind == Kind::Directory, dir.depth() + 1);
        if self.options.skip_hidden && name.starts_with(b".") {
            self.walked.hidden += 1;
            return false;
        }
        if self.options.max_depth.is_some_and(|max| depth > max || directory && depth == max) {
            self.walked.deep += u64::from(directory);
            return false;
        }
        if let Some(rules) = &dir.data().rules {
            let path = below(&self.absolute[dir.root()], dir, name);
            if rules.ignores(&path, directory) {
                self.walked.ignored += 1;
                return false;
            }
        }
        if self.options.filter.is_some() {
            self.know(dir);
            let (link, follows) = (kind == Kind::Symlink, self.options.links == Links::All);
            let entry = TreeEntry { dir: &self.path, name, directory, link, follows, depth };
            if self.options.filter.as_ref().is_some_and(|filter| !filter(&entry)) {
                self.walked.filtered += 1;
                return false;
            }
        }
        true
    }
}

/// Returns true if a directory is on a file system without blocks of its own, such as `/proc`.
fn is_made_up(dir: &Path) -> bool {
    let system = Dir::open_path_only(dir).and_then(|dir| attr::file_system(&dir));
    system.is_ok_and(|system| system.without_blocks)
}

/// Returns the absolute path of `name` in a directory below `root`.
fn below(root: &Path, dir: DirRef<'_, Below>, name: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(root.as_os_str().len() + name.len() + 64);
    let mut relative = Vec::new();
    dir.write_relative(&mut relative);
    path.extend_from_slice(root.as_os_str().as_bytes());
    path.push(b'/');
    path.extend_from_slice(&relative);
    path.extend_from_slice(name);
    PathBuf::from(OsString::from_vec(path))
}

impl Visitor for Finder {
    type Dir = Below;

    #[inline]
    fn wants(&mut self, dir: DirRef<'_, Below>, name: &[u8], kind: Kind) -> bool {
        !self.chooses || self.is_wanted(dir, name, kind)
    }

    fn needs_kinds(&self) -> bool {
        self.options.filter.is_some() || self.options.ignore_files
    }

    fn enter(&mut self, dir: &NewDir<'_, Below>) -> Option<Below> {
        self.known = false;
        if self.gone {
            return None;
        }
        if self.options.max_depth.is_some_and(|max| dir.depth() >= max) {
            self.walked.deep += 1;
            return None;
        }
        let device = dir.meta.map(|meta| meta.device).unwrap_or_default();
        if self.options.same_file_system
            && dir.parent.is_some_and(|parent| parent.data().device != device)
        {
            self.walked.foreign += 1;
            return None;
        }
        self.walked.directories += 1;
        let made_up = match dir.parent {
            Some(parent) if parent.data().device == device => parent.data().made_up,
            _ => is_made_up(&dir.path()),
        };
        Some(Below { rules: self.rules(dir), device, made_up })
    }

    fn entry(&mut self, dir: DirRef<'_, Below>, found: &Found<'_>) -> Control {
        self.know(dir);
        self.take(dir, found);
        self.control()
    }

    fn root_entry(&mut self, _: usize, path: &Path, found: &Found<'_>) -> Control {
        match found.kind {
            Kind::Regular => {
                self.batch.files.push(path.as_os_str().as_bytes());
                self.added();
            }
            _ => {
                let error = io::Error::other("not a directory or regular file");
                self.fail(PathError::new(Operation::Walk, path, error));
            }
        }
        self.flush();
        self.control()
    }

    fn part(&mut self, _: DirRef<'_, Below>) {
        self.known = false;
        self.flush();
    }

    fn failed(&mut self, _: Option<DirRef<'_, Below>>, error: &PathError) {
        let source = match error.source.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(error.source.kind(), error.source.to_string()),
        };
        self.fail(PathError::new(error.operation, &error.path, source));
    }

    fn looped(&mut self, _: DirRef<'_, Below>, _: &[u8]) {
        self.walked.loops += 1;
    }
}

impl Drop for Finder {
    /// Adds the last counts and sends the rest, before the channel ends.
    fn drop(&mut self) {
        self.flush();
    }
}
