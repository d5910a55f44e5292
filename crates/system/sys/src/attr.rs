//! Reads and sets file metadata: owner, mode, times, extended attributes.
//!
//! Every call takes a descriptor or a name in an open directory and never follows a symbolic link
//! unless requested. Extended attributes of files that cannot be opened (links, pipes, devices) are
//! accessed through `/proc/self/fd` because Linux has no call for them by directory and name; so are
//! all attributes of files that were opened only as a path, where calls on the descriptor fail with
//! `EBADF`. Where `/proc` is not mounted, files and directories are opened for reading if permitted,
//! and a thread with its own working directory accesses others by name. Otherwise each function
//! costs one call; nothing is cached.

use crate::dir::{Dir, Kind};
use crate::file::retry;
use crate::open_at::open_to_read;
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, Statx, StatxAttributes, StatxFlags,
    Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, statx,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A timestamp: seconds since 1970, and nanoseconds.
pub type Time = (i64, u32);

/// Metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// File type.
    pub kind: Kind,
    /// Permission bits with set-uid, set-gid and sticky.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks_512: u64,
    /// Device of its file system.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Number of hard links.
    pub links: u32,
    /// The device that a device file represents.
    pub rdev: (u32, u32),
    /// Last access.
    pub accessed: Time,
    /// Last modification of the contents.
    pub modified: Time,
    /// Last change of the contents or metadata.
    pub changed: Time,
    /// Whether it is the root of a mount, such as a file that is bind-mounted.
    pub mount_root: bool,
    /// Whether data can only be appended to it; for a directory, whether entries can be added and
    /// neither renamed nor removed. Such a file cannot be renamed or removed either.
    pub append_only: bool,
    /// Whether it cannot be changed, renamed or removed.
    pub immutable: bool,
}

impl Attr {
    fn of(s: &Statx) -> Self {
        let has = |attributes| s.stx_attributes.contains(attributes);
        Self {
            kind: Kind::of(FileType::from_raw_mode(s.stx_mode.into())),
            mode: u32::from(s.stx_mode) & 0o7777,
            user: s.stx_uid,
            group: s.stx_gid,
            bytes: s.stx_size,
            blocks_512: s.stx_blocks,
            device: (s.stx_dev_major, s.stx_dev_minor),
            inode: s.stx_ino,
            links: s.stx_nlink,
            rdev: (s.stx_rdev_major, s.stx_rdev_minor),
            accessed: (s.stx_atime.tv_sec, s.stx_atime.tv_nsec),
            modified: (s.stx_mtime.tv_sec, s.stx_mtime.tv_nsec),
            changed: (s.stx_ctime.tv_sec, s.stx_ctime.tv_nsec),
            mount_root: has(StatxAttributes::MOUNT_ROOT),
            append_only: has(StatxAttributes::APPEND),
            immutable: has(StatxAttributes::IMMUTABLE),
        }
    }

    /// Returns device and inode, which identify the file.
    pub fn identity(&self) -> ((u32, u32), u64) {
        (self.device, self.inode)
    }

    /// Returns true if not even root can remove the file, or rename another one to its name.
    pub fn stays(&self) -> bool {
        self.append_only || self.immutable
    }

    /// Reports whether `self` and a `later` result for the same file show that its contents did not
    /// change in between.
    pub fn same_content(&self, later: &Self) -> bool {
        self.identity() == later.identity()
            && self.bytes == later.bytes
            && self.modified == later.modified
    }
}

/// Returns the metadata of an open file.
#[inline]
pub fn of_file(file: impl AsFd) -> io::Result<Attr> {
    let ask = || statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    retry("statx", ask).map(|s| Attr::of(&s))
}

/// Returns the metadata of a name in a directory.
#[inline]
pub fn of_name(dir: &Dir, name: &CStr, follow: bool) -> io::Result<Attr> {
    let ask = || statx(dir, name, flags(follow), StatxFlags::BASIC_STATS);
    retry("statx", ask).map(|s| Attr::of(&s))
}

