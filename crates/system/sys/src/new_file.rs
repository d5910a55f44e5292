//! Files that get their names only when they are complete. What is not a file, such as `/dev/stdout`, is written as
//! it is: root could replace a device.

use crate::attr::XattrOf;
use crate::dir::Dir;
use crate::fault::call;
use crate::file::retry;
use crate::make::random_number;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Seek};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Length of the part of the final name that the temporary name contains, in bytes.
const NAME_PART_MAX: usize = 200;

/// Time between two attempts to open a pipe without a reader.
const RETRY: Duration = Duration::from_millis(20);

/// A file that is open for its contents and has no name yet.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    part: Option<Part>,
}

/// A temporary file, removed on drop unless it gets its name.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    target: PathBuf,
}

impl Part {
    fn rename(&self) -> io::Result<()> {
        std::fs::rename(&self.path, &self.target)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The rename has removed this name.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl NewFile {
    /// Opens a temporary file in the directory of `path`, or the pipe, device or descriptor that `path` names. An
    /// existing file is unchanged until [`NewFile::finish`].
    ///
    /// # Errors
    ///
    /// Returns the system error; EISDIR if `path` is a directory.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_unless(path, &|| false)
    }

    /// Like [`NewFile::create`], but waits for the reader of a named pipe only until `is_cancelled` returns true.
    ///
    /// # Errors
    ///
    /// Also returns [`io::ErrorKind::Interrupted`] if it was cancelled.
    pub fn create_unless(path: &Path, is_cancelled: &dyn Fn() -> bool) -> io::Result<Self> {
        let opened = |file| Self { file, part: None };
        let there = std::fs::metadata(path).ok();
        if let Some(stream) = there.as_ref().and_then(stream_of) {
            return Ok(opened(stream));
        }
        if is_open_descriptor(path) {
            return OpenOptions::new().append(true).open(path).map(opened);
        }
        if there.as_ref().is_some_and(|there| there.file_type().is_fifo()) {
            return open_pipe(path, is_cancelled).map(opened);
        }
        // Also what has no other path, such as the target of a link to no file.
        let target = std::fs::canonicalize(path).ok();
        let is_special = there.as_ref().is_some_and(|there| !there.is_file());
        let is_link = path.symlink_metadata().is_ok_and(|there| there.is_symlink());
        if is_special || is_link && target.is_none() {
            return OpenOptions::new().write(true).create(!is_special).open(path).map(opened);
        }
        // A link stays, and the file to which it leads is replaced.
        let target = target.unwrap_or_else(|| path.to_owned());
        let there = there.as_ref();
        let path = part_of(&target).ok_or(io::ErrorKind::NotFound)?;
        let mut options = OpenOptions::new();
        // It is read if it must be written again.
        options.read(true).write(true).create_new(true).mode(mode_of(there));
        let file = call("new-file", || options.open(&path))?;
        let part = Part { path, target };
        if let Some(there) = there {
            let above = Dir::open_path_only(part.target.parent().unwrap_or(Path::new("/")))?;
            let name = CString::new(part.target.file_name().unwrap_or_default().as_bytes())?;
            // It can be closed to this user for reading.
            take_over(&file, there, XattrOf::Name(&above, &name))?;
        }
        Ok(Self { file, part: Some(part) })
    }

    /// Returns the open file, to which the contents are written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns whether the contents go to a temporary file, which others can see in the directory.
    pub fn is_temporary(&self) -> bool {
        self.part.is_some()
    }

    /// Makes the contents durable. Pipes and devices are left as they are.
    ///
    /// # Errors
    ///
    /// Returns the system error.
    pub fn sync(&self) -> io::Result<()> {
        if self.part.is_some() { self.file.sync_all() } else { Ok(()) }
    }

    /// Gives the file its name. If the temporary file was removed, such as with its directory, the contents are
    /// written again, and missing directories are created.
    ///
    /// # Errors
    ///
    /// Returns the system error. A file of that name is then unchanged.
    pub fn finish(self) -> io::Result<()> {
        let Some(part) = &self.part else { return Ok(()) };
        match part.rename() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let written = self.write_again(&part.target);
                self.remove_moved();
                written
            }
            renamed => renamed,
        }
    }

    /// Removes the temporary name, which can be in a directory that was renamed.
    fn remove_moved(&self) {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let Ok(path) = std::fs::read_link(own) else { return };
        let id = |there: Metadata| (there.dev(), there.ino());
        let found = path.symlink_metadata().map(id).ok();
        // A removed file has a path with a suffix, which can be that of another one.
        if found.is_some() && found == self.file.metadata().map(id).ok() {
            let _ = std::fs::remove_file(&path);
        }
    }

    /// Copies the contents of a file that has lost its temporary name to a new one.
    fn write_again(&self, target: &Path) -> io::Result<()> {
        if let Some(above) = target.parent() {
            std::fs::create_dir_all(above)?;
        }
        let replaces = target.exists();
        let again = Self::create(target)?;
        if !replaces && again.part.is_some() {
            // Those of a file that was to be replaced.
            again.file.set_permissions(Permissions::from_mode(0o600))?;
            take_over(&again.file, &self.file.metadata()?, XattrOf::Open(self.file.as_fd()))?;
        }
        let mut from = &self.file;
        from.rewind()?;
        io::copy(&mut from, &mut again.file())?;
        let Some(part) = &again.part else { return Ok(()) };
        again.sync()?;
        part.rename()
    }
}

