//! Files that are complete and on the device, or absent.

use ioloom_failure::{Operation, PathError};
use ioloom_sys::dir::Dir;
use ioloom_sys::fault::{call, retry_on_interrupt};
use ioloom_sys::file::{self, Kind, OpenHow};
use ioloom_sys::make;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
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

/// Gives a file its final name unless that exists, and syncs the directory, which is that of both
/// names. Returns whether the name was free.
pub(crate) fn rename_new(from: &Path, to: &Path) -> Result<bool, PathError> {
    let was_free = take_name(from, to)?;
    if was_free {
        sync_dir(parent(to))?;
    }
    Ok(was_free)
}

/// Gives a file another name in its directory unless that exists. Returns whether the name was free. The directory must
/// be readable, because it is synced later.
pub(crate) fn take_name(from: &Path, to: &Path) -> Result<bool, PathError> {
    let dir = Dir::open(parent(to)).map_err(PathError::on(Operation::OpenDir, parent(to)))?;
    let renamed = last(from).and_then(|from| make::rename(&dir, &from, &dir, &last(to)?, false));
    match renamed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(PathError::new(Operation::Publish, to, error)),
    }
}

fn last(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.file_name().unwrap_or_default().as_bytes())?)
}

/// Syncs a directory.
pub(crate) fn sync_dir(path: &Path) -> Result<(), PathError> {
    let dir = File::open(path).map_err(PathError::on(Operation::OpenDir, path))?;
    call("sync-directory", || dir.sync_all()).map_err(PathError::on(Operation::Sync, path))
}

/// Reads a whole file. Anything but a regular file is refused unopened: a pipe without a writer would
/// wait for ever, and a device may have no end.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, PathError> {
    retry_on_interrupt(|| call("read-file", || read_regular(path)))
        .map_err(PathError::on(Operation::Read, path))
}

/// Reads the first `most` bytes of a file like [`read`]. Returns also its size.
pub(crate) fn read_beginning(path: &Path, most: u64) -> Result<(Vec<u8>, u64), PathError> {
    let read = || {
        let mut bytes = Vec::new();
        let file = open_regular(path)?;
        let size = file.metadata()?.len();
        file.take(most).read_to_end(&mut bytes)?;
        Ok((bytes, size))
    };
    retry_on_interrupt(|| call("read-file", read)).map_err(PathError::on(Operation::Read, path))
}

fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open_regular(path: &Path) -> io::Result<File> {
    let kind = match file::kind_of(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_symlink() => {
            let reason = "it is a symbolic link to a file that does not exist; remove the link";
            return Err(io::Error::other(reason));
        }
        kind => kind?,
    };
    if kind != Kind::Regular {
        return Err(io::Error::other(format!("it is {}, not a regular file", kind.word())));
    }
    Ok(File::from(file::open(path, OpenHow::default())?))
}

/// Returns the directory of a path; `.` for a name alone.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_opened_is_named_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let errors = [
            take_name(&gone.join("a"), &gone.join("b")).unwrap_err(),
            sync_dir(&gone).unwrap_err(),
        ];
        for error in errors {
            assert_eq!((error.operation, error.path), (Operation::OpenDir, gone.clone()));
        }
    }
}
