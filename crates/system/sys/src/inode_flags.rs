//! The flags and the project of an inode, as set by `chattr` and quota tools.
//!
//! Two calls. A file system that keeps neither reports none.

use crate::fault::{call, retry_on_interrupt};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `FS_IOC_FSGETXATTR`, the same on all architectures with the common ioctl numbers.
const GET_EXTENDED: u64 = 0x801C_581F;

/// Flags that users set and that change how a file is stored or read: secure deletion, undeletion, compression, synchronous
/// writes, no dump, no access times, data in the journal, no tail packing, no copy-on-write, DAX. All others are those of
/// directories, set by the kernel, or prevent any change. The one against compression (`m`) is left out: btrfs sets it for
/// files that did not compress.
const BY_USER: u32 =
    0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x4000 | 0x8000 | 0x0080_0000 | 0x0200_0000;

/// What users set for an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InodeFlags {
    flags: u32,
    project: u32,
}

#[repr(C)]
#[derive(Default)]
struct Extended {
    flags: u32,
    extent_bytes: u32,
    extents: u32,
    project: u32,
    shared_extent_bytes: u32,
    reserved: [u8; 8],
}

impl InodeFlags {
    /// Returns the flags of an open file.
    ///
    /// # Errors
    /// Fails on errors other than that the file system does not support them, or that a security module or a filter of
    /// system calls denies the query: then none are known.
    pub fn of_file(file: impl AsFd) -> io::Result<Self> {
        let get = || Ok(rustix::fs::ioctl_getflags(&file)?.bits());
        let flags = supported(retry_on_interrupt(|| call("getflags", get)))?;
        let project = supported(retry_on_interrupt(|| call("getflags", || project_of(&file))))?;
        Ok(Self { flags: flags & BY_USER, project })
    }

    /// Returns true if nothing is set.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

fn supported(result: io::Result<u32>) -> io::Result<u32> {
    match result {
        Err(e)
            if matches!(
                Errno::from_io_error(&e),
                Some(
                    Errno::NOTTY
                        | Errno::OPNOTSUPP
                        | Errno::INVAL
                        | Errno::NOSYS
                        | Errno::ACCESS
                        | Errno::PERM
                )
            ) =>
        {
            Ok(0)
        }
        result => result,
    }
}

fn project_of(file: impl AsFd) -> io::Result<u32> {
    let mut found = Extended::default();
    // SAFETY: the kernel writes one structure of this layout, which outlives the call.
    let done = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), GET_EXTENDED as _, &raw mut found) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(found.project) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_kernel_do_not_count() {
        // Extents, inline data, huge files, large attributes, index, verity, encryption.
        assert_eq!(BY_USER & 0x103C_1800, 0, "set by the kernel");
    }

    #[test]
    fn flags_that_may_not_be_read_are_unknown_and_other_failures_are_errors() {
        for denied in [Errno::ACCESS, Errno::PERM, Errno::NOTTY] {
            assert_eq!(supported(Err(denied.into())).unwrap(), 0);
        }
        assert!(supported(Err(Errno::IO.into())).is_err());
    }

    #[test]
    fn a_new_file_has_no_flags() {
        assert!(InodeFlags::of_file(tempfile::tempfile().unwrap()).unwrap().is_empty());
    }
}
