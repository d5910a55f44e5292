//! Atomic file creation: a file gets its name only when it is complete. What is not a file, such as
//! `/dev/stdout`, is written as it is: root could replace a device.

use crate::exit::Failure;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::make::random_number;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Writes `bytes` to `path`, creating missing parent directories.
///
/// # Errors
/// A directory or the file cannot be written; the old file, if any, is unchanged.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)
            .map_err(PathError::on(Operation::CreateDir, parent))
            .map_err(Failure::failed)?;
    }
    write_with(path, |out| out.write_all(bytes.as_ref()))
}

/// Writes the output of `fill` to `path` through a temporary file in the same directory.
///
/// # Errors
/// The file cannot be written; the old file, if any, is unchanged.
pub(crate) fn write_with(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let failed = |error| Failure::failed(PathError::new(Operation::Write, path, error));
    let there = std::fs::metadata(path).ok();
    if let Some(stream) = there.as_ref().and_then(stream_of) {
        return fill_with(stream, fill).map_err(failed);
    }
    // Also what has no other path, such as the target of /dev/fd/3 or of a link to no file.
    let target = std::fs::canonicalize(path).ok();
    let is_special = there.as_ref().is_some_and(|there| !there.is_file());
    let is_link = path.symlink_metadata().is_ok_and(|there| there.is_symlink());
    if is_special || is_link && target.is_none() {
        let opened = OpenOptions::new().write(true).create(!is_special).open(path);
        return opened.and_then(|opened| fill_with(opened, fill)).map_err(failed);
    }
    // A link stays, and the file to which it leads is replaced.
    let target = target.unwrap_or_else(|| path.to_owned());
    let there = there.as_ref();
    let mut part = target.as_os_str().to_owned();
    // Another machine or container can have the same process number.
    part.push(format!(".{}.{:016x}.part", std::process::id(), random_number()));
    let part = PathBuf::from(part);
    let created = OpenOptions::new().write(true).create_new(true).mode(mode_of(there)).open(&part);
    let written = created
        .and_then(|created| {
            if let Some(there) = there {
                take_over(&created, there)?;
            }
            fill_with(created, fill)
        })
        .and_then(|()| std::fs::rename(&part, &target));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        failed(error)
    })
}

/// Returns the mode with which a file is made that takes the place of one.
fn mode_of(there: Option<&Metadata>) -> u32 {
    if there.is_some() { 0o600 } else { 0o666 }
}

/// Gives a new file the owner and the permissions of the one that it replaces, as far as permitted: it is
/// never open to more users.
fn take_over(file: &File, there: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    let is_same = (own.uid(), own.gid()) == (there.uid(), there.gid());
    let given =
        is_same || std::os::unix::fs::fchown(file, Some(there.uid()), Some(there.gid())).is_ok();
    let bits = if given { 0o777 } else { 0o700 };
    file.set_permissions(Permissions::from_mode(there.mode() & bits))
}

/// Returns standard output or standard error if that is the file: renaming another one onto it would take away
/// what it contains, and what is written to it later.
fn stream_of(there: &Metadata) -> Option<File> {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    [stdout.as_fd(), stderr.as_fd()].into_iter().find_map(|stream| {
        let stream = stream.try_clone_to_owned().map(File::from).ok()?;
        let open = stream.metadata().ok()?;
        let is_same = (open.dev(), open.ino()) == (there.dev(), there.ino());
        is_same.then_some(stream)
    })
}

fn fill_with(file: File, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/report");
        write(&path, "old").unwrap();
        let failed = write_with(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("stopped"))
        });
        assert!(failed.unwrap_err().message.ends_with("stopped"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_keeps_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private");
        write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        write(&path, "new").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn links_and_pipes_stay_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        write(&at("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        write(&at("link"), "new").unwrap();
        assert!(at("link").is_symlink());
        assert_eq!(std::fs::read(at("file")).unwrap(), b"new");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        let pipe = at("pipe");
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        write(&at("pipe"), "through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(!std::fs::metadata(at("pipe")).unwrap().is_file());
        let refused = write(dir.path(), "onto a directory").unwrap_err();
        assert!(refused.message.ends_with("Is a directory"), "{}", refused.message);
    }
}
