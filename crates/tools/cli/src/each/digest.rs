//! Computes the digest over the hashes of all files.

use ioloom_walk::PathList;
use std::thread::Builder;
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

/// Entries per thread below which a second thread does not pay, and most whose lines one thread writes
/// before they are hashed.
const PART_MIN: usize = 4_096;
const LINES_PART_MAX: usize = 16_384;

/// Paths in one list, so that positions have 32 bits.
const LIST_MAX: usize = 1 << 24;

/// Capacity for a line; a longer one extends the buffer.
const LINE_BYTES: usize = 64;

/// Hashes of files, each with the place of its path in `lists`.
///
/// Each thread has its own. Joined, they keep their lists: a copy of all paths would cost more page
/// faults than anything else here.
#[derive(Default)]
pub(crate) struct Hashes {
    entries: Vec<(u64, Place)>,
    lists: Vec<PathList>,
}

/// Which list, and the position in it.
type Place = (u32, u32);

/// The list of paths that are known without being pushed.
const KNOWN: u32 = u32::MAX;

impl Hashes {
    /// Adds the hash of a file.
    pub(crate) fn push(&mut self, xxh3: u64, path: &[u8]) {
        if self.lists.last().is_none_or(|list| list.len() >= LIST_MAX) {
            self.lists.push(PathList::new());
        }
        let list = self.lists.len() - 1;
        self.entries.push((xxh3, (list as u32, self.lists[list].len() as u32)));
        self.lists[list].push(path);
    }

    /// Adds the hash of the file with a position in the known list.
    pub(super) fn push_known(&mut self, xxh3: u64, at: u32) {
        self.entries.push((xxh3, (KNOWN, at)));
    }

    /// Appends everything of `other`.
    pub(super) fn append(&mut self, other: Self) {
        if self.entries.is_empty() {
            *self = other;
            return;
        }
        let base = self.lists.len() as u32;
        let moved = other.entries.into_iter().map(|(hash, (list, at))| {
            let list = if list == KNOWN { KNOWN } else { base + list };
            (hash, (list, at))
        });
        self.entries.extend(moved);
        self.lists.extend(other.lists);
    }

    /// Returns XXH3-64 over the lines `HEX  PATH\n`, sorted by their bytes; `shown` maps a path to
    /// its form in the line, and `known` holds the paths that were not pushed. Every hash has sixteen
    /// digits, so sorting by number and then by path sorts the lines. All cores write them: in this order
    /// nearly every path is a cache miss.
    pub(crate) fn digest(self, known: &PathList, shown: impl Fn(&[u8]) -> &[u8] + Sync) -> String {
        let Self { mut entries, lists } = self;
        let list = |list: u32| if list == KNOWN { known } else { &lists[list as usize] };
        let name = |(at_list, at): Place| shown(list(at_list).get(at as usize));
        sort_by_line(&mut entries, &name);
        let mut hasher = Xxh3::new();
        let cores = ioloom::usable_cores() as usize;
        let part = entries.len().div_ceil(cores).clamp(PART_MIN, LINES_PART_MAX);
        for block in entries.chunks(part * cores) {
            std::thread::scope(|scope| {
                let write = |part| move || lines(part, &name);
                let mut parts = block.chunks(part);
                let here = parts.next().unwrap_or_default();
                let start = |part| (part, Builder::new().spawn_scoped(scope, write(part)));
                let others: Vec<_> = parts.map(start).collect();
                hasher.update(&lines(here, &name));
                for (part, thread) in others {
                    // Without a thread, the lines are written here.
                    let written = thread.map(|thread| {
                        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    });
                    hasher.update(&written.unwrap_or_else(|_| lines(part, &name)));
                }
            });
        }
        format!("{:016x}", hasher.digest())
    }
}

/// Writes the lines of entries.
fn lines<'a>(entries: &[(u64, Place)], name: &impl Fn(Place) -> &'a [u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(LINE_BYTES * entries.len());
    for (hash, at) in entries {
        let mut begin = *b"0000000000000000  ";
        for (digits, byte) in begin.chunks_exact_mut(2).zip(hash.to_be_bytes()) {
            digits.copy_from_slice(&HEX[usize::from(byte)]);
        }
        lines.extend_from_slice(&begin);
        lines.extend_from_slice(name(*at));
        lines.push(b'\n');
    }
    lines
}

/// Sorts entries as their lines sort. Parts are sorted by number on all cores and then merged: the
/// stable sort detects sorted runs. Entries with equal numbers are then sorted by path.
fn sort_by_line<'a>(entries: &mut [(u64, Place)], name: &impl Fn(Place) -> &'a [u8]) {
    let part = entries.len().div_ceil(ioloom::usable_cores() as usize).max(PART_MIN);
    if entries.len() > part {
        std::thread::scope(|scope| {
            let mut parts = entries.chunks_mut(part);
            let here = parts.next();
            for part in parts {
                let sort = move || part.sort_unstable_by_key(|entry| entry.0);
                // Without a thread, the merge sorts this part.
                drop(Builder::new().spawn_scoped(scope, sort));
            }
            here.into_iter().for_each(|part| part.sort_unstable_by_key(|entry| entry.0));
        });
        entries.sort_by_key(|entry| entry.0);
    } else {
        entries.sort_unstable_by_key(|entry| entry.0);
    }
    for alike in entries.chunk_by_mut(|a, b| a.0 == b.0).filter(|alike| alike.len() > 1) {
        let line = |entry: &(u64, Place)| name(entry.1).iter().chain(b"\n").copied();
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
        assert_eq!(hashes.digest(&PathList::new(), |path| path), expected);
        let (mut hashes, mut other) = (Hashes::default(), Hashes::default());
        let mut known = PathList::new();
        known.push(b"r/b");
        hashes.push_known(2, 0);
        other.push(1, b"r/z");
        other.push(1, b"r/a");
        hashes.append(other);
        assert_eq!(hashes.digest(&known, |path| &path[2..]), expected);
    }

    #[test]
    fn many_lines_sorted_in_parts_are_sorted_lines() {
        let mut hashes = Hashes::default();
        let mut lines = Vec::new();
        for file in 0..3 * PART_MIN {
            let name = format!("file {file}");
            let hash = xxhash_rust::xxh3::xxh3_64(&(file % 1000).to_le_bytes());
            hashes.push(hash, name.as_bytes());
            lines.push(format!("{hash:016x}  {name}\n"));
        }
        lines.sort();
        let expected = xxhash_rust::xxh3::xxh3_64(lines.concat().as_bytes());
        assert_eq!(hashes.digest(&PathList::new(), |path| path), format!("{expected:016x}"));
    }
}
