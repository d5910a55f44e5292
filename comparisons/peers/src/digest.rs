//! The digest that every peer computes.
//!
//! For one file: `XXH3-64(content hash ‖ path hash)`, both hashes XXH3-64 as 8 bytes little-endian,
//! the content hash over the whole file and the path hash over the raw bytes of the path relative
//! to the directory. For a file set: the wrapping sum over its files. The sum is independent of the
//! order, so each thread sums its own files without sorting; including the path reveals swapped
//! files.

use std::ops::AddAssign;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Returns the digest of one file from its relative path and all of its bytes.
pub fn file_digest(relative_path: &[u8], bytes: &[u8]) -> u64 {
    mix(xxh3_64(bytes), relative_path)
}

/// Returns the digest of one file from its content hash.
pub fn mix(content_hash: u64, relative_path: &[u8]) -> u64 {
    let mut pair = [0; 16];
    pair[..8].copy_from_slice(&content_hash.to_le_bytes());
    pair[8..].copy_from_slice(&xxh3_64(relative_path).to_le_bytes());
    xxh3_64(&pair)
}

/// Hashes a file in pieces; a single piece costs no more than hashing the whole file at once.
pub struct Pieces {
    state: Box<Xxh3>,
    used: bool,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { state: Box::new(Xxh3::new()), used: false }
    }
}

impl Pieces {
    /// Adds the next piece of the file.
    pub fn add(&mut self, piece: &[u8]) {
        self.used = true;
        self.state.update(piece);
    }

    /// Returns the content hash of all pieces and `last`, and resets for the next file.
    pub fn finish(&mut self, last: &[u8]) -> u64 {
        if !self.used {
            return xxh3_64(last);
        }
        self.state.update(last);
        let hash = self.state.digest();
        self.state.reset();
        self.used = false;
        hash
    }
}

/// Totals of the data read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Wrapping sum of their digests.
    pub sum: u64,
}

impl Totals {
    /// Adds a file from all of its bytes.
    pub fn add_file(&mut self, relative_path: &[u8], bytes: &[u8]) {
        self.add(bytes.len() as u64, file_digest(relative_path, bytes));
    }

    /// Adds a file from its digest.
    pub fn add(&mut self, bytes: u64, digest: u64) {
        self.files += 1;
        self.bytes += bytes;
        self.sum = self.sum.wrapping_add(digest);
    }

    /// Returns the sum as 16 hexadecimal digits.
    pub fn hex(&self) -> String {
        format!("{:016x}", self.sum)
    }

    /// Merges the totals of another thread.
    #[must_use]
    pub fn merged(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_hash_like_the_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
        let mut pieces = Pieces::default();
        for cut in [0, 1, 240, 241, 4096, 10_000] {
            let (head, tail) = bytes.split_at(cut);
            pieces.add(head);
            assert_eq!(pieces.finish(tail), xxh3_64(&bytes), "cut at {cut}");
        }
        assert_eq!(pieces.finish(b""), xxh3_64(b""));
    }

    #[test]
    fn the_sum_ignores_order_and_sees_swapped_files() {
        let sum = |files: [(&[u8], &[u8]); 2]| {
            let mut totals = Totals::default();
            for (path, bytes) in files {
                totals.add_file(path, bytes);
            }
            totals
        };
        let one = sum([(b"a", b"first"), (b"b", b"other")]);
        assert_eq!(one, sum([(b"b", b"other"), (b"a", b"first")]));
        let swapped = sum([(b"a", b"other"), (b"b", b"first")]);
        assert_eq!((one.files, one.bytes), (swapped.files, swapped.bytes));
        assert_ne!(one.sum, swapped.sum);
    }
}
