//! Opens, reads and queries files.
//!
//! Opening never hangs: every file is opened with `O_NONBLOCK|O_CLOEXEC`, and with `O_NOFOLLOW` if
//! the caller knows that it is regular. Any other path is first queried with [`kind_of`] and opened
//! only if it is regular. Interrupted calls are retried. Short reads are normal: [`read_at`]
//! returns the result of one call, [`read_full_at`] loops until the end.

use crate::fault::{call, cut};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// File types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block or character device.
    Device,
    /// A symbolic link (only if links are not followed).
    Symlink,
}

impl Kind {
    /// Returns the type with its article, for messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Regular => "a regular file",
            Self::Directory => "a directory",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Symlink => "a symbolic link",
        }
    }

    /// Returns the type encoded in `st_mode`.
    pub const fn from_mode(mode: u16) -> Self {
        match mode as u32 & libc::S_IFMT {
            libc::S_IFREG => Self::Regular,
            libc::S_IFDIR => Self::Directory,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFLNK => Self::Symlink,
            _ => Self::Device,
        }
    }
}

/// Result of [`stat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// File type.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Inode number.
    pub inode: u64,
    /// Device number.
    pub device: (u32, u32),
}

/// Queries a path, following symbolic links.
pub fn stat(path: &Path) -> io::Result<FileStat> {
    let mask = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::INO;
    Ok(file_stat(&retry("statx", || statx(CWD, path, AtFlags::STATX_DONT_SYNC, mask))?))
}

fn file_stat(stat: &rustix::fs::Statx) -> FileStat {
    FileStat {
        kind: Kind::from_mode(stat.stx_mode),
        size: stat.stx_size,
        inode: stat.stx_ino,
        device: (stat.stx_dev_major, stat.stx_dev_minor),
    }
}

/// Returns the type of a path, following symbolic links.
pub fn kind_of(path: &Path) -> io::Result<Kind> {
    stat(path).map(|facts| facts.kind)
}

/// Options for opening a file for reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenHow {
    /// Bypass the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Refuse a symbolic link in the last component.
    pub nofollow: bool,
}

impl OpenHow {
    /// Returns the open flags.
    pub(crate) fn flags(self) -> OFlags {
        let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        if self.direct {
            flags |= OFlags::DIRECT;
        }
        if self.nofollow {
            flags |= OFlags::NOFOLLOW;
        }
        flags
    }
}

/// Opens a file for reading. If another program has a lease on it, waits until that is given up.
#[inline]
pub fn open(path: &Path, how: OpenHow) -> io::Result<OwnedFd> {
    open_and_wait("open", CWD, path, how.flags())
}

/// Opens a file of a directory, as [`open`] does.
#[inline]
pub fn open_in(dir: impl AsFd, name: &OsStr, how: OpenHow) -> io::Result<OwnedFd> {
    open_and_wait("open", dir.as_fd(), name, how.flags())
}

/// Returns a reference to a directory, by which [`open_in`] opens its files. It cannot be listed.
pub fn reference_to_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry("open-dir-path", || openat(CWD, path, flags, Mode::empty()))
}

#[inline]
fn open_and_wait(
    call: &'static str,
    dir: BorrowedFd<'_>,
    path: impl rustix::path::Arg + Copy,
    flags: OFlags,
) -> io::Result<OwnedFd> {
    let open = |flags| retry(call, || openat(dir, path, flags, Mode::empty()));
    match open(flags) {
        // Only regular files have leases, so it does not wait for a pipe.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => open(flags - OFlags::NONBLOCK),
        opened => opened,
    }
}

/// A path that was looked up and not opened (`O_PATH`). It can be opened without another lookup.
#[derive(Debug)]
pub struct Found {
    handle: OwnedFd,
    /// What the lookup found.
    pub stat: FileStat,
}

/// Looks up a path, following symbolic links. Unlike [`open`] this has no side effects on pipes and
/// devices. Uses a descriptor until the result is dropped.
pub fn find(path: &Path) -> io::Result<Found> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let handle = retry("open-path", || openat(CWD, path, flags, Mode::empty()))?;
    let mask = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::INO;
    // The lookup has just returned the attributes.
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = file_stat(&retry("statx", || statx(&handle, c"", how, mask))?);
    Ok(Found { handle, stat })
}

impl Found {
    /// Opens the file for reading. Fails with `ENOENT` if /proc is not mounted.
    pub fn open(&self) -> io::Result<OwnedFd> {
        let link = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
        let flags = OpenHow::default().flags();
        open_and_wait("reopen", CWD, link.as_str(), flags)
    }
}

/// Returns the size of an open file in bytes.
#[inline]
pub fn size(file: impl AsFd) -> io::Result<u64> {
    let stat = retry("fstat", || rustix::fs::fstat(file.as_fd()))?;
    Ok(stat.st_size as u64)
}

