//! Contents: bytes in memory, or bytes that are computed when they are sent.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are computed at a time.
const PIECE: u64 = 256 << 10;

/// The contents of an object or a response.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Bytes(Arc<[u8]>),
    /// So many bytes of a pattern.
    Pattern(u64),
}

impl Default for Data {
    fn default() -> Self {
        Self::Pattern(0)
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

/// Fills a buffer with the pattern from an offset on. Each eight bytes are their position.
pub fn pattern(offset: u64, into: &mut [u8]) {
    let skip = (offset % 8) as usize;
    let mut number = offset / 8;
    let (head, rest) = into.split_at_mut(((8 - skip) % 8).min(into.len()));
    if !head.is_empty() {
        head.copy_from_slice(&number.to_le_bytes()[skip..][..head.len()]);
        number += 1;
    }
    for eight in rest.chunks_mut(8) {
        eight.copy_from_slice(&number.to_le_bytes()[..eight.len()]);
        number += 1;
    }
}

impl Data {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Pattern(len) => *len,
        }
    }

    /// Writes a range.
    pub(crate) fn write(&self, range: &Range<u64>, into: &mut impl Write) -> io::Result<()> {
        let Self::Bytes(bytes) = self else {
            let mut buffer = vec![0; PIECE.min(range.end - range.start) as usize];
            let mut offset = range.start;
            while offset < range.end {
                let len = PIECE.min(range.end - offset) as usize;
                pattern(offset, &mut buffer[..len]);
                into.write_all(&buffer[..len])?;
                offset += len as u64;
            }
            return Ok(());
        };
        into.write_all(&bytes[range.start as usize..range.end as usize])
    }

    /// Returns all bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing to a vector does not fail.
        let _ = self.write(&(0..self.len()), &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_of_the_pattern_is_a_part_of_the_whole() {
        let whole = Data::Pattern(100).to_vec();
        assert_eq!((whole.len(), &whole[8..17]), (100, &[1, 0, 0, 0, 0, 0, 0, 0, 2][..]));
        for start in 0..100 {
            for end in start..=100 {
                let mut part = Vec::new();
                Data::Pattern(100).write(&(start..end), &mut part).unwrap();
                assert_eq!(part, whole[start as usize..end as usize], "{start}..{end}");
            }
        }
    }
}
