//! Directories: opens them relative to a descriptor, reads names, creates and removes entries.
//!
//! Every name is resolved below an open directory and never through a symbolic link, so a tree that
//! changes during a walk cannot lead outside. Names are bytes. Reading costs one `getdents64` per
//! [`BUFFER_BYTES`] of entries and no allocation per entry.

mod block;
mod meta;
mod ring;

pub use block::{Block, Record, Records};
pub use meta::{Fields, Meta, meta};
pub use ring::{StatRing, ring_workers};

use crate::descriptor::Descriptor;
use crate::fault::{call, retry_on_interrupt};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Size of the buffer filled by [`Dir::read`]. Sizes from 4 KiB to 256 KiB take equally long.
pub const BUFFER_BYTES: usize = 64 << 10;

/// Maximum length of a path in one `openat`, including the terminating zero.
const PATH_BYTES_MAX: usize = 4096;

/// The type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link, not followed.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// The file system does not report the type without another call.
    Unknown,
}

impl Kind {
    /// Returns the singular noun for messages.
    pub const fn singular(self) -> &'static str {
        match self {
            Self::Regular => "regular file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Fifo => "pipe",
            Self::Socket => "socket",
            Self::CharDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Unknown => "entry of unknown kind",
        }
    }

    /// Returns the plural noun for messages.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Regular => "regular files",
            Self::Directory => "directories",
            Self::Symlink => "symbolic links",
            Self::Fifo => "pipes",
            Self::Socket => "sockets",
            Self::CharDevice => "character devices",
            Self::BlockDevice => "block devices",
            Self::Unknown => "entries of unknown kind",
        }
    }

    /// Converts the type byte of a directory record.
    #[inline]
    fn of_dirent(kind: u8) -> Self {
        match kind {
            libc::DT_REG => Self::Regular,
            libc::DT_DIR => Self::Directory,
            libc::DT_LNK => Self::Symlink,
            libc::DT_FIFO => Self::Fifo,
            libc::DT_SOCK => Self::Socket,
            libc::DT_CHR => Self::CharDevice,
            libc::DT_BLK => Self::BlockDevice,
            _ => Self::Unknown,
        }
    }

    #[inline]
    /// Converts the file type in a mode.
    pub fn of(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::Regular,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice => Self::CharDevice,
            FileType::BlockDevice => Self::BlockDevice,
            FileType::Unknown => Self::Unknown,
        }
    }
}

/// Result of `statx` for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// File type.
    pub kind: Kind,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Device, as (major, minor).
    pub device: (u32, u32),
    /// Number of hard links.
    pub links: u32,
}

/// A directory entry, as returned by `getdents64`.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// Name, without its zero byte; never `.` or `..`.
    pub name: &'a [u8],
    /// Inode number; on a mount point, that of the covered directory.
    pub inode: u64,
    /// File type, or [`Kind::Unknown`].
    pub kind: Kind,
}

/// A buffer for [`Dir::read`], allocated once per thread.
#[derive(Debug)]
pub struct ReadBuffer(Vec<MaybeUninit<u8>>);

impl ReadBuffer {
    /// Allocates a buffer of [`BUFFER_BYTES`].
    pub fn new() -> Self {
        Self(vec![MaybeUninit::uninit(); BUFFER_BYTES])
    }
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Dir(Descriptor);

impl Dir {
    fn of(file: OwnedFd) -> Self {
        Self(Descriptor::new(file))
    }

    /// Closes the directory and returns the result.
    pub fn close(self) -> io::Result<()> {
        self.0.close()
    }

    /// Opens the directory above this one.
    pub fn open_above(&self) -> io::Result<Self> {
        self.open_at(b"..")
    }

    /// Opens a directory specified by the user, following symbolic links.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        retry_on_interrupt(|| call("open", || Ok(rustix::fs::open(path, flags, Mode::empty())?)))
            .map(Self::of)
    }

