//! Directory records in kernel format, parsed in place and divisible.
//!
//! `getdents64` fills a [`Block`] with records that contain their length and a zero-terminated
//! name. They are used in place: a name is passed to the next call without a copy, and half of a
//! block can be passed to another thread as plain bytes because records do not refer to each other.
//! [`Records`] checks every length, so malformed bytes cannot cause a read outside the block.

use super::{Dir, Kind};
use crate::fault::{call, cut, retry_on_interrupt};
use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;

/// Offsets in a record: inode 8 bytes, position 8, length 2, type 1, then the name.
const LENGTH_AT: usize = 16;
const KIND_AT: usize = 18;
const NAME_AT: usize = 19;

/// A directory entry, borrowed from a block.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Name; never `.` or `..`.
    pub name: &'a CStr,
    /// Inode number; on a mount point, that of the covered directory.
    pub inode: u64,
    /// File type, or [`Kind::Unknown`].
    pub kind: Kind,
}

/// Directory records filled in by the kernel.
#[derive(Debug)]
pub struct Block {
    bytes: Box<[u8]>,
    filled: usize,
}

impl Block {
    /// Allocates an empty block for up to `bytes` of records.
    pub fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes].into_boxed_slice(), filled: 0 }
    }

    /// Reads the next records of `dir`; returns false at the end. The position belongs to the open
    /// directory, so reading twice requires a second descriptor.
    pub fn fill(&mut self, dir: &Dir) -> io::Result<bool> {
        self.filled = 0;
        let filled = retry_on_interrupt(|| call("getdents", || getdents(dir, &mut self.bytes)))?;
        self.filled = filled;
        Ok(filled > 0)
    }

    /// Returns the records as bytes.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Reports whether the kernel may have stopped because the block was full.
    pub fn is_full(&self) -> bool {
        // A record has at most 19 bytes plus a name of 255 bytes and its zero, rounded up.
        self.bytes.len() - self.filled < 280
    }
}

fn getdents(dir: &Dir, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `len` bytes from the start of a live, exclusive slice.
    let filled = unsafe {
        libc::syscall(libc::SYS_getdents64, dir.0.as_raw_fd(), bytes.as_mut_ptr(), bytes.len())
    };
    usize::try_from(filled).map_err(|_| io::Error::last_os_error())
}

/// An iterator over the records in part of a block.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// Iterates over `bytes`, which must start with a complete record.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the bytes not yet parsed.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Splits off and returns the second half of the remaining records, or `None` if either half
    /// would be shorter than `least` bytes.
    pub fn split(&mut self, least: usize) -> Option<&'a [u8]> {
        let rest = self.rest();
        if rest.len() / 2 < least {
            // Tried after each record while a worker is idle, so the last ones must not be walked.
            return None;
        }
        let mut cut = 0;
        while cut < rest.len() / 2 {
            cut += length_at(rest, cut)?;
        }
        if cut < least || rest.len().saturating_sub(cut) < least {
            return None;
        }
        self.bytes = &self.bytes[..self.at + cut];
        Some(&rest[cut..])
    }

    #[inline]
    fn next_raw(&mut self) -> Option<Record<'a>> {
        let length = length_at(self.bytes, self.at)?;
        let record = &self.bytes[self.at..self.at + length];
        self.at += length;
        let inode = u64::from_ne_bytes(record[..8].try_into().ok()?);
        let name = name_in(&record[NAME_AT..])?;
        // Tests turn all into unknown ones, as some file systems do.
        let kind = cut("d_type", record[KIND_AT].into()) as u8;
        Some(Record { name, inode, kind: Kind::of_dirent(kind) })
    }
}

/// Returns the name at the start of `bytes`, up to its zero byte. Uses memchr from the C library,
/// which compares 32 bytes at once: names are the only data that is scanned byte by byte.
#[inline]
fn name_in(bytes: &[u8]) -> Option<&CStr> {
    // SAFETY: memchr reads only bytes within the slice.
    let zero = unsafe { libc::memchr(bytes.as_ptr().cast(), 0, bytes.len()) };
    let end = (zero as usize).checked_sub(bytes.as_ptr() as usize)?;
    // SAFETY: the slice ends at its first zero byte.
    Some(unsafe { CStr::from_bytes_with_nul_unchecked(bytes.get(..=end)?) })
}

/// Returns the length of the record at `at`; `None` at the end or if the record is incomplete.
#[inline]
fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at + LENGTH_AT..at + LENGTH_AT + 2)?;
    let length = usize::from(u16::from_ne_bytes(field.try_into().ok()?));
    (length > NAME_AT && at + length <= bytes.len()).then_some(length)
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            let record = self.next_raw()?;
            if !matches!(record.name.to_bytes(), b"." | b"..") {
                return Some(record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(names: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, name) in (1u64..).zip(names) {
            let length = (NAME_AT + name.len() + 1).next_multiple_of(8);
            let start = bytes.len();
            bytes.extend_from_slice(&number.to_ne_bytes());
            bytes.extend_from_slice(&0u64.to_ne_bytes());
            bytes.extend_from_slice(&(length as u16).to_ne_bytes());
            bytes.push(8);
            bytes.extend_from_slice(name);
            bytes.resize(start + length, 0);
        }
        bytes
    }

    fn names_of(records: Records<'_>) -> Vec<Vec<u8>> {
        records.map(|r| r.name.to_bytes().to_vec()).collect()
    }

    #[test]
    fn a_directory_is_read_in_small_blocks() {
        let temp = tempfile::tempdir().unwrap();
        let mut expected = Vec::new();
        for i in 0..500 {
            let name = format!("file-{i:04}");
            std::fs::write(temp.path().join(&name), b"").unwrap();
            expected.push(name.into_bytes());
        }
        let dir = Dir::open(temp.path()).unwrap();
        let mut block = Block::new(1024);
        let (mut found, mut full) = (Vec::new(), 0);
        while block.fill(&dir).unwrap() {
            full += usize::from(block.is_full());
            found.extend(names_of(Records::new(block.filled())));
        }
        found.sort();
        assert_eq!(found, expected);
        assert!(full > 5, "{full}");
        assert!(block.filled().is_empty());
    }

    proptest! {
        #[test]
        fn halves_hold_what_the_whole_held(
            names in proptest::collection::vec(proptest::collection::vec(1u8..=255, 1..40), 0..80),
            before in 0usize..90,
            least in 0usize..300,
        ) {
            let names: Vec<_> =
                names.into_iter().filter(|n| n != b"." && n != b"..").collect();
            let bytes = block(&names);
            let mut records = Records::new(&bytes);
            let mut all: Vec<_> =
                records.by_ref().take(before).map(|r| r.name.to_bytes().to_vec()).collect();
            let later = records.split(least);
            if let Some(later) = later {
                prop_assert!(later.len() >= least && records.rest().len() >= least);
            }
            all.extend(names_of(records));
            all.extend(names_of(Records::new(later.unwrap_or(b""))));
            prop_assert_eq!(all, names);
        }

        #[test]
        fn no_bytes_lead_outside(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut records = Records::new(&bytes);
            records.split(1);
            prop_assert!(records.count() <= 200);
        }
    }
}
