//! The content of a tree, read using only the standard library and rustix: an oracle that shares no
//! code with the copier.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// One name in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind_and_mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) modified: (i64, i64),
    pub(crate) stands_for: u64,
    pub(crate) content: Content,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first name of the same file.
    pub(crate) first_name: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    Link(Vec<u8>),
    Other,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => {
                let sum = bytes.iter().fold(0u64, |sum, b| sum.wrapping_mul(31) + u64::from(*b));
                write!(f, "{} bytes with sum {sum:x}", bytes.len())
            }
            Self::Link(to) => write!(f, "link to {}", String::from_utf8_lossy(to)),
            Self::Other => f.write_str("other"),
        }
    }
}

/// Every name below `root`; the root itself has the empty name.
pub(crate) type Snapshot = BTreeMap<Vec<u8>, Entry>;

/// Reads a tree.
pub(crate) fn snapshot(root: &Path) -> Snapshot {
    let mut all = BTreeMap::new();
    let mut first = HashMap::new();
    visit(root, b"", &mut all, &mut first);
    all
}

fn visit(path: &Path, name: &[u8], all: &mut Snapshot, first: &mut HashMap<(u64, u64), Vec<u8>>) {
    let meta = std::fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let content = if kind.is_file() {
        Content::Bytes(std::fs::read(path).unwrap())
    } else if kind.is_symlink() {
        Content::Link(std::fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec())
    } else {
        Content::Other
    };
    // Read again: reading must not have changed the compared times.
    let first_name = match kind.is_dir() {
        true => name.to_vec(),
        false => first.entry((meta.dev(), meta.ino())).or_insert_with(|| name.to_vec()).clone(),
    };
    let entry = Entry {
        kind_and_mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        modified: (meta.mtime(), meta.mtime_nsec()),
        stands_for: meta.rdev(),
        content,
        xattrs: xattrs(path),
        first_name,
    };
    all.insert(name.to_vec(), entry);
    if kind.is_dir() {
        let mut names: Vec<_> =
            std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        for child in names {
            let mut relative = name.to_vec();
            relative.push(b'/');
            relative.extend_from_slice(child.as_bytes());
            visit(&path.join(&child), &relative, all, first);
        }
    }
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut list = vec![0u8; 65536];
    let Ok(n) = rustix::fs::llistxattr(path, &mut list[..]) else { return BTreeMap::new() };
    let names = list[..n].split(|b| *b == 0).filter(|name| !name.is_empty());
    names
        .filter(|name| !name.starts_with(b"security."))
        .map(|name| {
            let mut value = vec![0u8; 65536];
            let c_name = CString::new(name).unwrap();
            let n = rustix::fs::lgetxattr(path, c_name.as_c_str(), &mut value[..]).unwrap();
            value.truncate(n);
            (name.to_vec(), value)
        })
        .collect()
}

/// Returns the differences between two trees; empty if they are equal.
pub(crate) fn differences(one: &Snapshot, two: &Snapshot) -> Vec<String> {
    let mut all = Vec::new();
    let word = |name: &[u8]| format!("{:?}", OsStr::from_bytes(name));
    for (name, entry) in one {
        match two.get(name) {
            None => all.push(format!("{} is missing", word(name))),
            Some(other) if other != entry => {
                all.push(format!("{}: {entry:?} became {other:?}", word(name)));
            }
            Some(_) => {}
        }
    }
    let more = two.keys().filter(|name| !one.contains_key(*name));
    all.extend(more.map(|name| format!("{} is extra", word(name))));
    all
}
