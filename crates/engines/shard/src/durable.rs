//! Files that are complete and on the device, or absent.

use ioloom_failure::{Operation, PathError};
use ioloom_sys::fault::{call, retry_on_interrupt};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Creates a file that must not exist, writes and syncs it.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> Result<(), PathError> {
    let mut file = call("create", || OpenOptions::new().write(true).create_new(true).open(path))
        .map_err(PathError::on(Operation::Create, path))?;
    call("write", || file.write_all(bytes))
        .and_then(|()| call("sync", || file.sync_all()))
        .map_err(PathError::on(Operation::Write, path))
}

/// Gives a file or directory its final name, and syncs the directory of that name.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), PathError> {
    call("rename", || std::fs::rename(from, to)).map_err(PathError::on(Operation::Publish, to))?;
    sync_dir(parent(to))
}

/// Syncs a directory.
pub(crate) fn sync_dir(path: &Path) -> Result<(), PathError> {
    call("sync-directory", || File::open(path)?.sync_all())
        .map_err(PathError::on(Operation::Sync, path))
}

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, PathError> {
    retry_on_interrupt(|| call("read-file", || std::fs::read(path)))
        .map_err(PathError::on(Operation::Read, path))
}

/// Returns the directory of a path; `.` for a name alone.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
