//! Creates and removes directory entries: files that are named once complete, links, pipes,
//! devices.
//!
//! Names are resolved below an open directory, and a symbolic link in the last component is never
//! followed. Each operation costs one call.

use crate::dir::{Dir, Kind};
use crate::fault::call;
use crate::file::retry;
use crate::open_at::open_and_wait;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const NEW: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

fn mode_of(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

/// Creates the file `name`, which must not exist, for writing. The process umask applies.
#[inline]
pub fn file(dir: &Dir, name: &CStr, mode: u32) -> io::Result<OwnedFd> {
    let flags = NEW | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    retry("create", || rustix::fs::openat(dir, name, flags, mode_of(mode)))
}

/// Creates the file at `path`, which must not exist, for reading and writing by its owner only,
/// unless the umask is stricter. A symbolic link is not followed.
pub fn private_file(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = NEW | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    retry("create", || rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))
}

/// Opens the file at `path` for reading and writing, or creates it like [`private_file`].
pub fn open_or_private_file(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = NEW | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    retry("open", || rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))
}

/// Opens the file at `path` for reading and writing, or creates it for all users that the umask allows. A
/// symbolic link is not followed.
pub fn open_or_shared_file(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = NEW | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    retry("open", || rustix::fs::open(path, flags, mode_of(0o666)))
}

/// Opens the existing regular file `name` for writing, to continue an earlier copy.
pub fn open_to_resume(dir: &Dir, name: &CStr) -> io::Result<OwnedFd> {
    let flags = NEW | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    retry("openat", || rustix::fs::openat(dir, name, flags, Mode::empty()))
}

/// Creates an unnamed file in a directory (`O_TMPFILE`), which disappears unless [`link_unnamed`]
/// gives it a name. Not every file system supports it.
#[inline]
pub fn unnamed_file(dir: &Dir, mode: u32) -> io::Result<OwnedFd> {
    retry("tmpfile", || rustix::fs::openat(dir, c".", NEW | OFlags::TMPFILE, mode_of(mode)))
}

/// Reports whether an error of [`unnamed_file`] means that the file system may not support it. A named file then
/// shows the cause: ext4 returns `EPERM` also for a directory that was removed, and `/proc/sys` checks permissions
/// before it finds that no file can be created there.
pub fn is_tmpfile_unsupported(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::OPNOTSUPP
                | Errno::ISDIR
                | Errno::INVAL
                | Errno::NOENT
                | Errno::PERM
                | Errno::ACCESS
                | Errno::ROFS
        )
    )
}

/// Gives an unnamed file the name `name`, which must not exist.
#[inline]
pub fn link_unnamed(file: impl AsFd, dir: &Dir, name: &CStr) -> io::Result<()> {
    let path = proc_path(&file);
    let by_path = retry("linkat", || {
        rustix::fs::linkat(CWD, path.as_c_str(), dir, name, AtFlags::SYMLINK_FOLLOW)
    });
    match by_path {
        // Without /proc; requires privileges on older kernels.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            retry("linkat", || rustix::fs::linkat(&file, c"", dir, name, AtFlags::EMPTY_PATH))
        }
        result => result,
    }
}

/// Reopens a file for reading through its descriptor. The new descriptor has its own flags
/// (`direct`: bypass the page cache).
pub fn open_again(file: impl AsFd, direct: bool) -> io::Result<OwnedFd> {
    again_with(file, OFlags::RDONLY, direct)
}

fn again_with(file: impl AsFd, mut flags: OFlags, direct: bool) -> io::Result<OwnedFd> {
    flags |= OFlags::CLOEXEC | OFlags::NONBLOCK;
    flags.set(OFlags::DIRECT, direct);
    let path = proc_path(&file);
    retry("open", || rustix::fs::open(path.as_c_str(), flags, Mode::empty()))
}

fn proc_path(file: impl AsFd) -> CString {
    let text = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    CString::new(text).expect("digits cannot contain a zero byte")
}