/// Returns the size in bytes and the type of an open file.
pub fn size_and_kind(file: impl AsFd) -> io::Result<(u64, Kind)> {
    let stat = retry("fstat", || rustix::fs::fstat(file.as_fd()))?;
    Ok((stat.st_size as u64, Kind::from_mode(stat.st_mode as u16)))
}

/// Returns the device number of the file system of an open file, without asking a server.
pub fn device_number(file: impl AsFd) -> io::Result<(u32, u32)> {
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = retry("statx", || statx(&file, c"", how, StatxFlags::TYPE))?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Identity and size of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// File type.
    pub kind: Kind,
    /// Size in bytes, also for a block device.
    pub size: u64,
    /// Inode number.
    pub inode: u64,
    /// Device number of its file system.
    pub device: (u32, u32),
    /// Number of hard links.
    pub links: u64,
}

/// Returns the identity and size of an open file.
pub fn identity(file: impl AsFd) -> io::Result<Identity> {
    let stat = retry("fstat", || rustix::fs::fstat(file.as_fd()))?;
    let kind = Kind::from_mode(stat.st_mode as u16);
    let size = if kind == Kind::Device {
        retry("lseek", || rustix::fs::seek(file.as_fd(), rustix::fs::SeekFrom::End(0)))?
    } else {
        stat.st_size as u64
    };
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    let links = stat.st_nlink as u64;
    Ok(Identity { kind, size, inode: stat.st_ino, device, links })
}

/// Returns the device number of an open block device; `None` for any other file.
pub fn block_device_number(file: impl AsFd) -> io::Result<Option<(u32, u32)>> {
    let stat = retry("fstat", || rustix::fs::fstat(file.as_fd()))?;
    let block =
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::BlockDevice;
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    Ok(block.then_some(number))
}

/// Reads once at `offset`. Fewer bytes than requested are normal; zero means end of file.
#[inline]
pub fn read_at(file: impl AsFd, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let read = retry("pread", || rustix::io::pread(file.as_fd(), &mut *into, offset));
    read.map(|n| cut("pread", n))
}

/// Reads at `offset` until `into` is full or the file ends; returns the number of bytes read.
pub fn read_full_at(file: impl AsFd, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match read_at(&file, &mut into[done..], offset + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

/// Opens a regular file for reading, following symbolic links. Never waits for the writer of a pipe.
///
/// # Errors
/// Fails if the path cannot be opened or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open(path, OpenHow::default())?;
    match size_and_kind(&file)? {
        (_, Kind::Regular) => Ok(File::from(file)),
        (_, kind) => Err(io::Error::other(format!("it is {}, not a regular file", kind.word()))),
    }
}

/// Reads a regular file with at most `most` bytes of text, like [`open_regular`].
///
/// # Errors
/// Fails if the path is not a regular file, or if its contents are larger or not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let file = open_regular(path)?;
    let mut text = String::new();
    // The size of a file can change, and files of the kernel have none.
    let count = file.take(most.saturating_add(1)).read_to_string(&mut text)?;
    if count as u64 > most {
        return Err(io::Error::other(format!("it is larger than {most} bytes")));
    }
    Ok(text)
}

/// Result of a read that must not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nowait {
    /// Number of bytes that were in memory; zero means end of file.
    Hit(usize),
    /// Not resident; the kernel has started readahead.
    Miss,
    /// This file system does not support such reads (tmpfs, some network file systems).
    Unsupported,
    /// Refused without a clear reason: by a sandbox that does not know the call or its flag, or because
    /// of this file. A blocking read that follows reports the error of the file.
    Refused,
}

/// Reads resident bytes once at `offset` (`RWF_NOWAIT`).
#[inline]
pub fn read_nowait_at(file: impl AsFd, into: &mut [u8], offset: u64) -> io::Result<Nowait> {
    let result = retry("preadv2", || {
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        rustix::io::preadv2(file.as_fd(), &mut [IoSliceMut::new(into)], offset, flags)
    });
    match result {
        Ok(n) => Ok(Nowait::Hit(n)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(Nowait::Miss),
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => Ok(Nowait::Unsupported),
            Some(libc::EPERM | libc::EINVAL) => Ok(Nowait::Refused),
            _ => Err(error),
        },
    }
}

/// Required alignment of direct I/O in bytes. Functions return `None` if the file system does not
/// report it, which callers treat as unsupported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectAlignment {
    /// Memory alignment.
    pub memory: u32,
    /// Alignment of offsets and lengths.
    pub offset: u32,
}

