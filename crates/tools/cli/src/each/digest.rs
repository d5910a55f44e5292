//! Computes the digest over the hashes of all files.

use ioloom_walk::PathList;
use xxhash_rust::xxh3::Xxh3;

/// The two hexadecimal digits of each byte.
const HEX: [[u8; 2]; 256] = {
    let (mut digits, mut byte) = ([[0; 2]; 256], 0);
    while byte < 256 {
        digits[byte] = [b"0123456789abcdef"[byte >> 4], b"0123456789abcdef"[byte & 15]];
        byte += 1;
    }
    digits
};

/// Entries per thread below which sorting in parallel does not pay.
const SORT_PART_MIN: usize = 16_384;

/// Capacity of the buffer for lines; it is hashed when half full.
const LINES_BYTES: usize = 16 << 10;

/// Hashes of files, each with the position of its path in `paths`.
#[derive(Default)]
pub(super) struct Hashes {
    entries: Vec<(u64, usize)>,
    paths: PathList,
}

impl Hashes {
    /// Adds the hash of a file.
    pub(super) fn push(&mut self, xxh3: u64, path: &[u8]) {
        self.entries.push((xxh3, self.paths.len()));
        self.paths.push(path);
    }

    /// Appends everything of `other`.
    pub(super) fn append(&mut self, other: Self) {
        if self.entries.is_empty() {
            *self = other;
            return;
        }
        let base = self.paths.len();
        self.entries.extend(other.entries.into_iter().map(|(hash, at)| (hash, base + at)));
        self.paths.append(other.paths);
    }

    /// Returns XXH3-64 over the lines `HEX  PATH\n`, sorted by their bytes; `shown` maps a path to
    /// its form in the line. Every hash has sixteen digits, so sorting by number and then by path
    /// sorts the lines.
    pub(super) fn digest(self, shown: impl Fn(&[u8]) -> &[u8]) -> String {
        let Self { mut entries, paths } = self;
        let name = |at: usize| shown(paths.get(at));
        sort_by_line(&mut entries, &name);
        let mut hasher = Xxh3::new();
        let mut lines = Vec::with_capacity(LINES_BYTES);
        for (hash, at) in entries {
            for byte in hash.to_be_bytes() {
                lines.extend_from_slice(&HEX[usize::from(byte)]);
            }
            lines.extend_from_slice(b"  ");
            lines.extend_from_slice(name(at));
            lines.push(b'\n');
            if lines.len() >= LINES_BYTES / 2 {
                hasher.update(&lines);
                lines.clear();
            }
        }
        hasher.update(&lines);
        format!("{:016x}", hasher.digest())
    }
}

/// Sorts entries as their lines sort. Parts are sorted by number on all cores and then merged: the
/// stable sort detects sorted runs. Entries with equal numbers are then sorted by path.
fn sort_by_line<'a>(entries: &mut [(u64, usize)], name: &impl Fn(usize) -> &'a [u8]) {
    let part = entries.len().div_ceil(ioloom::usable_cores() as usize).max(SORT_PART_MIN);
    if entries.len() > part {
        std::thread::scope(|scope| {
            let mut parts = entries.chunks_mut(part);
            let here = parts.next();
            for part in parts {
                scope.spawn(move || part.sort_unstable_by_key(|entry| entry.0));
            }
            here.into_iter().for_each(|part| part.sort_unstable_by_key(|entry| entry.0));
        });
        entries.sort_by_key(|entry| entry.0);
    } else {
        entries.sort_unstable_by_key(|entry| entry.0);
    }
    for alike in entries.chunk_by_mut(|a, b| a.0 == b.0).filter(|alike| alike.len() > 1) {
        let line = |entry: &(u64, usize)| name(entry.1).iter().chain(b"\n").copied();
        alike.sort_unstable_by(|a, b| line(a).cmp(line(b)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_sorted_lines() {
        let lines = "0000000000000001  a\n0000000000000001  z\n0000000000000002  b\n";
        let expected = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(lines.as_bytes()));
        let (mut hashes, mut other) = (Hashes::default(), Hashes::default());
        hashes.push(2, b"b");
        other.push(1, b"z");
        other.push(1, b"a");
        hashes.append(other);
        assert_eq!(hashes.digest(|path| path), expected);
        let (mut hashes, mut other) = (Hashes::default(), Hashes::default());
        hashes.push(2, b"r/b");
        other.push(1, b"r/z");
        other.push(1, b"r/a");
        hashes.append(other);
        assert_eq!(hashes.digest(|path| &path[2..]), expected);
    }

    #[test]
    fn many_lines_sorted_in_parts_are_sorted_lines() {
        let mut hashes = Hashes::default();
        let mut lines = Vec::new();
        for file in 0..3 * SORT_PART_MIN {
            let name = format!("file {file}");
            let hash = xxhash_rust::xxh3::xxh3_64(&(file % 1000).to_le_bytes());
            hashes.push(hash, name.as_bytes());
            lines.push(format!("{hash:016x}  {name}\n"));
        }
        lines.sort();
        let expected = xxhash_rust::xxh3::xxh3_64(lines.concat().as_bytes());
        assert_eq!(hashes.digest(|path| path), format!("{expected:016x}"));
    }
}
