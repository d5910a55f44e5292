//! The state shared by all threads of one copy.

use crate::data::Meter;
use crate::dirs::CopiedName;
use crate::journal::Journal;
use crate::links::Links;
use crate::meta::Rules;
use crate::mode::Mode;
use crate::options::{CopyCounters, CopyOptions, Watcher};
use crate::plan::Facts;
use crate::report::{EvidenceCounters, HASHES_KEPT_MAX, Hashed};
use crate::route::Route;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A device, as (major, minor).
pub(crate) type Device = (u32, u32);

/// One copy, shared by its threads.
pub(crate) struct CopyContext<'a> {
    pub(crate) options: &'a CopyOptions,
    pub(crate) watcher: &'a dyn Watcher,
    pub(crate) progress: &'a CopyCounters,
    pub(crate) rules: Rules,
    pub(crate) links: Links<CopiedName>,
    /// Directories that this copy creates or writes to. They are never copied themselves.
    pub(crate) written: Mutex<HashSet<(Device, u64)>>,
    pub(crate) verified: EvidenceCounters,
    pub(crate) out_of_space: AtomicBool,
    /// The journal of this copy, with [`CopyOptions::resume`].
    pub(crate) resume: OnceLock<Journal>,
    facts: Mutex<HashMap<(Device, Device), Arc<Facts>>>,
    unshared: Mutex<HashSet<(Device, Device)>>,
    modes: [AtomicU64; Mode::ALL.len()],
    hashes: Mutex<Vec<Hashed>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> CopyContext<'a> {
    pub(crate) fn new(
        options: &'a CopyOptions,
        watcher: &'a dyn Watcher,
        progress: &'a CopyCounters,
    ) -> Self {
        Self {
            options,
            watcher,
            progress,
            rules: Rules::new(options.preserve, options.plain_mode),
            links: Links::new(),
            written: Mutex::default(),
            verified: EvidenceCounters::default(),
            out_of_space: AtomicBool::new(false),
            resume: OnceLock::new(),
            facts: Mutex::default(),
            unshared: Mutex::default(),
            modes: Default::default(),
            hashes: Mutex::default(),
        }
    }

    /// Returns true if the copy should stop because the user cancelled it or the device is full.
    pub(crate) fn ends(&self) -> bool {
        self.cancelled() || self.out_of_space.load(Ordering::Relaxed)
    }

    pub(crate) fn cancelled(&self) -> bool {
        self.options.cancel.load(Ordering::Relaxed)
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

    pub(crate) fn facts(&self) -> Vec<Facts> {
        locked(&self.facts).values().map(|facts| Facts::clone(facts)).collect()
    }

    /// Returns true if an earlier attempt to share blocks between these devices failed.
    pub(crate) fn cannot_share(&self, devices: (Device, Device)) -> bool {
        devices.0 != devices.1 || locked(&self.unshared).contains(&devices)
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

    pub(crate) fn count_mode(&self, mode: Mode) {
        self.modes[mode as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of files copied by each method.
    pub(crate) fn modes(&self) -> Vec<(Mode, u64)> {
        let counts =
            Mode::ALL.map(|mode| (mode, self.modes[mode as usize].load(Ordering::Relaxed)));
        counts.into_iter().filter(|(_, files)| *files > 0).collect()
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

    /// Records a directory that this copy writes to.
    pub(crate) fn writes_into(&self, identity: (Device, u64)) {
        locked(&self.written).insert(identity);
    }

    pub(crate) fn is_written(&self, identity: (Device, u64)) -> bool {
        locked(&self.written).contains(&identity)
    }
}
