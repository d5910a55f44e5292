//! A scan as one JSON document, which `--json` prints, `--save` writes and `--diff` reads.
//!
//! Directories are stored as one flat list of paths, so nesting does not grow with the depth of the
//! tree. A path that is not valid UTF-8 appears twice: in readable form, and exactly, in
//! hexadecimal.

use crate::scan::{ERRORS_LISTED, Recorded};
use crate::tree::{Kind, Node};
use crate::{Newest, Scan, Tally, Tree};
use ioloom_walk::TablesUse;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};
use std::time::UNIX_EPOCH;

/// Version of the document.
pub const SCHEMA: u32 = 1;

/// A scan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// Format version.
    pub schema: u32,
    /// Always `du`.
    pub command: String,
    /// Whether the scan is complete; false after an interruption or an unreadable path.
    pub complete: bool,
    /// Whether the scan was interrupted.
    pub interrupted: bool,
    /// Maximum depth of directories in the list; null if unlimited.
    pub depth_max: Option<u32>,
    /// Whether the list is limited to the largest directories, or to those that a threshold shows.
    #[serde(default)]
    pub selected: bool,
    /// The options that decide which entries it counts and lists; null if they are not known, as for an import.
    #[serde(default)]
    pub options: Option<Recorded>,
    /// How sizes were read; null for an import.
    pub method: Option<String>,
    /// Number of threads, with the reason if it was chosen automatically.
    pub threads: Option<String>,
    /// Inode table statistics for each device; empty for all other methods. With inode tables,
    /// sizes are those at the time of a sync.
    #[serde(default)]
    pub inode_tables: Vec<InodeTables>,
    /// Seconds from the start to the last entry; 0 for an import.
    pub elapsed_ns: u64,
    /// Start time in seconds since 1970; for an import, that of the export, or 0 if it has none.
    pub started_unix_s: u64,
    /// Totals over all roots.
    pub total: Tally,
    /// The roots, in command-line order.
    pub roots: Vec<Line>,
    /// Directories below the roots down to the requested depth, sorted by name within each root;
    /// with `--all`, other entries too.
    pub directories: Vec<Line>,
    /// File systems below the roots that were not entered.
    pub not_entered: Vec<NotEntered>,
    /// Entries that an import excludes.
    #[serde(default)]
    pub excluded: Vec<ExcludedEntry>,
    /// Number of names that disappeared before they could be read. They take no space and are not
    /// errors.
    #[serde(default)]
    pub vanished: u64,
    /// Number of paths that could not be read.
    pub errors: u64,
    /// The first error messages.
    pub error_samples: Vec<String>,
}

/// A root, a directory or another entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Path, starting with the root as specified.
    pub path: String,
    /// The path bytes in hexadecimal if the path is not valid UTF-8; otherwise null.
    pub path_hex: Option<String>,
    /// Zero-based index of the root that contains it.
    pub root: u32,
    /// Depth below the root.
    pub depth: u32,
    /// `directory`, `file`, `symlink` or `other`.
    pub kind: String,
    /// Apparent size in bytes, including everything below.
    pub apparent_bytes: u64,
    /// Disk usage in bytes, including everything below.
    pub disk_bytes: u64,
    /// Number of entries, including this one and everything below.
    pub inodes: u64,
    /// Disk usage in bytes of files with hard links both inside and outside this directory.
    pub shared_bytes: u64,
    /// Whether this is a directory that could not be read, or in an import, any entry with a read error.
    pub unreadable: bool,
}

/// Inode table statistics for one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeTables {
    /// The block device.
    pub device: String,
    /// Start of the sync to which the sizes belong, in seconds since 1970.
    pub synced_unix_s: u64,
    /// Whether each inode was verified by a checksum.
    pub checksums: bool,
    /// Number of entries whose inode was read from the table.
    pub entries_read: u64,
    /// Number of entries that were read with `statx` instead.
    pub entries_asked: u64,
    /// Number of entries that were read both ways.
    pub entries_sampled: u64,
    /// Number of entries that were read both ways and had changed since the sync.
    pub entries_changed: u64,
}

/// A file system that was not entered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotEntered {
    /// Mount point.
    pub path: String,
    /// File system type.
    pub file_system: String,
}

/// An entry that an import excludes. It does not count, unless it is a directory with contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExcludedEntry {
    /// Path, starting with the root as specified.
    pub path: String,
    /// The path bytes in hexadecimal if the path is not valid UTF-8; otherwise null.
    pub path_hex: Option<String>,
    /// The reason, as in the export: `pattern`, `otherfs`, `kernfs` or `frmlnk`.
    pub reason: String,
}

