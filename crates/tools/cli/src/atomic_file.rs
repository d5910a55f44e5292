//! Atomic file creation: a file gets its name only when it is complete. What is not a file, such as
//! `/dev/stdout`, is written as it is: root could replace a device.

use crate::exit::Failure;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::attr::XattrOf;
use ioloom_sys::dir::Dir;
use ioloom_sys::make::random_number;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Length of the part of the final name that the temporary name contains, in bytes.
const NAME_PART_MAX: usize = 200;

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
    begin(path)?.finish(fill)
}

/// A file that is open for its contents and has no name yet.
pub(crate) struct Begun {
    file: File,
    /// For errors.
    path: PathBuf,
    part: Option<Part>,
}

/// A temporary file, removed on drop unless it gets its name.
struct Part {
    path: PathBuf,
    target: PathBuf,
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens a file for contents that exist later, so that a path that cannot be written is an error before
/// the work. An existing file is unchanged until [`Begun::finish`].
///
/// # Errors
/// The file cannot be written.
pub(crate) fn begin(path: &Path) -> Result<Begun, Failure> {
    let opened =
        open(path).map_err(|error| Failure::failed(PathError::new(Operation::Write, path, error)));
    opened.map(|(file, part)| Begun { file, path: path.to_owned(), part })
}

impl Begun {
    /// Writes the output of `fill` and gives the file its name.
    ///
    /// # Errors
    /// The file cannot be written; the old file, if any, is unchanged.
    pub(crate) fn finish(
        self,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let written = fill_with(self.file, fill).and_then(|()| match &self.part {
            Some(part) => std::fs::rename(&part.path, &part.target),
            None => Ok(()),
        });
        written
            .map_err(|error| Failure::failed(PathError::new(Operation::Write, &self.path, error)))
    }
}

fn open(path: &Path) -> io::Result<(File, Option<Part>)> {
    let there = std::fs::metadata(path).ok();
    if let Some(stream) = there.as_ref().and_then(stream_of) {
        return Ok((stream, None));
    }
    if is_open_descriptor(path) {
        return Ok((OpenOptions::new().append(true).open(path)?, None));
    }
    // Also what has no other path, such as the target of a link to no file.
    let target = std::fs::canonicalize(path).ok();
    let is_special = there.as_ref().is_some_and(|there| !there.is_file());
    let is_link = path.symlink_metadata().is_ok_and(|there| there.is_symlink());
    if is_special || is_link && target.is_none() {
        return Ok((OpenOptions::new().write(true).create(!is_special).open(path)?, None));
    }
    // A link stays, and the file to which it leads is replaced.
    let target = target.unwrap_or_else(|| path.to_owned());
    let there = there.as_ref();
    let path = part_of(&target);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode_of(there)).open(&path)?;
    let part = Part { path, target };
    if let Some(there) = there {
        take_over(&file, there, &part.target)?;
    }
    Ok((file, Some(part)))
}

/// Returns whether a path names a descriptor that is open, such as `/dev/fd/3`. Its file belongs to whatever
/// opened it, and is written to its end instead of being replaced.
fn is_open_descriptor(path: &Path) -> bool {
    let above = path.parent().and_then(|above| std::fs::canonicalize(above).ok());
    above.is_some_and(|above| above.starts_with("/proc") && above.ends_with("fd"))
}

/// Returns an unused path in the directory of `target`.
fn part_of(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().as_bytes();
    let mut end = name.len().min(NAME_PART_MAX);
    // Some file systems refuse a part of a character.
    while end > NAME_PART_MAX - 4 && name.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    let mut part = OsStr::from_bytes(&name[..end]).to_owned();
    // Another machine or container can have the same process number.
    part.push(format!(".{}.{:016x}.part", std::process::id(), random_number()));
    target.with_file_name(part)
}

/// Returns the mode with which a file is made that takes the place of one.
fn mode_of(there: Option<&Metadata>) -> u32 {
    if there.is_some() { 0o600 } else { 0o666 }
}

/// The access control list of a file.
const ACL: &CStr = c"system.posix_acl_access";

/// Gives a new file the owner and the permissions of `old`, which it replaces, as far as permitted: it is never
/// open to more users. File systems that refuse a change have permissions of their own.
fn take_over(file: &File, there: &Metadata, old: &Path) -> io::Result<()> {
    let own = file.metadata()?;
    let keeps_group = own.gid() == there.gid()
        || std::os::unix::fs::fchown(file, None, Some(there.gid())).is_ok();
    if own.uid() != there.uid() {
        let _ = std::os::unix::fs::fchown(file, Some(there.uid()), None);
    }
    let bits = match take_over_acl(file, old) {
        Ok(_) if keeps_group => 0o777,
        // The members of another group get what all others have.
        Ok(false) => 0o707 | (there.mode() & 0o007) << 3,
        _ => 0o700,
    };
    let _ = file.set_permissions(Permissions::from_mode(there.mode() & bits));
    Ok(())
}

/// Gives a file the access control list of `old`, or none if that has none. Returns whether it has one.
fn take_over_acl(file: &File, old: &Path) -> io::Result<bool> {
    let new = XattrOf::Open(file.as_fd());
    // It can be closed to this user for reading.
    let above = Dir::open_path_only(old.parent().unwrap_or(Path::new("/")))?;
    let name = CString::new(old.file_name().unwrap_or_default().as_bytes())?;
    match XattrOf::Name(&above, &name).get(ACL) {
        Ok(Some(list)) => new.set(ACL, &list).map(|()| true),
        Ok(None) => new.remove(ACL).map(|()| false),
        // The file system has no lists.
        Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(false),
        Err(e) => Err(e),
    }
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
    fn a_file_that_is_not_finished_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        write(&path, "old").unwrap();
        drop(begin(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let begun = begin(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        begun.finish(|out| out.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(begin(&dir.path().join("missing/history")).is_err());
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
    fn the_longest_name_and_an_open_descriptor_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("ü".repeat(127));
        write(&long, "text").unwrap();
        assert_eq!(std::fs::read(&long).unwrap(), b"text");
        let path = dir.path().join("open");
        let open = File::create(&path).unwrap();
        (&open).write_all(b"first, ").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        write(Path::new(&format!("/dev/fd/{number}")), "second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first, second");
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), open.metadata().unwrap().ino());
    }

    #[test]
    fn a_file_is_not_open_to_more_users_than_before() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("private");
        write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let acl = |path: &Path, flags: &[&str]| {
            let set = std::process::Command::new("setfacl").args(flags).arg(path).status();
            set.is_ok_and(|status| status.success())
        };
        if !acl(&path, &["-m", "u:65534:rw"]) {
            return crate::stderr::message("skipped: no setfacl, or no lists in this file system");
        }
        let listed = |path: &Path| {
            let got = std::process::Command::new("getfacl").arg("-cp").arg(path).output().unwrap();
            String::from_utf8(got.stdout).unwrap()
        };
        let before = listed(&path);
        write(&path, "new").unwrap();
        assert_eq!(listed(&path), before);
        // The list of the directory is not for a file that had none.
        assert!(acl(&path, &["-b"]) && acl(dir.path(), &["-d", "-m", "u:65534:rw"]));
        let before = listed(&path);
        write(&path, "newer").unwrap();
        assert_eq!(listed(&path), before);
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