/// Creates the directory `name`, which must not exist. The process umask applies.
pub fn directory(dir: &Dir, name: &CStr, mode: u32) -> io::Result<()> {
    retry("mkdirat", || rustix::fs::mkdirat(dir, name, mode_of(mode)))
}

/// Opens the existing file `name` for writing, following symbolic links, to overwrite it in place.
/// Never blocks on a pipe: without a reader the error is `ENXIO`. With `truncate` the old content
/// is lost.
pub fn open_in_place(dir: &Dir, name: &CStr, truncate: bool) -> io::Result<OwnedFd> {
    let mut flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    flags.set(OFlags::TRUNC, truncate);
    open_and_wait(dir, name, flags)
}

/// Creates the file to which the dangling symbolic link `name` leads, or empties it if it exists by now.
pub fn file_through(dir: &Dir, name: &CStr, mode: u32) -> io::Result<OwnedFd> {
    let access = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let flags = access | OFlags::CREATE | OFlags::TRUNC;
    retry("create", || rustix::fs::openat(dir, name, flags, mode_of(mode)))
}

/// Creates a hard link `new` to the file `name` in `from`; a symbolic link is not followed.
pub fn link(from: &Dir, name: &CStr, to: &Dir, new: &CStr) -> io::Result<()> {
    retry("linkat", || rustix::fs::linkat(from, name, to, new, AtFlags::empty()))
}

/// Creates a hard link `new` to the file that `name` leads to.
pub fn link_followed(from: &Dir, name: &CStr, to: &Dir, new: &CStr) -> io::Result<()> {
    retry("linkat", || rustix::fs::linkat(from, name, to, new, AtFlags::SYMLINK_FOLLOW))
}

/// Creates a symbolic link `name` to `target`.
pub fn symlink(target: &CStr, dir: &Dir, name: &CStr) -> io::Result<()> {
    retry("symlinkat", || rustix::fs::symlinkat(target, dir, name))
}

/// Returns the target of the symbolic link `name`.
pub fn read_link(dir: &Dir, name: &CStr) -> io::Result<CString> {
    retry("readlinkat", || rustix::fs::readlinkat(dir, name, Vec::new()))
}

/// Creates a pipe, socket or device `name`; devices require privilege.
pub fn node(dir: &Dir, name: &CStr, kind: Kind, mode: u32, rdev: (u32, u32)) -> io::Result<()> {
    let kind = match kind {
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let device = rustix::fs::makedev(rdev.0, rdev.1);
    retry("mknodat", || rustix::fs::mknodat(dir, name, kind, mode_of(mode), device))
}

/// Renames within one file system. Replaces an existing `new` only if `replace` is set; otherwise
/// an existing `new` is an error.
pub fn rename(from: &Dir, name: &CStr, to: &Dir, new: &CStr, replace: bool) -> io::Result<()> {
    if replace {
        return retry("renameat", || rustix::fs::renameat(from, name, to, new));
    }
    let flags = RenameFlags::NOREPLACE;
    let renamed = retry("renameat", || rustix::fs::renameat_with(from, name, to, new, flags));
    match renamed {
        // The file system lacks RENAME_NOREPLACE: link the new name, which must not exist, then
        // remove the old one.
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::INVAL | Errno::NOSYS)) => {
            match link(from, name, to, new) {
                // The new name is there, even if another program removed the old one.
                Ok(()) => match remove(from, name) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                    removed => removed,
                },
                // Directories, or files of this file system, cannot be linked: check, then rename,
                // with a race in between.
                Err(e) if lacks_links(&e) => match crate::attr::of_name(to, new, false) {
                    Ok(_) => Err(Errno::EXIST.into()),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        retry("renameat", || rustix::fs::renameat(from, name, to, new))
                    }
                    Err(e) => Err(e),
                },
                Err(e) => Err(e),
            }
        }
        result => result,
    }
}

