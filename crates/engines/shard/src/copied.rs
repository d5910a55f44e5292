//! The result of copying one shard, as lines.
//!
//! `total FILES HARD_LINKS DIRECTORIES SYMLINKS SPECIALS SKIPPED BYTES`; `link DEVICE INODE BYTES` for each
//! file with several names, because other shards can have copied it under another name; `directory INDEX INODE
//! CREATED INODE CREATED` for each directory that was copied without the directories in it, and for its copy, because
//! the last step needs the same ones; and `failed MESSAGE` with the message as a JSON string. The device is `-` if it
//! is that of the first argument of the plan: its number can differ between hosts. Other words are `-` if they are
//! unknown.

use std::io::Write;

/// A file with several names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The device, or nothing for that of the first argument of the plan.
    pub device: Option<u64>,
    /// The inode.
    pub inode: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What identifies a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The inode.
    pub inode: u64,
    /// When it was created, in nanoseconds since 1970, or nothing if its file system does not record that.
    pub created_ns: Option<u64>,
}

/// A directory of the source that other shards fill, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shared {
    /// Its position in the manifest of the shard, from 0.
    pub index: u64,
    /// The directory.
    pub source: Identity,
    /// Its copy, or nothing if it was not created.
    pub copy: Option<Identity>,
}

/// What was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Names that became hard links to a copy.
    pub hard_links: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Pipes, sockets and devices.
    pub specials: u64,
    /// Entries whose existing target was kept.
    pub skipped: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Files with several names.
    pub links: Vec<Link>,
    /// Directories that other shards fill, too.
    pub shared: Vec<Shared>,
    /// Why entries were not copied.
    pub errors: Vec<String>,
}

impl Copied {
    fn counts(&self) -> [u64; 7] {
        let Self { files, hard_links, directories, symlinks, specials, skipped, bytes, .. } = *self;
        [files, hard_links, directories, symlinks, specials, skipped, bytes]
    }

    fn with_counts(self, counts: [u64; 7]) -> Self {
        let [files, hard_links, directories, symlinks, specials, skipped, bytes] = counts;
        Self { files, hard_links, directories, symlinks, specials, skipped, bytes, ..self }
    }

    /// Adds the counts and errors of another shard.
    pub fn add(&mut self, other: &Self) {
        let mut sums = self.counts();
        for (sum, count) in sums.iter_mut().zip(other.counts()) {
            *sum = sum.saturating_add(count);
        }
        *self = std::mem::take(self).with_counts(sums);
        self.errors.extend_from_slice(&other.errors);
    }
}

/// Returns the lines of a result.
pub fn encode(copied: &Copied) -> Vec<u8> {
    let mut out = Vec::new();
    let counts = copied.counts().map(|count| count.to_string()).join(" ");
    // Writing to memory cannot fail.
    let _ = writeln!(out, "total {counts}");
    for Link { device, inode, bytes } in &copied.links {
        let device = device.map_or_else(|| "-".to_owned(), |device| device.to_string());
        let _ = writeln!(out, "link {device} {inode} {bytes}");
    }
    let word = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
    for Shared { index, source, copy } in &copied.shared {
        let (created, inode) = (word(source.created_ns), word(copy.map(|copy| copy.inode)));
        let copy_created = word(copy.and_then(|copy| copy.created_ns));
        let _ =
            writeln!(out, "directory {index} {} {created} {inode} {copy_created}", source.inode);
    }
    for error in &copied.errors {
        let _ = writeln!(out, "failed {}", serde_json::Value::from(error.as_str()));
    }
    out
}