/// The reason why a saved scan cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading failed, or the text is not a saved scan.
    #[error("not a saved scan: {0}; create one with 'ioloom du --save FILE DIR'")]
    Json(#[from] serde_json::Error),
    /// The document has another type or version.
    #[error(
        "not a saved scan that this version can read (command '{command}', schema {schema}); \
         create one with 'ioloom du --save FILE DIR'"
    )]
    Other {
        /// The document type.
        command: String,
        /// The document version.
        schema: u32,
    },
    /// A path has an invalid encoding.
    #[error("invalid hexadecimal path in the saved scan: '{0}'; the file is damaged")]
    Path(String),
}

impl Line {
    /// Returns the path bytes.
    pub fn path_bytes(&self) -> Result<Vec<u8>, ReadError> {
        let Some(hex) = &self.path_hex else { return Ok(self.path.clone().into_bytes()) };
        let wrong = || ReadError::Path(hex.clone());
        let digits: Option<Vec<u32>> = hex.chars().map(|c| c.to_digit(16)).collect();
        let digits = digits.filter(|d| d.len().is_multiple_of(2)).ok_or_else(wrong)?;
        Ok(digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
    }

    /// Returns the path by which it is compared: that of a root without slashes at its end, unless it is `/` or one of
    /// `roots` has that path, such as a link that is not followed.
    fn key(&self, roots: &HashSet<Vec<u8>>) -> Result<Vec<u8>, ReadError> {
        let mut path = self.path_bytes()?;
        let length = path.iter().rposition(|byte| *byte != b'/').map_or(path.len(), |at| at + 1);
        if self.depth == 0 && !roots.contains(&path[..length]) {
            path.truncate(length);
        }
        Ok(path)
    }

    /// Returns the totals.
    pub const fn tally(&self) -> Tally {
        Tally {
            apparent_bytes: self.apparent_bytes,
            disk_bytes: self.disk_bytes,
            inodes: self.inodes,
            newest: Newest((i64::MIN, 0)),
        }
    }
}

/// Returns a path as text and, if it is not UTF-8, also in hexadecimal.
fn spelled(path: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(path) {
        Ok(path) => (path, None),
        Err(e) => {
            let hex = e.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
            (String::from_utf8_lossy(e.as_bytes()).into_owned(), Some(hex))
        }
    }
}

/// Returns the excluded entries of a tree.
fn excluded(tree: &Tree) -> Vec<ExcludedEntry> {
    let entry = |(at, node): (usize, &Node)| {
        let reason = node.excluded?.word().to_owned();
        let (path, path_hex) = spelled(tree.path(at));
        Some(ExcludedEntry { path, path_hex, reason })
    };
    tree.nodes().iter().enumerate().filter_map(entry).collect()
}

fn tables(used: &TablesUse) -> InodeTables {
    let since = used.synced.duration_since(UNIX_EPOCH).unwrap_or_default();
    InodeTables {
        device: used.device.to_string_lossy().into_owned(),
        synced_unix_s: since.as_secs(),
        checksums: used.checksums,
        entries_read: used.read,
        entries_asked: used.asked,
        entries_sampled: used.sampled,
        entries_changed: used.changed,
    }
}

impl Document {
    /// Creates the document for a scan. `keep` selects the listed nodes of each root.
    pub fn of(scan: &Scan, depth_max: Option<u32>, keep: &dyn Fn(usize, usize) -> bool) -> Self {
        let line = |root: usize, at: usize| {
            let tree = &scan.roots[root];
            let node = &tree.nodes()[at];
            let (path, path_hex) = spelled(tree.path(at));
            Line {
                path,
                path_hex,
                root: root as u32,
                depth: node.depth,
                kind: match node.kind {
                    Kind::Directory => "directory",
                    Kind::Regular => "file",
                    Kind::Symlink => "symlink",
                    Kind::Other => "other",
                }
                .to_owned(),
                apparent_bytes: node.total.apparent_bytes,
                disk_bytes: node.total.disk_bytes,
                inodes: node.total.inodes,
                shared_bytes: node.shared_bytes,
                unreadable: node.unreadable,
            }
        };
        let below = scan.roots.iter().enumerate().flat_map(|(root, tree)| {
            (1..tree.nodes().len()).filter(move |at| keep(root, *at)).map(move |at| (root, at))
        });
        Self {
            schema: SCHEMA,
            command: "du".to_owned(),
            complete: !scan.interrupted && scan.errors_count == 0,
            interrupted: scan.interrupted,
            depth_max,
            selected: false,
            options: scan.options.clone(),
            method: scan.method.clone(),
            threads: scan.threads.clone(),
            inode_tables: scan.inode_tables.iter().map(tables).collect(),
            elapsed_ns: scan.elapsed_ns,
            started_unix_s: scan.started_unix_s,
            total: scan.total(),
            roots: (0..scan.roots.len()).map(|root| line(root, 0)).collect(),
            directories: below.map(|(root, at)| line(root, at)).collect(),
            not_entered: scan
                .not_entered
                .iter()
                .map(|(path, kind)| NotEntered {
                    path: path.to_string_lossy().into_owned(),
                    file_system: kind.clone(),
                })
                .collect(),
            excluded: scan.roots.iter().flat_map(excluded).collect(),
            vanished: scan.vanished,
            errors: scan.errors_count,
            error_samples: scan.errors.iter().take(ERRORS_LISTED).map(String::clone).collect(),
        }
    }