/// Returns the metadata of an open file as the server or the program behind the file system has it now.
pub fn uncached_of_file(file: impl AsFd) -> io::Result<Attr> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let ask = || statx(&file, c"", flags, StatxFlags::BASIC_STATS);
    retry("statx", ask).map(|s| Attr::of(&s))
}

/// Returns true if this process may write to an existing file; a symbolic link is followed.
pub fn may_write(path: &Path) -> bool {
    let ask = || rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
    retry("faccessat", ask).is_ok()
}

/// Returns the metadata of a path.
pub fn of_path(path: &Path, follow: bool) -> io::Result<Attr> {
    let ask = || statx(CWD, path, flags(follow), StatxFlags::BASIC_STATS);
    retry("statx", ask).map(|s| Attr::of(&s))
}

fn flags(follow: bool) -> AtFlags {
    if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT }
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

fn owner_of(user: u32, group: u32) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))
}

fn timestamps(accessed: Time, modified: Time) -> Timestamps {
    let of = |time: Time| Timespec { tv_sec: time.0, tv_nsec: time.1.into() };
    Timestamps { last_access: of(accessed), last_modification: of(modified) }
}

/// The path under `/proc` of an open file.
fn proc_path(file: impl AsFd) -> CString {
    c_string(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into_bytes())
}

/// Repeats a call by path if the file was opened only as a path (`O_PATH`).
fn or_by_path<T: Send>(
    file: impl AsFd,
    by_file: Result<T, Errno>,
    mut by_path: impl FnMut(&CStr) -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    match by_file {
        Err(Errno::BADF) => match by_path(&proc_path(&file)) {
            // Only directories are opened so and then changed.
            Err(Errno::NOENT) => in_dir(file.as_fd(), || by_path(c".")),
            done => done,
        },
        done => done,
    }
}

/// Calls `by_name` in a thread whose working directory is `dir`, because `/proc` is not mounted. Fails with `ENOENT`,
/// as the call through `/proc` did, if such a thread is not permitted: attributes that cannot be read are not taken for
/// attributes that a file cannot have.
fn in_dir<T: Send>(
    dir: BorrowedFd<'_>,
    by_name: impl FnOnce() -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    apart(|| {
        rustix::process::fchdir(dir)?;
        by_name()
    })
}

/// Calls `run` in a thread with its own working directory and umask. Fails with `ENOENT` if that is not permitted.
fn apart<T: Send>(run: impl FnOnce() -> Result<T, Errno> + Send) -> Result<T, Errno> {
    let begin = || {
        // SAFETY: this thread stops sharing the working directory and the umask with the others; its
        // descriptors and memory remain shared.
        if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
            return Err(Errno::NOENT);
        }
        run()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, begin);
        let thread = thread.map_err(|_| Errno::AGAIN)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sets the mode of an open file.
pub fn set_mode(file: impl AsFd, mode: u32) -> io::Result<()> {
    let mode = mode_of(mode);
    retry("fchmod", || {
        or_by_path(&file, rustix::fs::fchmod(&file, mode), |path| rustix::fs::chmod(path, mode))
    })
}

/// Returns true unless this process is not permitted to write to the file `name`: by its mode, its
/// ACL, or a read-only mount. A symbolic link is followed.
pub fn may_write_at(dir: &Dir, name: &CStr) -> bool {
    let access = || rustix::fs::accessat(dir, name, Access::WRITE_OK, AtFlags::EACCESS);
    let denied = |e: io::Error| e.kind() == io::ErrorKind::PermissionDenied;
    !retry("faccessat2", access).is_err_and(denied)
}

/// Sets the mode of a name, for files that cannot be opened. A symbolic link is an error: fchmodat(2) would follow
/// one that another user puts there.
pub fn set_mode_at(dir: &Dir, name: &CStr, mode: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = retry("openat", || rustix::fs::openat(dir, name, flags, Mode::empty()))?;
    if of_file(&file)?.kind == Kind::Symlink {
        return Err(Errno::LOOP.into());
    }
    let path = proc_path(&file);
    retry("fchmodat", || {
        match rustix::fs::chmodat(CWD, &path, mode_of(mode), AtFlags::empty()) {
            // /proc is not mounted: set the mode by name.
            Err(Errno::NOENT) => rustix::fs::chmodat(dir, name, mode_of(mode), AtFlags::empty()),
            set => set,
        }
    })
}