    /// Opens a directory as a starting point for names, even if this user is not allowed to list it
    /// (`O_PATH`). It can be neither listed nor synced.
    pub fn open_path_only(path: &Path) -> io::Result<Self> {
        match Self::open(path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                retry_on_interrupt(|| {
                    call("open", || Ok(rustix::fs::open(path, flags, Mode::empty())?))
                })
                .map(Self::of)
            }
            opened => opened,
        }
    }

    /// Opens the child directory `name`. A symbolic link is refused unless `follow`. With `quiet`,
    /// the access time is not updated if the caller is the owner or root; `quiet` has no effect for
    /// other users.
    pub fn open_child(&self, name: &CStr, follow: bool, quiet: bool) -> io::Result<Self> {
        let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !follow);
        let open = |flags| {
            retry_on_interrupt(|| {
                call("openat", || Ok(rustix::fs::openat(&self.0, name, flags, Mode::empty())?))
            })
        };
        if quiet {
            match open(flags | OFlags::NOATIME) {
                Err(e) if Errno::from_io_error(&e) == Some(Errno::PERM) => {}
                opened => return opened.map(Self::of),
            }
        }
        open(flags).map(Self::of)
    }

    /// Like [`Self::open_child`], but opens a directory that this user may not list as a mere
    /// reference (`O_PATH`), which can be queried.
    pub fn open_child_path_only(&self, name: &CStr, follow: bool) -> io::Result<Self> {
        match self.open_child(name, follow, false) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let mut flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                flags.set(OFlags::NOFOLLOW, !follow);
                retry_on_interrupt(|| {
                    call("openat", || Ok(rustix::fs::openat(&self.0, name, flags, Mode::empty())?))
                })
                .map(Self::of)
            }
            opened => opened,
        }
    }

    /// Opens the child directory `name`; a symbolic link is refused.
    pub fn open_at(&self, name: &[u8]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        retry_on_interrupt(|| {
            call("openat", || Ok(rustix::fs::openat(&self.0, name, flags, Mode::empty())?))
        })
        .map(Self::of)
    }

    /// Opens the directory `path` below this one, of any length and depth, without following
    /// symbolic links. Costs one call per 4 KiB of path, or one per component on kernels without
    /// `openat2`.
    pub fn open_below(&self, path: &[u8]) -> io::Result<Self> {
        let mut at: Option<Self> = None;
        let mut rest = path;
        while !rest.is_empty() {
            let (piece, after) = cut(rest);
            let from = at.as_ref().unwrap_or(self);
            let next = match from.open_piece(piece) {
                Err(e) if unsupported(&e) => from.open_names(piece)?,
                result => result?,
            };
            at = Some(next);
            rest = after;
        }
        at.map_or_else(|| self.open_at(b"."), Ok)
    }

    fn open_piece(&self, piece: &[u8]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        // EAGAIN: a rename raced with the lookup, and the kernel requests a retry.
        for _ in 0..16 {
            let result = retry_on_interrupt(|| {
                call("openat2", || {
                    Ok(rustix::fs::openat2(&self.0, piece, flags, Mode::empty(), resolve)?)
                })
            });
            match result {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                result => return result.map(Self::of),
            }
        }
        self.open_names(piece)
    }

    fn open_names(&self, piece: &[u8]) -> io::Result<Self> {
        let mut names = piece.split(|b| *b == b'/').filter(|name| !name.is_empty());
        let mut at = self.open_at(names.next().unwrap_or(b"."))?;
        for name in names {
            at = at.open_at(name)?;
        }
        Ok(at)
    }

    /// Reads all names in file system order until `each` returns false. Returns whether the end was
    /// reached. Reading twice requires a second descriptor.
    pub fn read(
        &self,
        buffer: &mut ReadBuffer,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> io::Result<bool> {
        let mut dir = RawDir::new(&self.0, &mut buffer.0);
        loop {
            // Fault injection applies once per system call, not once per name.
            if dir.is_buffer_empty() {
                match call("getdents", || Ok(())) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    result => result?,
                }
            }
            let entry = match dir.next() {
                None => return Ok(true),
                Some(Err(rustix::io::Errno::INTR)) => continue,
                Some(entry) => entry?,
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = Kind::of(entry.file_type());
            if !each(DirEntry { name, inode: entry.ino(), kind }) {
                return Ok(false);
            }
        }
    }

    /// Queries the child `name`; a symbolic link is not followed.
    pub fn stat_at(&self, name: &[u8]) -> io::Result<Stat> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        retry_on_interrupt(|| {
            call("statx", || Ok(rustix::fs::statx(&self.0, name, flags, StatxFlags::BASIC_STATS)?))
        })
        .map(|s| stat_of(&s))
    }

    /// Returns when the child `name` was created, in seconds since 1970 and nanoseconds; `None` if the file system does
    /// not report it, or on overlayfs, where it is the time of the copy to the upper layer. A symbolic link is not
    /// followed.
    pub fn creation_of(&self, name: &[u8]) -> io::Result<Option<(i64, u32)>> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let found = retry_on_interrupt(|| {
            call("statx", || Ok(rustix::fs::statx(&self.0, name, flags, StatxFlags::BTIME)?))
        })?;
        let is_known =
            found.stx_mask & StatxFlags::BTIME.bits() != 0 && !crate::cache::is_layered(&self.0);
        Ok(is_known.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec)))
    }

    /// Creates the child directory `name`; returns whether it is new.
    pub fn make_dir_at(&self, name: &[u8]) -> io::Result<bool> {
        let mode = Mode::from_raw_mode(0o777);
        match retry_on_interrupt(|| {
            call("mkdirat", || Ok(rustix::fs::mkdirat(&self.0, name, mode)?))
        }) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Opens the child file `name` for writing. Creates it, or truncates an existing regular file.
    pub fn create_at(&self, name: &[u8]) -> io::Result<NewFile> {
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(0o666);
        retry_on_interrupt(|| {
            call("openat", || Ok(rustix::fs::openat(&self.0, name, flags, mode)?))
        })
        .map(|fd| NewFile(Descriptor::new(fd)))
    }

    /// Opens the child file `name` for reading; symbolic links are not followed and pipes do not
    /// block.
    pub fn open_file_at(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        retry_on_interrupt(|| {
            call("openat", || Ok(rustix::fs::openat(&self.0, name, flags, Mode::empty())?))
        })
        .map(File::from)
    }

    /// Renames the child `from` to `to`, replacing an existing file.
    pub fn rename_at(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        retry_on_interrupt(|| {
            call("renameat", || Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?))
        })
    }

    /// Creates a hard link `second` to the child file `name`, unless `second` exists.
    pub fn link_at(&self, name: &[u8], second: &[u8]) -> io::Result<()> {
        let none = AtFlags::empty();
        let link = || Ok(rustix::fs::linkat(&self.0, name, &self.0, second, none)?);
        match retry_on_interrupt(|| call("linkat", link)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    /// Removes the child file `name`.
    pub fn remove_file_at(&self, name: &[u8]) -> io::Result<()> {
        retry_on_interrupt(|| {
            call("unlinkat", || Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?))
        })
    }

    /// Removes the empty child directory `name`.
    pub fn remove_dir_at(&self, name: &[u8]) -> io::Result<()> {
        retry_on_interrupt(|| {
            call("unlinkat", || Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?))
        })
    }

    /// Syncs the entries of this directory to the device.
    pub fn sync(&self) -> io::Result<()> {
        let synced = retry_on_interrupt(|| call("fsync", || Ok(rustix::fs::fsync(&self.0)?)));
        self.explain_bad_descriptor(synced)
    }

    /// Syncs the file system that contains this directory.
    pub fn sync_file_system(&self) -> io::Result<()> {
        let synced = retry_on_interrupt(|| call("syncfs", || Ok(rustix::fs::syncfs(&self.0)?)));
        self.explain_bad_descriptor(synced)
    }

    /// A directory opened only as a path cannot be synced: returns why it could not be opened.
    fn explain_bad_descriptor(&self, synced: io::Result<()>) -> io::Result<()> {
        match synced {
            Err(e) if Errno::from_io_error(&e) == Some(Errno::BADF) => {
                self.open_at(b".").and(Err(e))
            }
            synced => synced,
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A file opened for writing.
#[derive(Debug)]
pub struct NewFile(Descriptor);

impl NewFile {
    /// Sets the length without writing data.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        retry_on_interrupt(|| call("ftruncate", || Ok(rustix::fs::ftruncate(&self.0, bytes)?)))
    }

    /// Writes all of `bytes` at the current position.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let write = || Ok(rustix::io::write(&self.0, bytes)?);
            let written = retry_on_interrupt(|| call("write", write))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Syncs data and size to the device.
    pub fn sync(&self) -> io::Result<()> {
        retry_on_interrupt(|| call("fdatasync", || Ok(rustix::fs::fdatasync(&self.0)?)))
    }

    /// Closes the file and returns the result: file systems over a network can report failed writes,
    /// a full disk and an exceeded quota only now.
    pub fn close(self) -> io::Result<()> {
        self.0.close()
    }
}

/// Queries `path`, following symbolic links as users expect for paths they type.
pub fn stat(path: &Path) -> io::Result<Stat> {
    retry_on_interrupt(|| {
        call("statx", || {
            let mask = StatxFlags::BASIC_STATS;
            Ok(rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), mask)?)
        })
    })
    .map(|s| stat_of(&s))
}