    fn root_paths(&self) -> Result<HashSet<Vec<u8>>, ReadError> {
        self.roots.iter().map(Line::path_bytes).collect()
    }

    /// Reads a saved scan.
    pub fn read(reader: impl Read) -> Result<Self, ReadError> {
        let document: Self = serde_json::from_reader(io::BufReader::new(reader))?;
        if (document.command.as_str(), document.schema) != ("du", SCHEMA) {
            let Self { command, schema, .. } = document;
            return Err(ReadError::Other { command, schema });
        }
        Ok(document)
    }
}

/// The difference in one path between two scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The path.
    pub path: Vec<u8>,
    /// Totals in the older scan; `None` if the path did not exist.
    pub old: Option<Tally>,
    /// Totals in the newer scan; `None` if the path no longer exists.
    pub new: Option<Tally>,
}

/// The differences between two scans.
#[derive(Debug)]
pub struct Comparison {
    /// The changed paths, in order.
    pub changes: Vec<Change>,
    /// Whether no path is in both scans.
    pub is_disjoint: bool,
}

/// Compares two scans path by path, down to the depth available in both, and other entries than directories and
/// roots only if both list all. Slashes at the end of a root do not matter.
pub fn compare(old: &Document, new: &Document) -> Result<Comparison, ReadError> {
    let mut all: BTreeMap<Vec<u8>, (Option<Tally>, Option<Tally>)> = BTreeMap::new();
    let (old_roots, new_roots) = (old.root_paths()?, new.root_paths()?);
    let depth_max = [old, new].into_iter().filter_map(|d| d.depth_max).min().unwrap_or(u32::MAX);
    let files = [old, new].iter().all(|d| d.options.as_ref().is_some_and(|options| options.all));
    let shown = |line: &&Line| {
        line.depth <= depth_max && (files || line.depth == 0 || line.kind == "directory")
    };
    for line in old.roots.iter().chain(&old.directories).filter(shown) {
        all.entry(line.key(&old_roots)?).or_default().0 = Some(line.tally());
    }
    for line in new.roots.iter().chain(&new.directories).filter(shown) {
        all.entry(line.key(&new_roots)?).or_default().1 = Some(line.tally());
    }
    let is_disjoint = all.values().all(|(old, new)| old.is_none() || new.is_none());
    let changed = all.into_iter().filter(|(_, (old, new))| old != new);
    let changes = changed.map(|(path, (old, new))| Change { path, old, new }).collect();
    Ok(Comparison { changes, is_disjoint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Detail, ScanOptions};

    fn line(path: &str, bytes: u64) -> Line {
        Line {
            path: path.to_owned(),
            path_hex: None,
            root: 0,
            depth: 0,
            kind: "directory".to_owned(),
            apparent_bytes: bytes,
            disk_bytes: bytes,
            inodes: 1,
            shared_bytes: 0,
            unreadable: false,
        }
    }

    fn document(lines: &[(&str, u64)]) -> Document {
        Document {
            schema: SCHEMA,
            command: "du".to_owned(),
            complete: true,
            interrupted: false,
            depth_max: None,
            selected: false,
            options: None,
            method: None,
            threads: None,
            inode_tables: vec![],
            elapsed_ns: 0,
            started_unix_s: 0,
            total: Tally::default(),
            roots: vec![],
            directories: lines.iter().map(|(path, bytes)| line(path, *bytes)).collect(),
            not_entered: vec![],
            excluded: vec![],
            vanished: 0,
            errors: 0,
            error_samples: vec![],
        }
    }

    #[test]
    fn changes_list_grown_new_and_removed_paths() {
        let old = document(&[("a", 1), ("same", 5), ("gone", 2)]);
        let new = document(&[("a", 4), ("same", 5), ("new", 3)]);
        let found = compare(&old, &new).unwrap().changes;
        let found: Vec<_> = found
            .iter()
            .map(|c| {
                let bytes = |t: Option<Tally>| t.map(|t| t.disk_bytes);
                (String::from_utf8_lossy(&c.path).into_owned(), bytes(c.old), bytes(c.new))
            })
            .collect();
        let expected = [
            ("a".to_owned(), Some(1), Some(4)),
            ("gone".to_owned(), Some(2), None),
            ("new".to_owned(), None, Some(3)),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn files_are_compared_if_both_scans_list_them() {
        let (mut old, mut new) = (document(&[("r/f", 1)]), document(&[]));
        (old.directories[0].kind, old.directories[0].depth) = ("file".to_owned(), 1);
        assert!(compare(&old, &new).unwrap().changes.is_empty());
        let options = ScanOptions { detail: Detail::ALL, ..ScanOptions::default() };
        old.options = Some(Recorded::of(&options));
        assert!(compare(&old, &new).unwrap().changes.is_empty());
        new.options = Some(Recorded::of(&options));
        assert_eq!(compare(&old, &new).unwrap().changes.len(), 1);
    }

    #[test]
    fn roots_are_compared_without_slashes_at_their_ends() {
        let with = |roots: &[(&str, u64)], below: &[(&str, u64)]| {
            let mut document = document(below);
            document.directories.iter_mut().for_each(|line| line.depth = 1);
            document.roots = roots.iter().map(|(path, bytes)| line(path, *bytes)).collect();
            document
        };
        let below = [("t/a", 1)];
        for (old, new, changes, is_disjoint) in [
            (&[("t", 3)][..], &[("t/", 3)][..], 0, false),
            (&[("t/", 3)], &[("t", 4)], 1, false),
            (&[("t", 1), ("t/", 3)], &[("t", 1), ("t/", 4)], 1, false),
        ] {
            let compared = compare(&with(old, &below), &with(new, &below)).unwrap();
            assert_eq!((compared.changes.len(), compared.is_disjoint), (changes, is_disjoint));
        }
        for (old, new, changes, is_disjoint) in
            [("/", "/", 0, false), ("t", "./t", 2, true), ("//", "/", 2, true)]
        {
            let compared = compare(&with(&[(old, 3)], &[]), &with(&[(new, 3)], &[])).unwrap();
            assert_eq!((compared.changes.len(), compared.is_disjoint), (changes, is_disjoint));
        }
    }

    #[test]
    fn options_that_change_sizes_differ() {
        let record = |options: ScanOptions| Recorded::of(&options);
        let plain = record(ScanOptions::default());
        let all = record(ScanOptions { detail: Detail::ALL, ..ScanOptions::default() });
        assert_eq!(plain.difference(&all), None);
        let mut excluding = ScanOptions::default();
        excluding.exclude.add(b"*.o");
        excluding.exclude.add(b"\xff");
        let excluding = record(excluding);
        assert_eq!(excluding.exclude, ["*.o", "\\xff"]);
        assert_eq!(plain.difference(&excluding), Some("--exclude"));
        let linked = record(ScanOptions { count_links: true, ..ScanOptions::default() });
        assert_eq!(linked.difference(&plain), Some("--count-links (-l)"));
    }

    #[test]
    fn a_document_parses_back_and_others_are_rejected() {
        let written = serde_json::to_vec(&document(&[("a", 1)])).unwrap();
        let back = Document::read(&written[..]).unwrap();
        assert_eq!(back.directories, [line("a", 1)]);
        let other = String::from_utf8(written).unwrap().replace("\"schema\":1", "\"schema\":9");
        assert!(Document::read(other.as_bytes()).unwrap_err().to_string().contains("schema 9"));
        assert!(Document::read(&b"{}"[..]).is_err());
        let mut odd = line("a\u{FFFD}", 1);
        odd.path_hex = Some("61ff".to_owned());
        assert_eq!(odd.path_bytes().unwrap(), b"a\xff");
        odd.path_hex = Some("6".to_owned());
        assert!(odd.path_bytes().is_err());
    }
}
