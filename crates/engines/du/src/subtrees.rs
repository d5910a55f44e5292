//! Splits a tree into subtrees that can be scanned apart.
//!
//! Directories are expanded from the top, the shallowest first, until there are enough. An expanded directory is
//! scanned alone, that is, with its entries that are no directories; each directory in it is a subtree of
//! its own or is expanded, too. So every entry belongs to exactly one of them. The cost is one list of
//! names for each expanded directory; nothing below is read.

use crate::mounts::Unwanted;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::dir;
use ioloom_sys::mount::{Mount, mounts};
use ioloom_walk::Fields;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longer paths are not expanded: a scan can go deeper than a path can name, but must begin at one.
const PATH_BYTES_MAX: usize = 2048;

/// A directory that is scanned apart from others, or another argument.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subtree {
    /// Its path.
    pub path: PathBuf,
    /// Whether it is scanned without the directories in it.
    pub alone: bool,
}

/// The subtrees of a tree.
#[derive(Debug, Default)]
pub struct Subtrees {
    /// Sorted by path.
    pub list: Vec<Subtree>,
    /// Mount points that belong to none, with their file system types.
    pub not_entered: Vec<(PathBuf, String)>,
    /// Roots that cannot be queried.
    pub errors: Vec<PathError>,
}

/// A directory that can be expanded.
struct Candidate {
    path: PathBuf,
    /// The device and the mount of its root, on which `one_file_system` stays.
    device: (u32, u32),
    root: usize,
}

/// Splits `roots` into at least `wanted` subtrees, if they have so many directories. With
/// `one_file_system`, directories on other devices than their root are left out.
pub fn subtrees(roots: &[PathBuf], wanted: usize, one_file_system: bool) -> Subtrees {
    let mounts = mounts().unwrap_or_default();
    let mut found = Subtrees::default();
    let mut unwanted = Vec::new();
    let mut open = VecDeque::new();
    for (at, root) in roots.iter().enumerate() {
        let fields = Fields::IDENTITY | Fields::MOUNT;
        match dir::meta(root.as_os_str().as_bytes(), false, fields) {
            Err(error) => {
                found.errors.push(PathError::new(Operation::Access, root, error));
                unwanted.push(Unwanted::default());
                continue;
            }
            Ok(meta) => {
                unwanted.push(skipped(&mounts, root, meta.mount));
                match meta.kind {
                    dir::Kind::Directory => open.push_back(Candidate {
                        path: root.clone(),
                        device: meta.device,
                        root: at,
                    }),
                    _ => found.list.push(Subtree { path: root.clone(), alone: false }),
                }
            }
        }
    }
    while found.list.len() + open.len() < wanted
        && let Some(next) = open.pop_front()
    {
        if next.path.as_os_str().len() > PATH_BYTES_MAX {
            found.list.push(Subtree { path: next.path, alone: false });
            continue;
        }
        // The scan of a directory reports that it cannot be listed or queried.
        let children = children(&next.path).map(queried);
        let alone = children.is_some();
        let (children, failed) = children.unwrap_or_default();
        found.list.extend(failed.into_iter().map(|path| Subtree { path, alone: false }));
        for (child, meta) in children {
            if one_file_system && meta.device != next.device {
                continue;
            }
            match meta.mount.and_then(|id| unwanted[next.root].mounted(id)) {
                Some(kind) => found.not_entered.push((child, kind.to_owned())),
                None => open.push_back(Candidate { path: child, ..next }),
            }
        }
        found.list.push(Subtree { path: next.path, alone });
    }
    found.list.extend(open.into_iter().map(|c| Subtree { path: c.path, alone: false }));
    found.list.sort();
    found
}

fn skipped(mounts: &[Mount], root: &Path, mount: Option<u64>) -> Unwanted {
    match std::fs::canonicalize(root) {
        Ok(real) => Unwanted::below(mounts, &real, mount),
        Err(_) => Unwanted::default(),
    }
}

/// Returns the directories in a directory, or nothing if it cannot be listed completely.
fn children(path: &Path) -> Option<Vec<PathBuf>> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir(path).ok()? {
        let entry = entry.ok()?;
        if entry.file_type().ok()?.is_dir() {
            children.push(entry.path());
        }
    }
    Some(children)
}

/// Returns what directories are, without those that were removed since they were listed, and those that cannot
/// be queried.
fn queried(children: Vec<PathBuf>) -> (Vec<(PathBuf, dir::Meta)>, Vec<PathBuf>) {
    let (mut queried, mut failed) = (Vec::new(), Vec::new());
    for child in children {
        let fields = Fields::IDENTITY | Fields::MOUNT;
        match dir::meta(child.as_os_str().as_bytes(), false, fields) {
            Ok(meta) => queried.push((child, meta)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => failed.push(child),
        }
    }
    (queried, failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{ScanOptions, Scanner, scan};
    use std::sync::Arc;

    /// A tree with directories at three depths, files at all, and links between subtrees.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for a in 0..4 {
            for b in 0..3 {
                let dir = root.path().join(format!("a{a}/b{b}"));
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(dir.join("file"), vec![b'x'; 5000 * (a + 1)]).unwrap();
            }
            std::fs::write(root.path().join(format!("a{a}/direct")), "direct").unwrap();
        }
        let first = root.path().join("a0/b0/file");
        std::fs::hard_link(&first, root.path().join("a3/b2/link")).unwrap();
        std::fs::hard_link(&first, root.path().join("a0/link")).unwrap();
        std::os::unix::fs::symlink("a1", root.path().join("symlink")).unwrap();
        root
    }

    #[test]
    fn subtrees_contain_every_entry_once() {
        let tree = tree();
        let roots = [tree.path().to_owned()];
        let whole = scan(&roots, ScanOptions::default()).unwrap().total();
        for wanted in [0, 1, 2, 5, 6, 9, 17, 1000] {
            let found = subtrees(&roots, wanted, true);
            assert!(found.list.len() >= wanted.min(17), "{wanted}: {:?}", found.list);
            let paths: Vec<PathBuf> = found.list.iter().map(|s| s.path.clone()).collect();
            let options = ScanOptions::default();
            let mut scanner =
                Scanner::new(options, &paths, Arc::default(), Arc::default()).unwrap();
            for subtree in &found.list {
                match subtree.alone {
                    true => scanner.root_alone(&subtree.path).unwrap(),
                    false => scanner.root(&subtree.path).unwrap(),
                };
            }
            let linked = scanner.linked();
            assert_eq!(linked.iter().map(|(_, _, links)| *links).collect::<Vec<_>>(), [3]);
            assert_eq!(scanner.finish().total(), whole, "{wanted}");
        }
    }

    #[test]
    fn directories_that_cannot_be_queried_are_not_left_out() {
        let tree = tree();
        let (there, gone) = (tree.path().join("a1"), tree.path().join("gone"));
        // Below a file: the error is not that it is gone.
        let below = tree.path().join("a0/direct/x");
        let (found, failed) = queried(vec![below.clone(), there.clone(), gone]);
        assert_eq!(found.iter().map(|(path, _)| path).collect::<Vec<_>>(), [&there]);
        assert_eq!(failed, [below]);
    }

    #[test]
    fn arguments_that_are_no_directories_remain() {
        let tree = tree();
        let (file, gone) = (tree.path().join("a0/direct"), tree.path().join("gone"));
        let found = subtrees(&[file.clone(), gone.clone()], 9, false);
        assert_eq!(found.list, [Subtree { path: file, alone: false }]);
        assert_eq!(found.errors[0].path, gone);
    }
}
