//! File metadata from `statx`, requesting only the required fields.
//!
//! The mask is deliberately small: network file systems need a round trip for some fields. Local
//! ones fill in all basic fields anyway. A field that was not reported is zero or `None`.

use super::{Dir, Kind};
use crate::fault::{call, retry_on_interrupt};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use rustix::path::Arg;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ops::BitOr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The fields to request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields(u32);

impl Fields {
    /// None: names and types are sufficient, and no call is made per file.
    pub const NONE: Self = Self(0);
    /// File type and inode number, which are included in every other choice.
    pub const IDENTITY: Self = Self(StatxFlags::TYPE.bits() | StatxFlags::INO.bits());
    /// Size in bytes.
    pub const BYTES: Self = Self(Self::IDENTITY.0 | StatxFlags::SIZE.bits());
    /// Allocated space.
    pub const DISK: Self = Self(Self::IDENTITY.0 | StatxFlags::BLOCKS.bits());
    /// Number of hard links.
    pub const LINKS: Self = Self(Self::IDENTITY.0 | StatxFlags::NLINK.bits());
    /// Modification time.
    pub const MTIME: Self = Self(Self::IDENTITY.0 | StatxFlags::MTIME.bits());
    /// Access time.
    pub const ATIME: Self = Self(Self::IDENTITY.0 | StatxFlags::ATIME.bits());
    /// Time of the last change of the inode.
    pub const CTIME: Self = Self(Self::IDENTITY.0 | StatxFlags::CTIME.bits());
    /// Permissions, owner and group.
    pub const MODE: Self = Self(
        Self::IDENTITY.0
            | StatxFlags::MODE.bits()
            | StatxFlags::UID.bits()
            | StatxFlags::GID.bits(),
    );
    /// Mount number (Linux 5.8).
    pub const MOUNT: Self = Self(Self::IDENTITY.0 | StatxFlags::MNT_ID.bits());

    /// Reports whether no field is requested.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn mask(self) -> StatxFlags {
        StatxFlags::from_bits_retain(self.0)
    }
}

impl BitOr for Fields {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Requested metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// File type.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// Device, as (major, minor).
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Allocated space in units of 512 bytes, independent of the block size.
    pub blocks_512: u64,
    /// Modification time: seconds since 1970 and nanoseconds.
    pub mtime: (i64, u32),
    /// Access time, likewise.
    pub atime: (i64, u32),
    /// Time of the last change of the inode, likewise.
    pub ctime: (i64, u32),
    /// Mount number, if the kernel reports it.
    pub mount: Option<u64>,
}

impl Meta {
    /// Returns the allocated space in bytes.
    #[inline]
    pub fn disk_bytes(&self) -> u64 {
        self.blocks_512.saturating_mul(512)
    }

    /// Returns device and inode, which identify the file.
    #[inline]
    pub fn identity(&self) -> ((u32, u32), u64) {
        (self.device, self.inode)
    }

    /// Converts the kernel's structure.
    #[inline]
    pub(super) fn of(s: &libc::statx) -> Self {
        Self {
            kind: Kind::of(FileType::from_raw_mode(s.stx_mode.into())),
            mode: s.stx_mode & 0o7777,
            device: (s.stx_dev_major, s.stx_dev_minor),
            inode: s.stx_ino,
            links: s.stx_nlink,
            user: s.stx_uid,
            group: s.stx_gid,
            bytes: s.stx_size,
            blocks_512: s.stx_blocks,
            mtime: (s.stx_mtime.tv_sec, s.stx_mtime.tv_nsec),
            atime: (s.stx_atime.tv_sec, s.stx_atime.tv_nsec),
            ctime: (s.stx_ctime.tv_sec, s.stx_ctime.tv_nsec),
            mount: (s.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(s.stx_mnt_id),
        }
    }
}

#[inline]
fn flags(follow: bool) -> AtFlags {
    if follow { AtFlags::NO_AUTOMOUNT } else { AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW }
}

/// Makes the call. The kernel writes directly into the structure that is then converted.
#[inline]
fn ask(from: BorrowedFd<'_>, name: &CStr, flags: AtFlags, fields: Fields) -> io::Result<Meta> {
    let mut answer = MaybeUninit::<libc::statx>::uninit();
    let (flags, mask) = (flags.bits() as i32, fields.mask().bits());
    retry_on_interrupt(|| {
        call("statx", || {
            let (from, into) = (from.as_raw_fd(), answer.as_mut_ptr());
            // SAFETY: the name is zero-terminated, and the kernel writes at most one `statx`.
            match unsafe { libc::statx(from, name.as_ptr(), flags, mask, into) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
    })?;
    // SAFETY: the call succeeded, so the kernel has written the whole structure.
    Ok(Meta::of(unsafe { answer.assume_init_ref() }))
}

impl Dir {
    /// Queries the child `name`, which is passed to the kernel without a copy. A symbolic link is
    /// followed only if `follow`; automounts are not triggered.
    #[inline]
    pub fn meta_at(&self, name: &CStr, follow: bool, fields: Fields) -> io::Result<Meta> {
        ask(self.0.as_fd(), name, flags(follow), fields)
    }

    /// Queries this open directory: at a mount point, the mounted directory.
    pub fn meta(&self, fields: Fields) -> io::Result<Meta> {
        ask(self.0.as_fd(), c"", AtFlags::EMPTY_PATH, fields)
    }
}

/// Queries a path relative to the current directory.
pub fn meta(path: &[u8], follow: bool, fields: Fields) -> io::Result<Meta> {
    path.into_with_c_str(|path| Ok(ask(CWD, path, flags(follow), fields)))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn metadata_matches_the_standard_library() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("file"), [7u8; 10_000]).unwrap();
        std::fs::hard_link(temp.path().join("file"), temp.path().join("again")).unwrap();
        std::os::unix::fs::symlink("file", temp.path().join("link")).unwrap();
        let all = Fields::BYTES | Fields::DISK | Fields::LINKS | Fields::MTIME | Fields::MODE;
        let all = all | Fields::ATIME | Fields::CTIME;
        let dir = Dir::open(temp.path()).unwrap();
        let std = std::fs::metadata(temp.path().join("file")).unwrap();
        for name in [c"file", c"again", c"link"] {
            let meta = dir.meta_at(name, true, all | Fields::MOUNT).unwrap();
            assert_eq!((meta.bytes, meta.disk_bytes()), (10_000, std.blocks() * 512));
            assert_eq!((meta.inode, meta.links, meta.kind), (std.ino(), 2, Kind::Regular));
            assert_eq!(meta.mtime, (std.mtime(), std.mtime_nsec() as u32));
            assert_eq!(meta.ctime, (std.ctime(), std.ctime_nsec() as u32));
            assert_eq!(meta.atime, (std.atime(), std.atime_nsec() as u32));
            assert_eq!(u32::from(meta.mode), std.mode() & 0o7777);
            assert_eq!((meta.user, meta.group), (std.uid(), std.gid()));
        }
        let link = dir.meta_at(c"link", false, Fields::IDENTITY).unwrap();
        assert_eq!(link.kind, Kind::Symlink);
        let own = dir.meta(Fields::LINKS).unwrap();
        let by_path = meta(temp.path().as_os_str().as_bytes(), true, Fields::LINKS).unwrap();
        assert_eq!((own.kind, own.identity()), (Kind::Directory, by_path.identity()));
        assert!(Fields::NONE.is_none() && !Fields::IDENTITY.is_none());
    }
}