/// Sets the owner and group of an open file.
pub fn set_owner(file: impl AsFd, user: u32, group: u32) -> io::Result<()> {
    let (user, group) = owner_of(user, group);
    retry("fchown", || chown(&file, user, group))
}

fn chown(file: impl AsFd, user: Option<Uid>, group: Option<Gid>) -> Result<(), Errno> {
    or_by_path(&file, rustix::fs::fchown(&file, user, group), |path| {
        rustix::fs::chown(path, user, group)
    })
}

/// Sets the owner and group of a name; a symbolic link is not followed.
pub fn set_owner_at(dir: &Dir, name: &CStr, user: u32, group: u32) -> io::Result<()> {
    let (user, group) = owner_of(user, group);
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    retry("fchownat", || rustix::fs::chownat(dir, name, user, group, flags))
}

/// Sets the group of an open file.
pub fn set_group(file: impl AsFd, group: u32) -> io::Result<()> {
    let group = Some(Gid::from_raw(group));
    retry("fchown", || chown(&file, None, group))
}

/// Sets the group of a name; a symbolic link is not followed.
pub fn set_group_at(dir: &Dir, name: &CStr, group: u32) -> io::Result<()> {
    let (group, flags) = (Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW);
    retry("fchownat", || rustix::fs::chownat(dir, name, None, group, flags))
}

/// Sets the times of an open file.
pub fn set_times(file: impl AsFd, accessed: Time, modified: Time) -> io::Result<()> {
    put_times(file, &timestamps(accessed, modified))
}

/// Sets the time of the last access of an open file and keeps that of its last modification.
pub fn set_accessed(file: impl AsFd, accessed: Time) -> io::Result<()> {
    let last_access = Timespec { tv_sec: accessed.0, tv_nsec: accessed.1.into() };
    let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    put_times(file, &Timestamps { last_access, last_modification })
}

/// Sets both times of an open file to the current time, for which write permission is enough.
pub fn touch(file: impl AsFd) -> io::Result<()> {
    let now = || Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    put_times(file, &Timestamps { last_access: now(), last_modification: now() })
}

fn put_times(file: impl AsFd, times: &Timestamps) -> io::Result<()> {
    retry("futimens", || {
        or_by_path(&file, rustix::fs::futimens(&file, times), |path| {
            rustix::fs::utimensat(CWD, path, times, AtFlags::empty())
        })
    })
}

/// Sets the times of a name; a symbolic link is not followed.
pub fn set_times_at(dir: &Dir, name: &CStr, accessed: Time, modified: Time) -> io::Result<()> {
    let times = timestamps(accessed, modified);
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    retry("utimensat", || rustix::fs::utimensat(dir, name, &times, flags))
}

/// Returns the effective user and group, which own new files of this process.
pub fn own_ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Returns the file mode creation mask.
pub fn umask() -> io::Result<u32> {
    let text = match crate::proc::read_text(Path::new("/proc/self/status")) {
        // /proc is not mounted.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return umask_by_change(),
        text => text?,
    };
    let mask =
        crate::proc::parse::value(&text, "Umask").and_then(|v| u32::from_str_radix(v, 8).ok());
    mask.ok_or_else(|| io::Error::other("/proc/self/status has no Umask"))
}

/// Returns the umask by setting another one, in a thread with its own.
fn umask_by_change() -> io::Result<u32> {
    let change = || Ok(rustix::process::umask(Mode::RWXG | Mode::RWXO).as_raw_mode());
    Ok(apart(change)?)
}