/// Opens a named pipe as soon as it has a reader. A signal with a handler would not end the wait of `open`.
fn open_pipe(path: &Path, is_cancelled: &dyn Fn() -> bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    loop {
        match options.open(path) {
            Err(e) if e.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {}
            Err(e) => return Err(e),
            Ok(file) => {
                let flags = retry("fcntl", || fcntl_getfl(&file))? - OFlags::NONBLOCK;
                retry("fcntl", || fcntl_setfl(&file, flags))?;
                return Ok(file);
            }
        }
        if is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        std::thread::sleep(RETRY);
    }
}

/// Returns whether a path names a descriptor that is open, such as `/dev/fd/3`. Its file belongs to whatever
/// opened it, and is written to its end instead of being replaced.
fn is_open_descriptor(path: &Path) -> bool {
    let above = path.parent().and_then(|above| std::fs::canonicalize(above).ok());
    above.is_some_and(|above| above.starts_with("/proc") && above.ends_with("fd"))
}

/// Returns an unused path in the directory of `target`; `None` if the target has no name. It is hidden from
/// commands that read all files of the directory.
fn part_of(target: &Path) -> Option<PathBuf> {
    let name = target.file_name()?.as_bytes();
    let mut end = name.len().min(NAME_PART_MAX);
    // Some file systems refuse a part of a character.
    while end > NAME_PART_MAX - 4 && name.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    let mut part = OsString::from(".");
    part.push(OsStr::from_bytes(&name[..end]));
    // Another machine or container can have the same process number.
    part.push(format!(".{}.{:016x}.part", std::process::id(), random_number()));
    Some(target.with_file_name(part))
}

/// Returns the mode with which a file is made that takes the place of one.
fn mode_of(there: Option<&Metadata>) -> u32 {
    if there.is_some() { 0o600 } else { 0o666 }
}

/// The access control list of a file.
const ACL: &CStr = c"system.posix_acl_access";

/// Gives a new file the owner and the permissions of `old`, which it replaces, as far as permitted: it is never
/// open to more users. File systems that refuse a change have permissions of their own.
fn take_over(file: &File, there: &Metadata, old: XattrOf<'_>) -> io::Result<()> {
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
fn take_over_acl(file: &File, old: XattrOf<'_>) -> io::Result<bool> {
    let new = XattrOf::Open(file.as_fd());
    match old.get(ACL) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_that_is_not_finished_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "old").unwrap();
        drop(NewFile::create(&path).unwrap());
        let new = NewFile::create(&path).unwrap();
        assert!(
            new.is_temporary() && !NewFile::create(Path::new("/dev/null")).unwrap().is_temporary()
        );
        new.file().write_all(b"new").unwrap();
        new.sync().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        new.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(NewFile::create(&dir.path().join("missing/file")).is_err());
        assert!(NewFile::create(Path::new("")).is_err());
    }

    #[test]
    fn a_file_whose_directory_was_removed_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("target/docs");
        let path = above.join("file");
        std::fs::create_dir_all(&above).unwrap();
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let new = NewFile::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let part = std::fs::read_dir(&above).unwrap().next().unwrap().unwrap();
        assert!(part.file_name().as_bytes().starts_with(b".file."), "{part:?}");
        new.file().write_all(b"new").unwrap();
        std::fs::remove_dir_all(above.parent().unwrap()).unwrap();
        std::fs::create_dir(above.parent().unwrap()).unwrap();
        new.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&above).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_was_renamed_keeps_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let (above, moved) = (dir.path().join("out"), dir.path().join("moved"));
        std::fs::create_dir(&above).unwrap();
        let new = NewFile::create(&above.join("file")).unwrap();
        new.file().write_all(b"new").unwrap();
        std::fs::rename(&above, &moved).unwrap();
        new.finish().unwrap();
        assert_eq!(std::fs::read(above.join("file")).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(&moved).unwrap().count(), 0);
    }
}