fn stat_of(s: &rustix::fs::Statx) -> Stat {
    Stat {
        kind: Kind::of(FileType::from_raw_mode(s.stx_mode.into())),
        inode: s.stx_ino,
        bytes: s.stx_size,
        device: (s.stx_dev_major, s.stx_dev_minor),
        links: s.stx_nlink,
    }
}

/// Reports whether the kernel, or a seccomp filter, does not support the call.
fn unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(rustix::io::Errno::from_raw_os_error),
        Some(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM)
    )
}

/// Splits a path after the last component that fits into one call. A single component that is too
/// long is not split; the kernel rejects it.
fn cut(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() < PATH_BYTES_MAX {
        return (path, b"");
    }
    match path[..PATH_BYTES_MAX].iter().rposition(|b| *b == b'/') {
        Some(0) | None => (path, b""),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;

    fn names(dir: &Dir) -> Vec<(Vec<u8>, Kind)> {
        let mut all = Vec::new();
        let end = dir
            .read(&mut ReadBuffer::new(), &mut |e| {
                all.push((e.name.to_vec(), e.kind));
                true
            })
            .unwrap();
        assert!(end);
        all.sort();
        all
    }

    #[test]
    fn names_are_bytes_and_kinds_are_reported() {
        let temp = tempfile::tempdir().unwrap();
        let odd = std::ffi::OsStr::from_bytes(b"a\xff\nb");
        std::fs::write(temp.path().join(odd), b"12345").unwrap();
        std::os::unix::fs::symlink("nowhere", temp.path().join("link")).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        assert!(dir.make_dir_at(b"sub").unwrap());
        assert!(!dir.make_dir_at(b"sub").unwrap());
        let found = names(&dir);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].0, b"a\xff\nb");
        assert_eq!(dir.stat_at(b"a\xff\nb").unwrap().bytes, 5);
        assert_eq!(dir.stat_at(b"link").unwrap().kind, Kind::Symlink);
        assert_eq!(dir.stat_at(b"sub").unwrap().kind, Kind::Directory);
    }

    #[test]
    fn a_link_to_a_directory_is_not_entered() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("real/inner")).unwrap();
        std::os::unix::fs::symlink("real", temp.path().join("link")).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        assert!(dir.open_at(b"real").is_ok());
        assert!(dir.open_at(b"link").is_err());
        assert!(dir.open_below(b"real/inner").is_ok());
        assert!(dir.open_below(b"link/inner").is_err());
        assert!(dir.open_names(b"link/inner").is_err());
        assert!(dir.open_below(b"real/../real").is_ok_and(|d| names(&d).len() == 1));
        assert!(dir.open_below(b"..").is_err(), "open_below must not accept '..'");
    }

    #[test]
    fn paths_beyond_the_limit_of_one_call_open() {
        let temp = tempfile::tempdir().unwrap();
        let root = Dir::open(temp.path()).unwrap();
        let name = [b'n'; 200];
        let mut at = root.open_at(b".").unwrap();
        let mut path = Vec::new();
        for _ in 0..50 {
            at.make_dir_at(&name).unwrap();
            at = at.open_at(&name).unwrap();
            path.extend_from_slice(&name);
            path.push(b'/');
        }
        at.create_at(b"deep").unwrap().write(b"x").unwrap();
        path.pop();
        assert!(path.len() > 2 * PATH_BYTES_MAX);
        assert_eq!(names(&root.open_below(&path).unwrap())[0].0, b"deep");
    }

    #[test]
    fn files_are_created_renamed_and_removed() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let mut file = dir.create_at(b"new").unwrap();
        file.write(b"hello").unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        dir.rename_at(b"new", b"old").unwrap();
        dir.sync().unwrap();
        assert_eq!(std::fs::read(temp.path().join("old")).unwrap(), b"hello");
        dir.remove_file_at(b"old").unwrap();
        assert!(names(&Dir::open(temp.path()).unwrap()).is_empty());
        assert_eq!(stat(temp.path()).unwrap().kind, Kind::Directory);
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_path(names in proptest::collection::vec("[a-z]{1,255}", 0..80)) {
            let path = names.join("/").into_bytes();
            let (mut rest, mut joined) = (path.as_slice(), Vec::new());
            while !rest.is_empty() {
                let (piece, after) = cut(rest);
                prop_assert!(piece.len() < PATH_BYTES_MAX);
                if !joined.is_empty() {
                    joined.push(b'/');
                }
                joined.extend_from_slice(piece);
                rest = after;
            }
            prop_assert_eq!(joined, path);
        }
    }
}