/// Exchanges two names, which must exist, at one moment.
pub fn exchange(from: &Dir, name: &CStr, to: &Dir, other: &CStr) -> io::Result<()> {
    let flags = RenameFlags::EXCHANGE;
    retry("renameat", || rustix::fs::renameat_with(from, name, to, other, flags))
}

/// Reports whether an error of [`exchange`] means that the file system does not support it.
pub fn is_exchange_unsupported(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}

/// Returns whether an error of [`link`] means that it cannot succeed.
fn lacks_links(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK))
}

/// Removes a name that is not a directory.
pub fn remove(dir: &Dir, name: &CStr) -> io::Result<()> {
    retry("unlinkat", || rustix::fs::unlinkat(dir, name, AtFlags::empty()))
}

/// Removes an empty directory.
pub fn remove_directory(dir: &Dir, name: &CStr) -> io::Result<()> {
    retry("unlinkat", || rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR))
}

/// Removes a directory with its contents; it is not an error if the directory does not exist.
pub fn remove_tree(path: &std::path::Path) -> io::Result<()> {
    match call("remove-tree", || std::fs::remove_dir_all(path)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Tries to lock an open file or directory exclusively; returns false if another process holds the
/// lock. The lock is released when the last descriptor is closed.
pub fn try_lock(file: impl AsFd) -> io::Result<bool> {
    try_flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
}

/// Like [`try_lock`], but the lock can be shared with others that also share it.
pub fn try_lock_shared(file: impl AsFd) -> io::Result<bool> {
    try_flock(file, rustix::fs::FlockOperation::NonBlockingLockShared)
}

fn try_flock(file: impl AsFd, operation: rustix::fs::FlockOperation) -> io::Result<bool> {
    match call("flock", || Ok(rustix::fs::flock(&file, operation)?)) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns a random number for unguessable names.
pub fn random_number() -> u64 {
    let mut bytes = [0u8; 8];
    let got = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    if got.is_ok_and(|n| n == bytes.len()) {
        u64::from_ne_bytes(bytes)
    } else {
        // If the name exists, the caller retries with another one, so a clock is sufficient.
        crate::clock::monotonic_ns() ^ u64::from(std::process::id()).rotate_left(40)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_gets_its_name_last_and_replaces_nothing() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        match unnamed_file(&dir, 0o600) {
            Err(e) if is_tmpfile_unsupported(&e) => println!("skipped: O_TMPFILE is not supported"),
            made => {
                let mut made = std::fs::File::from(made.unwrap());
                made.write_all(b"bytes").unwrap();
                assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
                link_unnamed(&made, &dir, c"whole").unwrap();
                assert_eq!(std::fs::read(temp.path().join("whole")).unwrap(), b"bytes");
                let taken = link_unnamed(&made, &dir, c"whole").unwrap_err();
                assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
            }
        }
        drop(file(&dir, c"a", 0o600).unwrap());
        drop(file(&dir, c"b", 0o600).unwrap());
        let taken = rename(&dir, c"a", &dir, c"b", false).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        rename(&dir, c"a", &dir, c"b", true).unwrap();
        rename(&dir, c"b", &dir, c"c", false).unwrap();
        assert_eq!(file(&dir, c"c", 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn links_and_nodes() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        symlink(c"far/away", &dir, c"link").unwrap();
        assert_eq!(read_link(&dir, c"link").unwrap().as_c_str(), c"far/away");
        node(&dir, c"pipe", Kind::Fifo, 0o600, (0, 0)).unwrap();
        link(&dir, c"pipe", &dir, c"pipe2").unwrap();
        let found = crate::attr::of_name(&dir, c"pipe2", false).unwrap();
        assert_eq!((found.kind, found.links), (Kind::Fifo, 2));
        remove(&dir, c"pipe2").unwrap();
        let held = Dir::open(temp.path()).unwrap();
        assert!(try_lock(&dir).unwrap());
        assert!(!try_lock(&held).unwrap());
    }
}