/// Returns the alignment for direct I/O on a path (`STATX_DIOALIGN`).
pub fn direct_alignment(path: &Path) -> io::Result<Option<DirectAlignment>> {
    let mask = StatxFlags::from_bits_retain(libc::STATX_DIOALIGN);
    let stat = retry("statx", || statx(CWD, path, AtFlags::empty(), mask))?;
    Ok(alignment(&stat))
}

/// Returns the alignment for direct I/O on an open file.
pub fn direct_alignment_of(file: impl AsFd) -> io::Result<Option<DirectAlignment>> {
    let mask = StatxFlags::from_bits_retain(libc::STATX_DIOALIGN);
    let stat = retry("statx", || statx(&file, c"", AtFlags::EMPTY_PATH, mask))?;
    Ok(alignment(&stat))
}

fn alignment(stat: &rustix::fs::Statx) -> Option<DirectAlignment> {
    let is_known = stat.stx_mask & libc::STATX_DIOALIGN != 0 && stat.stx_dio_offset_align != 0;
    is_known.then_some(DirectAlignment {
        memory: stat.stx_dio_mem_align,
        offset: stat.stx_dio_offset_align,
    })
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteMode {
    /// Into the page cache.
    #[default]
    Buffered,
    /// Bypassing the page cache (`O_DIRECT`).
    Direct,
    /// Each call returns when data and metadata are on the device (`O_SYNC`).
    Sync,
    /// Each call returns when the data and the metadata required to read it are on the device
    /// (`O_DSYNC`).
    DataSync,
}

impl WriteMode {
    fn flags(self) -> OFlags {
        match self {
            Self::Buffered => OFlags::empty(),
            Self::Direct => OFlags::DIRECT,
            Self::Sync => OFlags::SYNC,
            Self::DataSync => OFlags::DSYNC,
        }
    }
}

/// Creates an unnamed file in `dir` for reading and writing. It disappears when its last descriptor
/// is closed, even if the process is killed.
pub fn scratch(dir: &Path, how: WriteMode) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE | how.flags();
    retry("tmpfile", || openat(CWD, dir, flags, Mode::RUSR | Mode::WUSR))
}

/// Opens an existing file for reading and writing.
pub fn open_to_write(path: &Path, how: WriteMode) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | how.flags();
    retry("open", || openat(CWD, path, flags, Mode::empty()))
}

/// Writes all of `bytes` at `offset`.
pub fn write_full_at(file: impl AsFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = retry("pwrite", || rustix::io::pwrite(file.as_fd(), bytes, offset))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Retries a rustix call while it is interrupted.
#[inline]
pub(crate) fn retry<T>(op: &'static str, mut f: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call(op, || f().map_err(io::Error::from)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_found_file_is_opened_even_if_its_name_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&path, b"here").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let found = find(&link).unwrap();
        assert_eq!((found.stat.kind, found.stat.size), (Kind::Regular, 4));
        assert_eq!(found.stat, stat(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let mut into = [0; 8];
        assert_eq!(read_full_at(found.open().unwrap(), &mut into, 0).unwrap(), 4);
        assert_eq!(&into[..4], b"here");
        assert_eq!(find(&link).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(find(Path::new("/dev/null")).unwrap().stat.kind, Kind::Device);
        assert_eq!(find(dir.path()).unwrap().stat.kind, Kind::Directory);
    }

    #[test]
    fn text_is_read_only_from_small_regular_files() {
        let dir = tempfile::tempdir().unwrap();
        let (path, pipe) = (dir.path().join("file"), dir.path().join("pipe"));
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        assert_eq!(read_text(&path, 4).unwrap_err().to_string(), "it is larger than 4 bytes");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for other in [pipe.as_path(), dir.path(), Path::new("/dev/zero")] {
            let error = read_text(other, 5).unwrap_err().to_string();
            assert!(error.ends_with("not a regular file"), "{error}");
        }
    }

    #[test]
    fn written_bytes_are_read_and_kinds_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [5u8; 10_000]).unwrap();
        let file = open(&path, OpenHow { nofollow: true, ..OpenHow::default() }).unwrap();
        let mut into = vec![0u8; 20_000];
        assert_eq!(read_full_at(&file, &mut into, 0).unwrap(), 10_000);
        assert_eq!(size(&file).unwrap(), 10_000);
        assert!(into[..10_000].iter().all(|b| *b == 5));
        assert_eq!(stat(&path).unwrap().kind, Kind::Regular);
        assert_eq!(kind_of(dir.path()).unwrap(), Kind::Directory);
        match read_nowait_at(&file, &mut into, 0).unwrap() {
            Nowait::Hit(n) => assert!(n > 0),
            Nowait::Miss | Nowait::Unsupported | Nowait::Refused => {}
        }
        assert_eq!(
            open(&dir.path().join("none"), OpenHow::default()).unwrap_err().raw_os_error(),
            Some(libc::ENOENT)
        );
    }
}