/// Properties of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// Its type, as in `statfs`.
    pub kind: u64,
    /// Whether the inode numbers of files stay the same when it is mounted again.
    pub numbers_stay: bool,
    /// Bytes available to this user; [`u64::MAX`] if the file system names no size.
    pub free_bytes: u64,
    /// Whether it stores nothing: the kernel makes up its files.
    pub without_blocks: bool,
    /// Whether files are stored only in memory.
    pub in_memory: bool,
    /// Whether space can be preallocated without slowing down writes. False for copy-on-write file
    /// systems such as btrfs, and in memory.
    pub reserves: bool,
    /// Whether all names and shared extents are in a single tree that only one thread at a time can
    /// change (btrfs).
    pub one_tree: bool,
    /// Whether a server or another program applies its own rules to new files: FUSE and network
    /// file systems.
    pub remote: bool,
}

/// Returns the properties of the file system that contains an open file.
pub fn file_system(file: impl AsFd) -> io::Result<FileSystem> {
    const BTRFS: u64 = 0x9123_683e;
    // FUSE, NFS, 9P, SMB (two), CIFS, Ceph, AFS, Coda; Lustre, GPFS, BeeGFS, OrangeFS, VirtualBox.
    const REMOTE: [u64; 14] = [
        0x6573_5546,
        0x6969,
        0x0102_1997,
        0x517b,
        0xfe53_4d42,
        0xff53_4d42,
        0x00c3_6400,
        0x5346_414f,
        0x7375_7245,
        0x0bd0_0bd0,
        0x4750_4653,
        0x1983_0326,
        0x2003_0528,
        0x786f_4256,
    ];
    // FAT and exFAT number the files in memory, overlayfs and aufs if their layers are on several file systems.
    const MADE_UP_NUMBERS: [u64; 4] = [0x4d44, 0x2011_bab0, 0x794c_7630, 0x6175_6673];
    const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
    let found = retry("fstatfs", || rustix::fs::fstatfs(&file))?;
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    let (kind, block) = (found.f_type as u64 & 0xffff_ffff, found.f_bsize as u64);
    let in_memory = IN_MEMORY.contains(&kind);
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    let free_bytes = match found.f_blocks as u64 {
        // In memory and without a limit.
        0 => u64::MAX,
        _ => (found.f_bavail as u64).saturating_mul(block),
    };
    let one_tree = kind == BTRFS;
    let remote = REMOTE.contains(&kind);
    let (reserves, without_blocks) = (!in_memory && !one_tree, found.f_blocks == 0 && !in_memory);
    let numbers_stay = !remote && !in_memory && !MADE_UP_NUMBERS.contains(&kind);
    Ok(FileSystem {
        kind,
        numbers_stay,
        free_bytes,
        without_blocks,
        in_memory,
        reserves,
        one_tree,
        remote,
    })
}

/// The file whose extended attributes are accessed.
#[derive(Debug, Clone, Copy)]
pub enum XattrOf<'a> {
    /// An open file, possibly opened only as a path.
    Open(BorrowedFd<'a>),
    /// A name in a directory, which does not have to be openable; a symbolic link is not followed.
    Name(&'a Dir, &'a CStr),
}

