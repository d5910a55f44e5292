//! What all threads of one copy share.

use crate::data::Flow;
use crate::dirs::Place;
use crate::file::Way;
use crate::links::Links;
use crate::meta::Rules;
use crate::options::{CopyCounters, CopyOptions, Watcher};
use crate::plan::{Facts, Mode};
use crate::report::{HASHES_KEPT_MAX, Hashed};
use crate::resume::Resume;
use crate::verify::Verified;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A device, as (major, minor).
pub(crate) type Device = (u32, u32);

/// A pair of file systems and what is known of it.
pub(crate) struct Pairing {
    pub(crate) facts: Facts,
}

/// One copy, seen by all of its threads.
pub(crate) struct Run<'a> {
    pub(crate) options: &'a CopyOptions,
    pub(crate) watcher: &'a dyn Watcher,
    pub(crate) progress: &'a CopyCounters,
    pub(crate) rules: Rules,
    pub(crate) links: Links<Place>,
    /// Directories that this copy made or writes into: they are not copied themselves.
    pub(crate) written: Mutex<HashSet<(Device, u64)>>,
    pub(crate) verified: Verified,
    pub(crate) out_of_space: AtomicBool,
    /// With [`CopyOptions::resume`]: the record of this copy.
    pub(crate) resume: OnceLock<Resume>,
    pairings: Mutex<HashMap<(Device, Device), Arc<Pairing>>>,
    unshared: Mutex<HashSet<(Device, Device)>>,
    modes: [AtomicU64; Mode::ALL.len()],
    hashes: Mutex<Vec<Hashed>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Run<'a> {
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
            verified: Verified::default(),
            out_of_space: AtomicBool::new(false),
            resume: OnceLock::new(),
            pairings: Mutex::default(),
            unshared: Mutex::default(),
            modes: Default::default(),
            hashes: Mutex::default(),
        }
    }

    /// Whether the copy is to end: by the user, or because no space is left.
    pub(crate) fn ends(&self) -> bool {
        self.cancelled() || self.out_of_space.load(Ordering::Relaxed)
    }

    pub(crate) fn cancelled(&self) -> bool {
        self.options.cancel.load(Ordering::Relaxed)
    }

    /// What the bytes of one file flow past; `mine` counts them.
    pub(crate) fn flow<'f>(&'f self, mine: &'f AtomicU64) -> Flow<'f> {
        Flow { cancel: &self.options.cancel, all: &self.progress.bytes, mine }
    }

    /// What is known of a pair of devices; `gather` is called for the first file.
    pub(crate) fn pairing(
        &self,
        devices: (Device, Device),
        gather: impl FnOnce() -> io::Result<Facts>,
    ) -> io::Result<Arc<Pairing>> {
        let mut known = locked(&self.pairings);
        if let Some(pairing) = known.get(&devices) {
            return Ok(Arc::clone(pairing));
        }
        let mut facts = gather()?;
        if self.options.reflink != crate::When::Never && facts.same_file_system {
            // The plan comes after sharing was tried on this file, and failed.
            facts.reflink = Some(false);
        }
        let pairing = Arc::new(Pairing { facts });
        known.insert(devices, Arc::clone(&pairing));
        Ok(pairing)
    }

    pub(crate) fn facts(&self) -> Vec<Facts> {
        locked(&self.pairings).values().map(|pairing| pairing.facts.clone()).collect()
    }

    /// Whether it was tried before to share blocks between these devices, in vain.
    pub(crate) fn cannot_share(&self, devices: (Device, Device)) -> bool {
        devices.0 != devices.1 || locked(&self.unshared).contains(&devices)
    }

    pub(crate) fn no_sharing(&self, devices: (Device, Device)) {
        locked(&self.unshared).insert(devices);
    }

    /// The way that every file must go, if it is another one than that of small files.
    pub(crate) fn pinned_other_than_buffered(&self) -> Option<Mode> {
        let shares = self.options.reflink == crate::When::Always;
        let pinned = self.options.mode.or(shares.then_some(Mode::Reflink));
        pinned.filter(|mode| *mode != Mode::Buffered)
    }

    pub(crate) fn count_mode(&self, mode: Mode) {
        self.modes[mode as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Files by the way their bytes went.
    pub(crate) fn modes(&self) -> Vec<(Mode, u64)> {
        let counts =
            Mode::ALL.map(|mode| (mode, self.modes[mode as usize].load(Ordering::Relaxed)));
        counts.into_iter().filter(|(_, files)| *files > 0).collect()
    }

    pub(crate) fn hashed(&self, way: &Way<'_>, hash: String, bytes: u64) {
        let mut hashes = locked(&self.hashes);
        if hashes.len() < HASHES_KEPT_MAX {
            let (_, path) = (way.paths)();
            hashes.push(Hashed { path, bytes, hash });
        }
    }

    pub(crate) fn take_hashes(&self) -> Vec<Hashed> {
        let mut hashes = std::mem::take(&mut *locked(&self.hashes));
        hashes.sort_by(|a, b| a.path.cmp(&b.path));
        hashes
    }

    /// Remembers a directory that is written into.
    pub(crate) fn writes_into(&self, identity: (Device, u64)) {
        locked(&self.written).insert(identity);
    }

    pub(crate) fn is_written(&self, identity: (Device, u64)) -> bool {
        locked(&self.written).contains(&identity)
    }
}
