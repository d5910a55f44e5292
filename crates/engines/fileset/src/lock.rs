//! Locks the directory of a set while it is created, used, verified or removed.
//!
//! A second study on the same files would evict them from the page cache and compete for the
//! device. Creating a set again would truncate files that another process is reading. The lock is
//! released when the process exits for any reason. On file systems without lock support, it offers
//! no protection.

use crate::error::{SetError, io_error};
use ioloom_failure::Operation;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// A lock on a set, released when dropped.
#[derive(Debug)]
pub struct SetLock {
    file: File,
    dir: PathBuf,
}

impl SetLock {
    /// Returns the directory as it was given to [`lock`].
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for SetLock {
    /// Unlocks explicitly because a child process that is being spawned might share the descriptor.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Locks the set in `dir` until the value is dropped.
///
/// # Errors
/// Returns [`SetError::Busy`] if another process holds the lock, or the error from opening the
/// directory.
pub fn lock(dir: &Path) -> Result<SetLock, SetError> {
    locked_by(dir, File::try_lock)
}

/// Like [`lock`], but several processes can hold such a lock at the same time. Needs no write
/// permission.
pub(crate) fn lock_shared(dir: &Path) -> Result<SetLock, SetError> {
    locked_by(dir, File::try_lock_shared)
}

fn locked_by(
    dir: &Path,
    try_lock: impl FnOnce(&File) -> Result<(), TryLockError>,
) -> Result<SetLock, SetError> {
    let file = File::open(dir).map_err(io_error(Operation::OpenDir, dir))?;
    match try_lock(&file) {
        Ok(()) | Err(TryLockError::Error(_)) => Ok(SetLock { file, dir: dir.to_owned() }),
        Err(TryLockError::WouldBlock) => Err(SetError::Busy { dir: dir.to_owned() }),
    }
}