impl XattrOf<'_> {
    fn list(&self, into: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => {
                let listed = rustix::fs::flistxattr(file, &mut *into);
                or_by_path(file, listed, |path| rustix::fs::listxattr(path, &mut *into))
            }
            Self::Name(dir, name) => by_name(dir, name, |on| match on {
                On::File(file) => rustix::fs::flistxattr(file, &mut *into),
                On::Path(path) => rustix::fs::llistxattr(path, &mut *into),
            }),
        }
    }

    /// Returns the names of the extended attributes, including access control lists (with names
    /// that begin with `system.posix_acl_`). Empty if the file system or the kernel does not support
    /// them.
    pub fn names(&self) -> io::Result<Vec<CString>> {
        let mut into = [0u8; 1024];
        let bytes = match retry("listxattr", || self.list(&mut into)) {
            Ok(n) => into[..n].to_vec(),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::RANGE) => {
                // Kernel limit for such a list.
                let mut into = vec![0u8; 64 << 10];
                let n = retry("listxattr", || self.list(&mut into))?;
                into.truncate(n);
                into
            }
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::OPNOTSUPP | Errno::NOSYS)) => {
                return Ok(Vec::new());
            }
            Err(e) => return Err(e),
        };
        Ok(bytes
            .split(|b| *b == 0)
            .filter(|n| !n.is_empty())
            .map(|n| c_string(n.to_vec()))
            .collect())
    }

    /// Returns the value of an attribute; `None` if it does not exist.
    pub fn get(&self, name: &CStr) -> io::Result<Option<Vec<u8>>> {
        // Kernel limit for a value.
        let mut into = vec![0u8; 64 << 10];
        let got = retry("getxattr", || match self {
            Self::Open(file) => {
                let got = rustix::fs::fgetxattr(file, name, &mut into[..]);
                or_by_path(file, got, |path| rustix::fs::getxattr(path, name, &mut into[..]))
            }
            Self::Name(dir, of) => by_name(dir, of, |on| match on {
                On::File(file) => rustix::fs::fgetxattr(file, name, &mut into[..]),
                On::Path(path) => rustix::fs::lgetxattr(path, name, &mut into[..]),
            }),
        });
        match got {
            Ok(n) => {
                into.truncate(n);
                Ok(Some(into))
            }
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NODATA) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sets an attribute.
    pub fn set(&self, name: &CStr, value: &[u8]) -> io::Result<()> {
        let flags = XattrFlags::empty();
        retry("setxattr", || match self {
            Self::Open(file) => {
                let set = rustix::fs::fsetxattr(file, name, value, flags);
                or_by_path(file, set, |path| rustix::fs::setxattr(path, name, value, flags))
            }
            Self::Name(dir, of) => by_name(dir, of, |on| match on {
                On::File(file) => rustix::fs::fsetxattr(file, name, value, flags),
                On::Path(path) => rustix::fs::lsetxattr(path, name, value, flags),
            }),
        })
    }

    /// Removes an attribute; it is not an error if the attribute does not exist.
    pub fn remove(&self, name: &CStr) -> io::Result<()> {
        let removed = retry("removexattr", || match self {
            Self::Open(file) => {
                let removed = rustix::fs::fremovexattr(file, name);
                or_by_path(file, removed, |path| rustix::fs::removexattr(path, name))
            }
            Self::Name(dir, of) => by_name(dir, of, |on| match on {
                On::File(file) => rustix::fs::fremovexattr(file, name),
                On::Path(path) => rustix::fs::lremovexattr(path, name),
            }),
        });
        match removed {
            Err(e)
                if matches!(Errno::from_io_error(&e), Some(Errno::NODATA | Errno::OPNOTSUPP)) =>
            {
                Ok(())
            }
            other => other,
        }
    }
}