/// Parses lines of a result. Returns `None` if a line is none, or if there is not exactly one total.
pub fn decode(body: &[u8]) -> Option<Copied> {
    let (mut total, mut rest) = (None, Copied::default());
    for line in std::str::from_utf8(body).ok()?.lines() {
        let (kind, text) = line.split_once(' ')?;
        match kind {
            "total" if total.is_none() => {
                let counts: Option<Vec<u64>> =
                    text.split(' ').map(|word| word.parse().ok()).collect();
                total = Some(<[u64; 7]>::try_from(counts?).ok()?);
            }
            "link" => {
                let words: Vec<&str> = text.split(' ').collect();
                let [device, inode, bytes] = *words else { return None };
                let device = number_unless_dash(device)?;
                let (inode, bytes) = (inode.parse().ok()?, bytes.parse().ok()?);
                rest.links.push(Link { device, inode, bytes });
            }
            "directory" => {
                let words: Vec<&str> = text.split(' ').collect();
                let [index, inode, created, copy_inode, copy_created] = *words else { return None };
                let created_ns = number_unless_dash(created)?;
                let source = Identity { inode: inode.parse().ok()?, created_ns };
                let created_ns = number_unless_dash(copy_created)?;
                let copy = number_unless_dash(copy_inode)?;
                let copy = copy.map(|inode| Identity { inode, created_ns });
                rest.shared.push(Shared { index: index.parse().ok()?, source, copy });
            }
            "failed" => rest.errors.push(serde_json::from_str(text).ok()?),
            _ => return None,
        }
    }
    total.map(|counts| rest.with_counts(counts))
}

/// Returns a number, or nothing for `-`; `None` if the word is neither.
fn number_unless_dash(word: &str) -> Option<Option<u64>> {
    if word == "-" { Some(None) } else { word.parse().ok().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_copied() -> impl Strategy<Value = Copied> {
        let links = proptest::collection::vec(any::<(Option<u64>, u64, u64)>(), 0..9);
        let errors = proptest::collection::vec(any::<String>(), 0..9);
        let identity = || any::<(u64, Option<u64>)>();
        let identity = || identity().prop_map(|(inode, created_ns)| Identity { inode, created_ns });
        let directory = (any::<u64>(), identity(), proptest::option::of(identity()));
        let shared = proptest::collection::vec(directory, 0..9);
        (any::<[u64; 7]>(), links, shared, errors).prop_map(|(counts, links, shared, errors)| {
            let link = |(device, inode, bytes)| Link { device, inode, bytes };
            let links = links.into_iter().map(link).collect();
            let directory = |(index, source, copy)| Shared { index, source, copy };
            let shared = shared.into_iter().map(directory).collect();
            Copied { links, shared, errors, ..Copied::default() }.with_counts(counts)
        })
    }

    proptest! {
        #[test]
        fn a_result_is_read_as_written(copied in any_copied()) {
            prop_assert_eq!(decode(&encode(&copied)).unwrap(), copied);
        }
    }

    #[test]
    fn counts_and_errors_are_added() {
        let part = |files, error: &str| Copied {
            files,
            bytes: 10 * files,
            errors: vec![error.to_owned()],
            ..Copied::default()
        };
        let mut sum = part(1, "a");
        sum.add(&part(2, "b"));
        let errors = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(sum, Copied { files: 3, bytes: 30, errors, ..Copied::default() });
    }

    #[test]
    fn other_lines_are_refused() {
        for wrong in [
            "",
            "total",
            "total 1 2 3 4 5 6",
            "total 1 2 3 4 5 6 x",
            "total 1 2 3 4 5 6 7 8",
            "total 1 2 3 4 5 6 7\ntotal 1 2 3 4 5 6 7",
            "total 1 2 3 4 5 6 7\nlink - 1",
            "total 1 2 3 4 5 6 7\nlink x 1 2",
            "total 1 2 3 4 5 6 7\ndirectory 1 2 3 4",
            "total 1 2 3 4 5 6 7\ndirectory 1 - 3 4 5",
            "total 1 2 3 4 5 6 7\ndirectory 1 2 3 4 x",
            "total 1 2 3 4 5 6 7\nfailed x",
            "link - 1 2",
        ] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
