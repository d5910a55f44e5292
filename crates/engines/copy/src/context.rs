//! The state shared by all threads of one copy.

use crate::data::Meter;
use crate::dirs::CopiedName;
use crate::error::{CopyError, Errors};
use crate::evidence::{Evidence, EvidenceCounters};
use crate::journal::Journal;
use crate::links::{EarlierCopies, Identity, Links};
use crate::meta::{MetaError, Rules};
use crate::mode::Mode;
use crate::new_file::number_of_hidden_dir;
use crate::options::{CopyCounters, CopyOptions, Watcher};
use crate::plan::Facts;
use crate::report::{Counts, HASHES_KEPT_MAX, Hashed, ModeCounters, Tally};
use crate::route::Route;
use crate::turns::Turns;
use crate::view::{Device, FileSystems};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// What a copy created and a later source could overwrite or write through.
#[derive(Default)]
pub(crate) struct Created {
    /// Targets of sources that the user named: the file, its directory, and its name.
    named: Mutex<HashSet<(Identity, Identity, CString)>>,
    /// Symbolic links, at any depth.
    links: Mutex<HashSet<Identity>>,
}

/// One copy, shared by its threads.
pub(crate) struct CopyContext<'a> {
    pub(crate) options: &'a CopyOptions,
    pub(crate) watcher: &'a dyn Watcher,
    pub(crate) progress: &'a CopyCounters,
    pub(crate) rules: Rules,
    pub(crate) links: Links<'a, CopiedName>,
    /// Whether files are created under their final names, because the target's file system cannot give
    /// them one later.
    pub(crate) final_names: AtomicBool,
    /// Whether files have a hidden name rather than none, because an unnamed one could not be linked.
    pub(crate) no_unnamed: AtomicBool,
    /// Files that are being written in place.
    pub(crate) turns: Turns,
    /// Directories that this copy creates or writes to. They are never copied themselves.
    pub(crate) written: Mutex<HashSet<(Device, u64)>>,
    /// Numbers in the hidden names of new directories of this copy.
    hidden_dirs: Mutex<HashSet<u64>>,
    pub(crate) file_systems: FileSystems,
    pub(crate) verified: EvidenceCounters,
    /// The number of the first error for lack of space or quota; 0 if there was none.
    lack: AtomicI32,
    /// The journal of this copy, with [`CopyOptions::resume`].
    pub(crate) resume: OnceLock<Journal>,
    facts: Mutex<HashMap<(Device, Device), Arc<Facts>>>,
    unshared: Mutex<HashSet<(Device, Device)>>,
    modes: ModeCounters,
    hashes: Mutex<Vec<Hashed>>,
    errors: Mutex<Errors>,
    created: Option<&'a Created>,
    /// Symbolic links that this copy created in existing directories, if there is a single part: another directory, or
    /// another spelling of the name, can lead there.
    links_made: Mutex<HashSet<Identity>>,
    /// Held by threads that create such links until they are recorded.
    making_links: RwLock<()>,
    /// New directories in which this copy creates symbolic links, and existing ones into which it moves some: one
    /// number for all links of a directory.
    dirs_with_links: Mutex<HashSet<Identity>>,
    /// Whether sources are copied without the directories in them and without their own attributes.
    pub(crate) alone: bool,
    /// Entries in directories that were removed because they could not be completed.
    removed: Mutex<Counts>,
}

/// A thread that cleans up.
pub(crate) struct Cleaning<'a>(&'a AtomicU64);

