//! The positions of a file's data on its device, as reported by the file system (FIEMAP).
//!
//! One call returns up to 64 extents, so a file with few extents costs one call regardless of size.
//! Nothing is written: extents without a position are reported as such, and a file system without a
//! map (tmpfs) gives `None`, never a guess. Addresses are those of the file system. On ext4 and XFS
//! they are offsets on the block device; on btrfs they are logical and not positions on a device.

use crate::fault::{call, retry_on_interrupt};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `FS_IOC_FIEMAP`, the same on all architectures with the common ioctl numbers.
const FIEMAP: u64 = 0xC020_660B;
/// Maximum number of extents returned by one call.
const AT_ONCE: usize = 64;

/// The last extent of the file.
const LAST: u32 = 0x1;
/// Flags of an extent without a usable address: unknown, delayed, encoded, encrypted, inline
/// or packed.
const NO_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x200 | 0x400;
/// Stored in the metadata of the file system.
const INLINE: u32 = 0x200;
/// Allocated but not written: reads as zeros.
const UNWRITTEN: u32 = 0x800;
/// Shared with other files.
const SHARED: u32 = 0x2000;

/// A contiguous part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file in bytes.
    pub offset: u64,
    /// Address in bytes; `None` if not allocated yet or if the address is meaningless.
    pub start: Option<u64>,
    /// Length in bytes; the last extent can extend beyond the end of the file.
    pub bytes: u64,
    /// Whether it is allocated but not written: it reads as zeros regardless of the device
    /// contents.
    pub unwritten: bool,
    /// Whether it is shared with other files.
    pub shared: bool,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; AT_ONCE],
}

/// Returns the extents of an open file in file order, without holes. `None` if the file system has
/// no such map.
///
/// # Errors
/// Fails on any other error.
pub fn of_file(file: impl AsFd) -> io::Result<Option<Vec<Extent>>> {
    let mut all = Vec::new();
    let mut start = 0;
    loop {
        let answer = match request(&file, start) {
            Ok(answer) => answer,
            Err(e) if keeps_no_map(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let found = &answer.extents[..(answer.mapped as usize).min(AT_ONCE)];
        all.extend(found.iter().map(of_raw));
        match found.last() {
            Some(last) if last.flags & LAST == 0 => start = last.logical + last.length,
            _ => return Ok(Some(all)),
        }
    }
}

/// Returns whether the file begins with data in the metadata of the file system, as small files do on btrfs. False
/// if the file system has no map.
///
/// # Errors
/// Fails on any other error.
pub fn is_inline(file: impl AsFd) -> io::Result<bool> {
    match request(&file, 0) {
        Ok(answer) => Ok(answer.mapped > 0 && answer.extents[0].flags & INLINE != 0),
        Err(e) if keeps_no_map(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

fn keeps_no_map(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS))
}

fn of_raw(raw: &RawExtent) -> Extent {
    Extent {
        offset: raw.logical,
        start: (raw.flags & NO_PLACE == 0).then_some(raw.physical),
        bytes: raw.length,
        unwritten: raw.flags & UNWRITTEN != 0,
        shared: raw.flags & SHARED != 0,
    }
}

fn request(file: &impl AsFd, start: u64) -> io::Result<Request> {
    let mut request = Request {
        start,
        length: u64::MAX - start,
        flags: 0,
        mapped: 0,
        count: AT_ONCE as u32,
        reserved: 0,
        extents: [RawExtent::default(); AT_ONCE],
    };
    retry_on_interrupt(|| {
        call("fiemap", || {
            let file = file.as_fd().as_raw_fd();
            // SAFETY: the descriptor is borrowed for the call; the pointer refers to a live
            // structure with the kernel's layout and room for `count` extents.
            match unsafe { libc::ioctl(file, FIEMAP as _, &raw mut request) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
    })?;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cache, transfer};
    use std::fs::{File, OpenOptions};
    use std::path::Path;

    fn new_file(dir: &Path, name: &str) -> File {
        let options = &mut OpenOptions::new();
        options.read(true).write(true).create_new(true).open(dir.join(name)).unwrap()
    }

    #[test]
    fn data_in_blocks_is_not_inline() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert!(!is_inline(&file).unwrap());
        file.set_len(1 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 100_000], 0).unwrap();
        transfer::sync_data(&file).unwrap();
        assert!(!is_inline(&file).unwrap());
    }

    #[test]
    fn a_synced_file_has_positions_and_a_hole_has_none() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = new_file(temp.path(), "x");
        if of_file(&file).unwrap().is_none() {
            println!("skipped: this file system has no extent map");
            return;
        }
        assert_eq!(of_file(&file).unwrap(), Some(Vec::new()));
        // More extents than one call returns: every second block of a file, with holes in between.
        let (block, pieces) = (1_u64 << 16, 100_u64);
        for piece in 0..pieces {
            transfer::write_at(&file, &[7; 4096], piece * 2 * block).unwrap();
        }
        transfer::sync_all(&file).unwrap();
        let extents = of_file(&file).unwrap().unwrap();
        let offsets: Vec<_> = extents.iter().map(|e| e.offset).collect();
        assert_eq!(offsets, (0..pieces).map(|piece| piece * 2 * block).collect::<Vec<_>>());
        assert!(extents.iter().all(|e| !e.unwritten && e.bytes >= 4096), "{extents:?}");
        let mut places: Vec<_> = extents.iter().filter_map(|e| e.start).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.is_empty() || places.len() == pieces as usize, "{extents:?}");
    }

    #[test]
    fn unwritten_extents_are_reported() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = new_file(temp.path(), "x");
        if transfer::allocate(&file, 0..1 << 20).is_err() {
            println!("skipped: this file system does not support preallocation");
            return;
        }
        if let Some(extents) = of_file(&file).unwrap() {
            assert_eq!(extents.iter().map(|e| e.bytes).sum::<u64>(), 1 << 20, "{extents:?}");
            assert!(extents.iter().all(|e| e.unwritten), "{extents:?}");
        }
    }

    #[test]
    fn files_in_memory_have_no_positions() {
        let shared = Path::new("/dev/shm");
        if !cache::is_memory_backed(shared).is_ok_and(|memory| memory) {
            println!("skipped: /dev/shm is not a file system in memory");
            return;
        }
        let temp = tempfile::tempdir_in(shared).unwrap();
        let file = new_file(temp.path(), "x");
        transfer::write_at(&file, &[7; 4096], 0).unwrap();
        assert_eq!(of_file(&file).unwrap(), None);
    }
}
