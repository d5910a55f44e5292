//! The directories of a calibration, which a signal or the next calibration removes.
//!
//! A directory is locked while it is used. One without a lock is what a killed calibration left.

use crate::exit::Failure;
use crate::interrupt::StopSignals;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::make::try_lock;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// How all names begin; the number of the process follows.
const PREFIX: &str = "ioloom-predict-";

/// A directory that is removed on drop.
pub(super) struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Scratch {
    /// Creates a directory in `dir`, and removes those that killed calibrations left there.
    pub(super) fn create(dir: &Path, what: &str) -> Result<Self, Failure> {
        sweep(dir);
        let path = dir.join(format!("{PREFIX}{what}-{}", std::process::id()));
        let fail = |operation| {
            let path = path.clone();
            move |e| Failure::failed(PathError::new(operation, path, e))
        };
        std::fs::create_dir(&path).map_err(fail(Operation::CreateDir))?;
        let lock = File::open(&path).map_err(fail(Operation::OpenDir))?;
        // Without support for locks, no other calibration can lock and remove it either.
        let _ = try_lock(&lock);
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the directories without a lock.
fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_one = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_one && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let stale = File::open(entry.path());
            if stale.is_ok_and(|stale| try_lock(&stale).unwrap_or(false)) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Fails after a signal.
pub(super) fn proceed(signals: &StopSignals) -> Result<(), Failure> {
    match signals.flag.load(Ordering::Relaxed) {
        true => Err(Failure::new(
            signals.exit(),
            "the calibration was interrupted; its files are removed, and nothing is saved",
        )),
        false => Ok(()),
    }
}
