//! One at a time: who makes, uses or removes a set holds its directory.
//!
//! A second study on the same files would push them out of memory and take the device, and whoever
//! makes a set anew cuts the files that somebody else reads. So the directory is locked, and whoever
//! finds it locked is told. The lock ends with the process, whatever ends it. A file system that has no
//! locks holds nobody off.

use crate::SetError;
use crate::error::io_error;
use std::fs::{File, TryLockError};
use std::path::Path;

/// A set that is held; dropping it lets it go.
#[derive(Debug)]
pub struct SetLock(File);

impl Drop for SetLock {
    /// By hand: a process that was just being started elsewhere may share the open file for a moment.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Holds the set in `dir` until the value is dropped.
///
/// # Errors
/// [`SetError::Busy`] while another process holds it; the directory cannot be opened.
pub fn lock(dir: &Path) -> Result<SetLock, SetError> {
    let file = File::open(dir).map_err(io_error("open directory", dir))?;
    match file.try_lock() {
        Ok(()) | Err(TryLockError::Error(_)) => Ok(SetLock(file)),
        Err(TryLockError::WouldBlock) => Err(SetError::Busy { dir: dir.to_owned() }),
    }
}
