//! Lists a directory tree using only the standard library, on one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use ioloom_walk::Kind;

/// One entry: type, inode, size, blocks, link count.
pub(crate) type Seen = (Kind, u64, u64, u64, u32);

/// Everything below `root`, including the root, by full path.
pub(crate) type Tree = BTreeMap<Vec<u8>, Seen>;

pub(crate) fn tree(root: &Path, follow: bool) -> Tree {
    let mut tree = Tree::new();
    visit(root, follow, &mut Vec::new(), &mut tree);
    tree
}

fn visit(path: &Path, follow: bool, above: &mut Vec<(u64, u64)>, tree: &mut Tree) {
    let followed = if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
    let meta = match followed {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            std::fs::symlink_metadata(path).unwrap()
        }
        Err(_) => return,
    };
    let identity = (meta.dev(), meta.ino());
    if meta.is_dir() && above.contains(&identity) {
        return;
    }
    let seen = (kind(meta.file_type()), meta.ino(), meta.len(), meta.blocks(), meta.nlink() as u32);
    tree.insert(path.as_os_str().as_bytes().to_vec(), seen);
    if meta.is_dir() {
        above.push(identity);
        for entry in std::fs::read_dir(path).into_iter().flatten() {
            visit(&entry.unwrap().path(), follow, above, tree);
        }
        above.pop();
    }
}

fn kind(file_type: std::fs::FileType) -> Kind {
    match file_type {
        t if t.is_file() => Kind::Regular,
        t if t.is_dir() => Kind::Directory,
        t if t.is_symlink() => Kind::Symlink,
        t if t.is_fifo() => Kind::Fifo,
        t if t.is_socket() => Kind::Socket,
        _ => Kind::Unknown,
    }
}

/// The total size of each directory, including everything below it.
pub(crate) fn sums(tree: &Tree) -> BTreeMap<Vec<u8>, u64> {
    let dirs: BTreeSet<_> = tree.iter().filter(|(_, seen)| seen.0 == Kind::Directory).collect();
    let below = |path: &[u8], dir: &[u8]| {
        path == dir || path.strip_prefix(dir).is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    dirs.into_iter()
        .map(|(dir, _)| {
            let inside = tree.iter().filter(|(path, _)| below(path, dir));
            (dir.clone(), inside.map(|(_, seen)| seen.2).sum())
        })
        .collect()
}