/// What a call is made on.
enum On<'a> {
    File(BorrowedFd<'a>),
    Path(&'a CStr),
}

/// Makes a call on `name` in `dir`.
fn by_name<T: Send>(
    dir: &Dir,
    name: &CStr,
    mut call: impl FnMut(On<'_>) -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    match call(On::Path(&c_string(path))) {
        // The file is missing, or /proc is not mounted.
        Err(Errno::NOENT) => match open_plain(dir, name) {
            Some(file) => call(On::File(file.as_fd())),
            None => in_dir(dir.as_fd(), || call(On::Path(name))),
        },
        done => done,
    }
}

/// Opens a regular file or a directory for reading, if permitted. Opening a pipe or a device can have effects.
fn open_plain(dir: &Dir, name: &CStr) -> Option<OwnedFd> {
    let kind = of_name(dir, name, false).ok()?.kind;
    let is_plain = matches!(kind, Kind::Regular | Kind::Directory);
    is_plain.then(|| open_to_read(dir, name, false).ok())?
}

fn c_string(bytes: Vec<u8>) -> CString {
    CString::new(bytes).expect("names from the kernel must not contain a zero byte")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::OFlags;
    use std::fs::File;

    #[test]
    fn the_mode_of_a_link_is_an_error_and_changes_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        std::fs::write(temp.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", temp.path().join("link")).unwrap();
        set_mode_at(&dir, c"file", 0o610).unwrap();
        assert_eq!(of_name(&dir, c"file", false).unwrap().mode, 0o610);
        let error = set_mode_at(&dir, c"link", 0o777).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP));
        assert_eq!(of_name(&dir, c"file", false).unwrap().mode, 0o610);
    }

    #[test]
    fn the_umask_is_known_without_proc_and_stays() {
        let before = umask().unwrap();
        assert_eq!(umask_by_change().unwrap(), before);
        assert_eq!(umask().unwrap(), before);
    }

    #[test]
    fn attributes_are_read_through_a_descriptor_of_a_path() {
        let temp = tempfile::tempdir().unwrap();
        let open = |flags| rustix::fs::open(temp.path(), flags, rustix::fs::Mode::empty()).unwrap();
        let dir = open(OFlags::RDONLY | OFlags::DIRECTORY);
        let name = c"user.test";
        if XattrOf::Open(dir.as_fd()).set(name, b"value").is_err() {
            return;
        }
        let path = open(OFlags::PATH | OFlags::DIRECTORY);
        let path = XattrOf::Open(path.as_fd());
        assert!(path.names().unwrap().iter().any(|found| found.as_c_str() == name));
        assert_eq!(path.get(name).unwrap().unwrap(), b"value");
        path.set(name, b"other").unwrap();
        assert_eq!(XattrOf::Open(dir.as_fd()).get(name).unwrap().unwrap(), b"other");
        path.remove(name).unwrap();
        assert_eq!(path.get(name).unwrap(), None);
    }

    #[test]
    fn metadata_is_set_through_a_descriptor_of_a_path() {
        let temp = tempfile::tempdir().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let path = rustix::fs::open(temp.path(), flags, rustix::fs::Mode::empty()).unwrap();
        let (user, group) = own_ids();
        set_owner(&path, user, group).unwrap();
        set_group(&path, group).unwrap();
        set_mode(&path, 0o310).unwrap();
        set_times(&path, (10, 20), (-30, 40)).unwrap();
        let found = of_file(&path).unwrap();
        assert_eq!((found.mode, found.accessed, found.modified), (0o310, (10, 20), (-30, 40)));
        set_mode(&path, 0o700).unwrap();
    }

    #[test]
    fn metadata_is_set_and_read_back() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        std::fs::write(&path, [1u8; 700]).unwrap();
        let file = File::open(&path).unwrap();
        set_mode(&file, 0o640).unwrap();
        set_times(&file, (10, 20), (-30, 40)).unwrap();
        let found = of_file(&file).unwrap();
        assert_eq!((found.mode, found.bytes, found.kind), (0o640, 700, Kind::Regular));
        assert_eq!((found.accessed, found.modified), ((10, 20), (-30, 40)));
        let dir = Dir::open(temp.path()).unwrap();
        assert_eq!(of_name(&dir, c"file", false).unwrap(), found);
        assert_eq!(of_path(&path, true).unwrap(), found);
        set_times_at(&dir, c"file", (1, 2), (3, 4)).unwrap();
        assert_eq!(of_file(&file).unwrap().modified, (3, 4));
    }

    #[test]
    fn extended_attributes_are_read_by_descriptor_and_by_name() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = temp.path().join("file");
        std::fs::write(&path, b"x").unwrap();
        let file = File::open(&path).unwrap();
        let open = XattrOf::Open(file.as_fd());
        if let Err(e) = open.set(c"user.one", b"value\xff") {
            println!("skipped: extended attributes are not supported here: {e}");
            return;
        }
        let dir = Dir::open(temp.path()).unwrap();
        let named = XattrOf::Name(&dir, c"file");
        assert_eq!(named.names().unwrap(), [c"user.one".to_owned()]);
        assert_eq!(named.get(c"user.one").unwrap().unwrap(), b"value\xff");
        assert_eq!(open.get(c"user.two").unwrap(), None);
        named.set(c"user.two", b"").unwrap();
        open.remove(c"user.one").unwrap();
        open.remove(c"user.one").unwrap();
        assert_eq!(open.names().unwrap(), [c"user.two".to_owned()]);
    }
}
