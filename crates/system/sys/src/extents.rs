//! Where the bytes of a file lie, as its file system tells (FIEMAP).
//!
//! One call answers for up to 64 extents, so a file in few pieces costs one call whatever its size.
//! Nothing is written for the answer: pages that have no place yet are told as such, and a file
//! system that keeps no map (tmpfs) gives `None`, never a guess. Addresses are those of the file
//! system: on ext4 and XFS bytes from the start of the block device that it is mounted from, on
//! btrfs an address of its own that is no place of a device.

use crate::fault::{call, retry_on_interrupt};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `FS_IOC_FIEMAP`, the same on every architecture of Linux that has the common numbers.
const FIEMAP: u64 = 0xC020_660B;
/// Extents that one call may tell.
const AT_ONCE: usize = 64;

/// The last one of the file.
const LAST: u32 = 0x1;
/// Flags of an extent whose address says nothing: unknown, not chosen yet, packed, in the inode.
const NO_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x200 | 0x400;
/// Reserved and never written: reads as zeros whatever lies there.
const UNWRITTEN: u32 = 0x800;
/// Other files have it too.
const SHARED: u32 = 0x2000;

/// A piece of a file that lies in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where in the file it begins, bytes.
    pub offset: u64,
    /// Where it lies, bytes; `None` while no place is chosen, or where the address has no meaning.
    pub start: Option<u64>,
    /// Its length, bytes; the last one may reach beyond the end of the file.
    pub bytes: u64,
    /// Whether it is only reserved: it reads as zeros, whatever the device holds there.
    pub unwritten: bool,
    /// Whether other files share it.
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

/// Returns the extents of an open file in the order of the file; holes are left out. `None` where
/// the file system keeps no such map.
///
/// # Errors
/// Whatever else the call reports.
pub fn of_file(file: impl AsFd) -> io::Result<Option<Vec<Extent>>> {
    let mut all = Vec::new();
    let mut start = 0;
    loop {
        let told = match ask(&file, start) {
            Ok(told) => told,
            Err(e) if keeps_no_map(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let found = &told.extents[..(told.mapped as usize).min(AT_ONCE)];
        all.extend(found.iter().map(of_raw));
        match found.last() {
            Some(last) if last.flags & LAST == 0 => start = last.logical + last.length,
            _ => return Ok(Some(all)),
        }
    }
}

fn keeps_no_map(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS))
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

fn ask(file: &impl AsFd, start: u64) -> io::Result<Request> {
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
            // SAFETY: the descriptor is borrowed for the call; the pointer is to a live structure
            // of the layout that the kernel defines, with room for as many extents as `count` says.
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
    fn a_synced_file_has_places_and_a_hole_has_none() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = new_file(temp.path(), "x");
        if of_file(&file).unwrap().is_none() {
            println!("skipped: this file system keeps no map");
            return;
        }
        assert_eq!(of_file(&file).unwrap(), Some(Vec::new()));
        // More pieces than one call tells: every second block of a file with holes between.
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
    fn what_is_only_reserved_is_told() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = new_file(temp.path(), "x");
        if transfer::allocate(&file, 0..1 << 20).is_err() {
            println!("skipped: this file system reserves nothing");
            return;
        }
        if let Some(extents) = of_file(&file).unwrap() {
            assert_eq!(extents.iter().map(|e| e.bytes).sum::<u64>(), 1 << 20, "{extents:?}");
            assert!(extents.iter().all(|e| e.unwritten), "{extents:?}");
        }
    }

    #[test]
    fn memory_has_no_places() {
        let shared = Path::new("/dev/shm");
        if !cache::is_memory_backed(shared).is_ok_and(|memory| memory) {
            println!("skipped: /dev/shm is no file system in memory");
            return;
        }
        let temp = tempfile::tempdir_in(shared).unwrap();
        let file = new_file(temp.path(), "x");
        transfer::write_at(&file, &[7; 4096], 0).unwrap();
        assert_eq!(of_file(&file).unwrap(), None);
    }
}