impl Drop for Cleaning<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> CopyContext<'a> {
    pub(crate) fn new(
        options: &'a CopyOptions,
        watcher: &'a dyn Watcher,
        progress: &'a CopyCounters,
        created: Option<&'a Created>,
        earlier: &'a EarlierCopies,
    ) -> Self {
        Self {
            options,
            watcher,
            progress,
            rules: Rules::new(options),
            links: Links::new(earlier),
            final_names: AtomicBool::new(false),
            no_unnamed: AtomicBool::new(false),
            turns: Turns::default(),
            written: Mutex::default(),
            hidden_dirs: Mutex::default(),
            file_systems: FileSystems::default(),
            verified: EvidenceCounters::default(),
            lack: AtomicI32::new(0),
            resume: OnceLock::new(),
            facts: Mutex::default(),
            unshared: Mutex::default(),
            modes: ModeCounters::default(),
            hashes: Mutex::default(),
            errors: Mutex::default(),
            created,
            links_made: Mutex::default(),
            making_links: RwLock::new(()),
            dirs_with_links: Mutex::default(),
            alone: false,
            removed: Mutex::default(),
        }
    }

    /// Counts an error, and passes it to the watcher.
    pub(crate) fn failed(&self, error: CopyError) {
        if error.is_cancelled() {
            return;
        }
        self.note_lack(&error);
        self.watcher.failed(&error);
        locked(&self.errors).add(error);
    }

    /// Remembers the first error for lack of space or quota.
    pub(crate) fn note_lack(&self, error: &CopyError) {
        if let Some(errno) = error.errno().filter(|_| error.is_out_of_space()) {
            let new = errno.raw_os_error();
            let _ = self.lack.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns the error for what is not copied after space or quota was exhausted.
    pub(crate) fn lack(&self) -> io::Error {
        match self.lack.load(Ordering::Relaxed) {
            0 => Errno::NOSPC.into(),
            number => io::Error::from_raw_os_error(number),
        }
    }

    /// Returns true if space or quota was exhausted.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.lack.load(Ordering::Relaxed) != 0
    }

    /// Counts attributes of one file that could not be set.
    pub(crate) fn failed_attributes(&self, failed: Vec<MetaError>, path: impl Fn() -> PathBuf) {
        for (operation, error) in failed {
            self.failed(CopyError::io(operation, path(), error));
        }
    }

    /// Returns the counts of entries in directories that were removed.
    pub(crate) fn removed(&self) -> Counts {
        *locked(&self.removed)
    }

    pub(crate) fn has_failed(&self) -> bool {
        locked(&self.errors).count > 0
    }

    pub(crate) fn take_errors(&self) -> Errors {
        std::mem::take(&mut *locked(&self.errors))
    }

    fn created_links(&self) -> &Mutex<HashSet<Identity>> {
        self.created.map_or(&self.links_made, |created| &created.links)
    }

    /// Begins to create an entry that is recorded by [`created`](Self::created). Nothing is written through a symbolic
    /// link before the result is dropped.
    pub(crate) fn making(&self, route: &Route<'_>, kind: Kind) -> Option<RwLockReadGuard<'_, ()>> {
        let making = || self.making_links.read().unwrap_or_else(PoisonError::into_inner);
        (kind == Kind::Symlink && !route.hidden).then(making)
    }

    /// Records a target, if another entry can have the same one.
    pub(crate) fn created(&self, route: &Route<'_>, kind: Kind) {
        let is_link = kind == Kind::Symlink && !route.hidden;
        if self.created.is_none() && !is_link {
            return;
        }
        let Ok(found) = attr::of_name(route.to, route.to_name, false) else { return };
        if found.kind == Kind::Symlink {
            locked(self.created_links()).insert(found.identity());
        }
        if let Some(created) = self.created.filter(|_| route.named) {
            let Ok(dir) = attr::of_file(route.to) else { return };
            let of = (found.identity(), dir.identity(), route.to_name.to_owned());
            locked(&created.named).insert(of);
        }
    }

    /// Records that this copy is about to create symbolic links in a directory that is still hidden. Once it has its
    /// name, another path can lead there.
    pub(crate) fn links_in(&self, dir: Identity) {
        locked(&self.dirs_with_links).insert(dir);
    }

    /// Records that the entries of a hidden directory are about to be moved into an existing one.
    pub(crate) fn links_move(&self, from: Identity, to: &Dir) -> io::Result<()> {
        if locked(&self.dirs_with_links).contains(&from) {
            self.links_in(attr::of_file(to)?.identity());
        }
        Ok(())
    }

    /// Returns true if a symbolic link in `dir` was created by this copy, or if another program created it in a
    /// directory with such links.
    pub(crate) fn created_link(&self, found: &Attr, dir: &Dir) -> bool {
        let is_in = |dir: Attr| locked(&self.dirs_with_links).contains(&dir.identity());
        self.is_recorded(found) || attr::of_file(dir).is_ok_and(is_in)
    }

    fn is_recorded(&self, link: &Attr) -> bool {
        // Those that exist by now are recorded.
        drop(self.making_links.write().unwrap_or_else(PoisonError::into_inner));
        locked(self.created_links()).contains(&link.identity())
    }

    /// Returns true if a path is that of a symbolic link created by an earlier part of this copy.
    pub(crate) fn is_created_link(&self, path: &Path) -> bool {
        let is_link = |found: &Attr| found.kind == Kind::Symlink && self.is_recorded(found);
        self.created.is_some() && attr::of_path(path, false).is_ok_and(|found| is_link(&found))
    }

    /// Returns true if a file is the target of an earlier source that the user named.
    pub(crate) fn created_file(&self, found: &Attr, dir: &Dir, name: &CStr) -> bool {
        self.created.is_some_and(|created| {
            let Ok(dir) = attr::of_file(dir) else { return false };
            let of = (found.identity(), dir.identity(), name.to_owned());
            locked(&created.named).contains(&of)
        })
    }

    pub(crate) fn cancelled(&self) -> bool {
        self.options.cancel.load(Ordering::Relaxed)
    }

    /// Counts this thread in [`CopyCounters::cleaning`] until the result is dropped.
    pub(crate) fn cleaning(&self) -> Cleaning<'_> {
        self.progress.cleaning.fetch_add(1, Ordering::Relaxed);
        Cleaning(&self.progress.cleaning)
    }

    /// Returns the meter for one file; `mine` counts its bytes.
    pub(crate) fn meter<'f>(&'f self, mine: &'f AtomicU64) -> Meter<'f> {
        Meter { cancel: &self.options.cancel, all: &self.progress.bytes, mine }
    }

    /// Returns the facts about a pair of devices; calls `gather` for the first file.
    pub(crate) fn facts_of(
        &self,
        devices: (Device, Device),
        gather: impl FnOnce() -> io::Result<Facts>,
    ) -> io::Result<Arc<Facts>> {
        let mut known = locked(&self.facts);
        if let Some(facts) = known.get(&devices) {
            return Ok(Arc::clone(facts));
        }
        let mut facts = gather()?;
        if self.options.reflink != crate::When::Never && facts.same_file_system {
            // A plan is only needed if sharing the blocks of this file has failed.
            facts.reflink = Some(false);
        }
        let facts = Arc::new(facts);
        known.insert(devices, Arc::clone(&facts));
        Ok(facts)
    }

    /// Returns true if the facts about a pair of devices were gathered.
    pub(crate) fn has_facts(&self, devices: (Device, Device)) -> bool {
        locked(&self.facts).contains_key(&devices)
    }

    pub(crate) fn facts(&self) -> Vec<Facts> {
        locked(&self.facts).values().map(|facts| Facts::clone(facts)).collect()
    }

    /// Returns true if an earlier attempt to share blocks between these devices failed.
    pub(crate) fn cannot_share(&self, devices: (Device, Device)) -> bool {
        locked(&self.unshared).contains(&devices)
    }

    pub(crate) fn no_sharing(&self, devices: (Device, Device)) {
        locked(&self.unshared).insert(devices);
    }

    /// Returns the requested method unless it is the one that small files use anyway.
    pub(crate) fn pinned_other_than_buffered(&self) -> Option<Mode> {
        let shares = self.options.reflink == crate::When::Always;
        let pinned = self.options.mode.or(shares.then_some(Mode::Reflink));
        pinned.filter(|mode| *mode != Mode::Buffered)
    }

    /// Counts a file that has its final name.
    pub(crate) fn copied_file(&self, mode: Option<Mode>, evidence: &Evidence) {
        mode.into_iter().for_each(|mode| self.modes.add(mode));
        self.verified.add(evidence);
    }

    /// Returns the number of files copied by each method.
    pub(crate) fn modes(&self) -> Vec<(Mode, u64)> {
        self.modes.load()
    }

    pub(crate) fn hashed(&self, route: &Route<'_>, hash: String, bytes: u64) {
        let mut hashes = locked(&self.hashes);
        if hashes.len() < HASHES_KEPT_MAX {
            let (_, path) = (route.paths)();
            hashes.push(Hashed { path, bytes, hash });
        }
    }

    pub(crate) fn take_hashes(&self) -> Vec<Hashed> {
        let mut hashes = std::mem::take(&mut *locked(&self.hashes));
        hashes.sort_by(|a, b| a.path.cmp(&b.path));
        hashes
    }

    /// Takes a directory that was removed, with its entries, out of the result.
    pub(crate) fn discarded(&self, path: &Path, counts: &Counts, tally: &Tally) {
        locked(&self.removed).add(counts);
        self.progress.bytes.fetch_sub(tally.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.verified.take(&tally.verified.load());
        self.modes.take(&tally.modes);
        locked(&self.hashes).retain(|of| !of.path.starts_with(path));
    }

    /// Takes entries that did not get their final names out of the result; `is_one`: whether a path is that of such a
    /// file.
    pub(crate) fn not_moved(&self, counts: &Counts, bytes: u64, is_one: impl Fn(&Path) -> bool) {
        locked(&self.removed).add(counts);
        self.progress.bytes.fetch_sub(bytes, Ordering::Relaxed);
        locked(&self.hashes).retain(|of| !is_one(&of.path));
    }

    /// Records a directory that this copy writes to, and its hidden name, if it has one.
    pub(crate) fn writes_into(&self, identity: (Device, u64), hidden: Option<&CStr>) {
        locked(&self.written).insert(identity);
        if let Some(number) = hidden.and_then(|name| number_of_hidden_dir(name.to_bytes())) {
            locked(&self.hidden_dirs).insert(number);
        }
    }

    /// Returns true if a name is the hidden name of a new directory of this copy.
    pub(crate) fn is_hidden_dir(&self, name: &[u8]) -> bool {
        number_of_hidden_dir(name).is_some_and(|it| locked(&self.hidden_dirs).contains(&it))
    }

    pub(crate) fn is_written(&self, identity: (Device, u64)) -> bool {
        locked(&self.written).contains(&identity)
    }
}
