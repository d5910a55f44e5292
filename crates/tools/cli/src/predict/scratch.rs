//! The directories of a calibration, which a signal or the next calibration removes.
//!
//! A directory is locked while it is used. One without a lock is what a killed calibration left, if it has
//! the name and the marker that a calibration gives, and belongs to the same user.

use crate::exit::Failure;
use crate::interrupt::StopSignals;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::make::try_lock;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// How all names begin; what it is for and the number of the process follow.
const PREFIX: &str = "ioloom-predict-";
/// What directories are for.
const USES: [&str; 2] = ["files", "server"];
/// A file in each directory that shows who created it.
const MARKER: &str = "created-by-ioloom-predict";

/// A directory that is removed on drop.
pub(super) struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = remove(&self.path);
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
        // From here on, a failure removes it.
        let scratch = Self { path, _lock: lock };
        let marker = scratch.path.join(MARKER);
        std::fs::write(&marker, "")
            .map_err(|e| Failure::failed(PathError::new(Operation::Write, marker, e)))?;
        Ok(scratch)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the directories of killed calibrations: those without a lock.
fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_name) && is_ours(&entry.path()) {
            let stale = File::open(entry.path());
            if stale.is_ok_and(|stale| try_lock(&stale).unwrap_or(false)) {
                let _ = remove(&entry.path());
            }
        }
    }
}

/// Removes a directory, its marker last: the next calibration finds what an interrupted removal leaves.
fn remove(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() == MARKER {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    std::fs::remove_dir_all(dir)
}

/// Reports whether [`Scratch::create`] gives such a name.
fn is_name(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    rest.is_some_and(|(what, process)| {
        let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
        USES.contains(&what) && is_number
    })
}

/// Reports whether a directory has the marker, and both belong to this user.
fn is_ours(path: &Path) -> bool {
    let (user, _) = ioloom_sys::attr::own_ids();
    let belongs = |path: &Path, is_dir: bool| {
        std::fs::symlink_metadata(path)
            .is_ok_and(|found| found.is_dir() == is_dir && found.uid() == user)
    };
    belongs(path, true) && belongs(&path.join(MARKER), false)
}

/// Fails after a signal.
pub(super) fn proceed(signals: &StopSignals) -> Result<(), Failure> {
    match signals.flag.load(Ordering::Relaxed) {
        true => Err(Failure::new(
            signals.exit(),
            "the calibration was interrupted; what it created is removed, and nothing is saved",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_killed_calibrations_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, marked: bool| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            if marked {
                std::fs::write(dir.path().join(name).join(MARKER), "").unwrap();
            }
        };
        // No process has so large a number.
        let kept = ["files-99999999", "backup-1", "files-", "files-1a", "server-1-2", "notes"];
        for name in kept {
            make(&format!("{PREFIX}{name}"), name != kept[0]);
        }
        make(&format!("{PREFIX}server-34"), true);
        let used = Scratch::create(dir.path(), "files").unwrap();
        let left = || std::fs::read_dir(dir.path()).unwrap().count();
        assert!(!dir.path().join(format!("{PREFIX}server-34")).exists());
        assert_eq!(left(), kept.len() + 1);
        sweep(dir.path());
        assert!(used.path().exists(), "it is locked");
        drop(used);
        assert_eq!(left(), kept.len());
    }

    #[test]
    fn a_directory_that_cannot_be_removed_keeps_its_marker() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(dir.path(), "files").unwrap();
        let (path, closed) = (scratch.path().to_owned(), scratch.path().join("closed"));
        std::fs::create_dir(&closed).unwrap();
        std::fs::write(closed.join("file"), "").unwrap();
        let mode = |mode| std::fs::set_permissions(&closed, PermissionsExt::from_mode(mode));
        mode(0o500).unwrap();
        // A privileged user can remove it.
        let failed = remove(&path).is_err();
        assert_eq!((path.exists(), path.join(MARKER).exists()), (failed, failed));
        if failed {
            mode(0o700).unwrap();
        }
        drop(scratch);
        assert!(!path.exists());
    }
}
