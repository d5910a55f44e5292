//! Opens and reads the block device that contains a directory.

use super::{Groups, Inode, InodeError, inode};
use ioloom_failure::{Operation, PathError, quoted, reason};
use ioloom_sys::dir::Dir;
use ioloom_sys::file::{self, OpenHow};
use ioloom_sys::{cache, mount};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Maximum number of bytes per read: the tables of 2048 inodes of 256 bytes.
const SPAN_BYTES_MAX: u64 = 512 << 10;
/// Maximum gap between two wanted inodes that is read as well because a second read costs more.
const GAP_BYTES_MAX: u64 = 16 << 10;

/// Returns the advice for users who are not root.
fn as_root() -> &'static str {
    if rustix::process::geteuid().is_root() { "" } else { "run as root, or " }
}

/// Why inode tables cannot be read for a path.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system is not ext4.
    #[error("{} is on {found}, but inode tables can only be read on ext4; use statx", quoted(.path))]
    NotExt4 {
        /// The requested path.
        path: PathBuf,
        /// File system type.
        found: String,
    },
    /// The file system has no device file.
    #[error("no file in /dev is block device {major}:{minor}, which contains {}; use statx", quoted(.path))]
    NoDevice {
        /// The requested path.
        path: PathBuf,
        /// Major device number.
        major: u32,
        /// Minor device number.
        minor: u32,
    },
    /// The device cannot be opened.
    #[error("cannot open {}: {}; {}use statx", quoted(.path), reason(.source), as_root())]
    Device {
        /// The device file.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The contents of the device cannot be used.
    #[error("cannot read the inode tables of {}: {}; use statx", quoted(.path), reason(.source))]
    Tables {
        /// The device file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A call failed.
    #[error("{0}; use statx")]
    Call(#[source] PathError),
}

/// The inode tables of a mounted file system, as of a sync.
#[derive(Debug)]
pub struct Tables {
    device: OwnedFd,
    path: PathBuf,
    number: (u32, u32),
    synced: SystemTime,
    groups: Groups,
}

/// A range of the device to read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Offset on the device in bytes.
    pub at: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// The device file for a path, not opened yet.
struct Below {
    device: PathBuf,
    number: (u32, u32),
}

fn below(path: &Path) -> Result<Below, OpenError> {
    let failed = |source| OpenError::Call(PathError::new(Operation::FindMount, path, source));
    let mount = mount::mount_of(path).map_err(failed)?;
    if mount.file_system != "ext4" {
        return Err(OpenError::NotExt4 { path: path.into(), found: mount.file_system });
    }
    let (major, minor) = mount.device;
    let missing = || OpenError::NoDevice { path: path.into(), major, minor };
    let device = mount::device_file((major, minor)).map_err(|_| missing())?;
    Ok(Below { device, number: (major, minor) })
}

impl Below {
    fn open(&self, path: &Path) -> Result<OwnedFd, OpenError> {
        let (major, minor) = self.number;
        let missing = || OpenError::NoDevice { path: path.into(), major, minor };
        let device = file::open(&self.device, OpenHow::default()).map_err(|source| {
            let gone = source.kind() == io::ErrorKind::NotFound;
            if gone { missing() } else { OpenError::Device { path: self.device.clone(), source } }
        })?;
        // A name in /dev proves nothing: in a container it can be anything.
        match file::block_device_number(&device) {
            Ok(Some(number)) if number == self.number => Ok(device),
            _ => Err(missing()),
        }
    }

    fn groups(&self, device: &OwnedFd) -> Result<Groups, OpenError> {
        Groups::read(|into, at| file::read_full_at(device, into, at))
            .map_err(|source| OpenError::Tables { path: self.device.clone(), source })
    }
}

impl Tables {
    /// Checks that the inode tables for `path` can be read. Writes nothing.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    pub fn probe(path: &Path) -> Result<(), OpenError> {
        let below = below(path)?;
        below.groups(&below.open(path)?).map(drop)
    }

    /// Syncs the file system of `path`, then reads the positions of its inodes. The sync writes
    /// back the changes of all programs on that file system and can take long.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let below = below(path)?;
        let device = below.open(path)?;
        let failed = |source| OpenError::Call(PathError::new(Operation::Sync, path, source));
        let synced = SystemTime::now();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let dir = if path.is_dir() { path } else { parent.unwrap_or(Path::new(".")) };
        Dir::open(dir).and_then(|dir| cache::flush_file_system(&dir)).map_err(failed)?;
        let groups = below.groups(&device)?;
        Ok(Self { device, path: below.device, number: below.number, synced, groups })
    }

    /// Returns the device file.
    pub fn device(&self) -> &Path {
        &self.path
    }

    /// Returns the device number, which is also that of the file system.
    pub fn number(&self) -> (u32, u32) {
        self.number
    }

    /// Returns the start time of the sync. Later changes may or may not be visible.
    pub fn synced(&self) -> SystemTime {
        self.synced
    }

    /// Reports whether a file whose inode changed at this time (seconds since 1970) is certain not
    /// to have changed since the sync.
    pub fn is_settled(&self, changed_s: i64) -> bool {
        let since = self.synced.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Timestamps come from the kernel's coarse clock, which is up to a tick behind.
        let before = since.saturating_sub(Duration::from_secs(2)).as_secs();
        u64::try_from(changed_s).is_ok_and(|changed| changed < before)
    }

    /// Reports whether every inode is verified by a checksum.
    pub fn checksums(&self) -> bool {
        self.groups.layout().checksums
    }

    /// Returns the next span to read and how many of the ascending inodes it covers; `None` if no
    /// table contains the first one.
    pub fn span(&self, mut inodes: impl Iterator<Item = u64>) -> Option<(Span, usize)> {
        let long = self.groups.layout().inode_bytes as u64;
        let at = self.groups.place(inodes.next()?)?;
        let (mut end, mut count) = (at + long, 1);
        for inode in inodes {
            let Some(next) = self.groups.place(inode) else { break };
            // A hard link to the same inode is already covered.
            let near = next >= at && next <= end.saturating_add(GAP_BYTES_MAX);
            if !near || next + long - at > SPAN_BYTES_MAX {
                break;
            }
            end = end.max(next + long);
            count += 1;
        }
        Some((Span { at, bytes: (end - at) as usize }, count))
    }

    /// Reads a span into `bytes`, which is resized to the span length.
    ///
    /// # Errors
    /// Fails with the device's error or `UnexpectedEof`.
    pub fn read(&self, span: Span, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.resize(span.bytes, 0);
        match file::read_full_at(&self.device, bytes, span.at)? {
            got if got == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Parses an inode from the bytes of a span and fills in its device.
    ///
    /// # Errors
    /// Returns why the file must be queried by name.
    pub fn inode(&self, number: u64, span: Span, bytes: &[u8]) -> Result<Inode, InodeError> {
        let place = self.groups.place(number).and_then(|place| place.checked_sub(span.at));
        let raw = place.and_then(|place| bytes.get(usize::try_from(place).ok()?..));
        let mut found = inode(self.groups.layout(), number, raw.ok_or(InodeError::Short)?)?;
        found.meta.device = self.number;
        Ok(found)
    }
}
