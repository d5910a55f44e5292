//! Visitors that collect or count entries, and trees to walk.

use crate::oracle::{Seen, Tree};
use crate::touch;
use ioloom_failure::PathError;
use ioloom_walk::{
    Control, DirRef, Fields, Found, Kind, Method, NewDir, Report, Threads, Visitor, Walk,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) const ALL: Fields = Fields::BYTES;
pub(crate) const METHODS: [Method; 4] =
    [Method::Statx, Method::Lstat, Method::Uring, Method::Sweep];

/// The state of a directory: its total, and whether the walk has left it.
#[derive(Default)]
pub(crate) struct Node {
    bytes: AtomicU64,
    left: AtomicBool,
}

/// Collects all entries, adds up totals, and checks the order of calls.
#[derive(Default)]
pub(crate) struct Collect {
    pub(crate) seen: Vec<(Vec<u8>, Seen)>,
    pub(crate) sums: Vec<(Vec<u8>, u64)>,
    pub(crate) bytes: u64,
    pub(crate) entered: u64,
    pub(crate) left: u64,
    pub(crate) partly: Vec<PathBuf>,
    pub(crate) failed: Vec<(Option<PathBuf>, PathBuf)>,
    pub(crate) looped: u64,
    pub(crate) roots: Vec<(usize, PathBuf, Kind)>,
    pub(crate) stop_at: Option<u64>,
    pub(crate) remove: Option<PathBuf>,
    pub(crate) mounts: Vec<(Vec<u8>, Option<u64>)>,
}

fn seen(kind: Kind, inode: u64, meta: Option<&ioloom_walk::Meta>) -> Seen {
    meta.map_or((kind, inode, 0, 0, 0), |m| (m.kind, m.inode, m.bytes, m.blocks_512, m.links))
}

impl Visitor for Collect {
    type Dir = Node;

    fn wants(&mut self, dir: DirRef<'_, Node>, name: &[u8], _kind: Kind) -> bool {
        assert!(!dir.data().left.load(Ordering::Relaxed));
        name != b"unwanted"
    }

    fn enter(&mut self, dir: &NewDir<'_, Node>) -> Option<Node> {
        if dir.name == b"pruned" {
            return None;
        }
        self.entered += 1;
        let path = dir.path().into_os_string();
        let inode = dir.meta.map_or(0, |m| m.inode);
        self.seen.push((path.as_bytes().to_vec(), seen(Kind::Directory, inode, dir.meta)));
        self.mounts.push((path.as_bytes().to_vec(), dir.meta.and_then(|m| m.mount)));
        let node = Node::default();
        node.bytes.store(dir.meta.map_or(0, |m| m.bytes), Ordering::Relaxed);
        Some(node)
    }

    fn entry(&mut self, dir: DirRef<'_, Node>, found: &Found<'_>) -> Control {
        assert!(
            !dir.data().left.load(Ordering::Relaxed),
            "entry visited after leaving its directory"
        );
        let path = dir.path_of(found.name).into_os_string();
        self.seen.push((path.as_bytes().to_vec(), seen(found.kind, found.inode, found.meta)));
        self.bytes += found.meta.map_or(0, |m| m.bytes);
        if let Some(path) = self.remove.take() {
            std::fs::remove_dir_all(path).unwrap();
        }
        match &mut self.stop_at {
            Some(0) => return Control::Stop,
            Some(left) => *left -= 1,
            None => {}
        }
        Control::Continue
    }

    fn root_entry(&mut self, root: usize, path: &Path, found: &Found<'_>) -> Control {
        self.roots.push((root, path.to_owned(), found.kind));
        Control::Continue
    }

    fn part(&mut self, dir: DirRef<'_, Node>) {
        assert!(
            !dir.data().left.load(Ordering::Relaxed),
            "part visited after leaving its directory"
        );
        dir.data().bytes.fetch_add(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }

    fn leave(&mut self, dir: DirRef<'_, Node>) {
        assert_eq!(self.bytes, 0, "totals of the previous directory were not added");
        assert!(!dir.data().left.swap(true, Ordering::Relaxed), "directory left twice");
        self.left += 1;
        let bytes = dir.data().bytes.load(Ordering::Relaxed);
        self.sums.push((dir.path().into_os_string().as_bytes().to_vec(), bytes));
        if !dir.is_whole() {
            self.partly.push(dir.path());
        }
        if let Some(parent) = dir.parent() {
            assert!(!parent.data().left.load(Ordering::Relaxed), "parent left before its child");
            parent.data().bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn failed(&mut self, dir: Option<DirRef<'_, Node>>, error: &PathError) {
        self.failed.push((dir.map(|dir| dir.path()), error.path.clone()));
    }

    fn looped(&mut self, _dir: DirRef<'_, Node>, _name: &[u8]) {
        self.looped += 1;
    }
}

pub(crate) fn walk(method: Method, threads: usize) -> Walk {
    let threads = Threads::Count(threads);
    Walk { method, threads, fields: ALL | Fields::DISK | Fields::LINKS, ..Walk::default() }
}

/// Runs a walk, merges the results of all threads, and checks the invariants of every walk.
pub(crate) fn collect(walk: &Walk, roots: &[PathBuf]) -> (Tree, Collect, Report) {
    collect_with(walk, roots, |_| Collect::default())
}

pub(crate) fn collect_with(
    walk: &Walk,
    roots: &[PathBuf],
    make: impl Fn(usize) -> Collect + Sync,
) -> (Tree, Collect, Report) {
    let (visitors, report) = walk.run(roots, make).unwrap();
    assert_eq!(visitors.len(), report.threads);
    let mut all = Collect::default();
    for one in visitors {
        all.seen.extend(one.seen);
        all.sums.extend(one.sums);
        all.entered += one.entered;
        all.left += one.left;
        all.partly.extend(one.partly);
        all.failed.extend(one.failed);
        all.looped += one.looped;
        all.roots.extend(one.roots);
        all.mounts.extend(one.mounts);
    }
    assert_eq!(all.entered, all.left, "each entered directory is left exactly once");
    assert_eq!(all.entered, report.directories);
    assert_eq!(all.failed.len() as u64, report.errors_count);
    let count = all.seen.len();
    let tree: Tree = all.seen.drain(..).collect();
    assert_eq!(tree.len(), count, "an entry was visited twice");
    assert!(!report.threads_why.is_empty());
    (tree, all, report)
}

pub(crate) fn one(root: &Path) -> [PathBuf; 1] {
    [root.to_owned()]
}

/// A tree with every file type, hard links, unusual names and a wide directory.
pub(crate) fn varied() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    fill(temp.path());
    temp
}

pub(crate) fn fill(root: &Path) {
    for d in 0..30 {
        let dir = root.join(format!("d{}/e{d}", d % 7));
        std::fs::create_dir_all(&dir).unwrap();
        for f in 0..d {
            std::fs::write(dir.join(format!("f{f}")), vec![1u8; f * 700]).unwrap();
        }
    }
    for name in [&b"new\nline"[..], b"\xff\xfe", b" ", b"-rf", b"a'\"b"] {
        touch(root.join(OsStr::from_bytes(name)));
        std::fs::create_dir(root.join("d0").join(OsStr::from_bytes(name))).unwrap();
        touch(root.join("d0").join(OsStr::from_bytes(name)).join("in"));
    }
    std::fs::hard_link(root.join("d1/e15/f3"), root.join("d2/again")).unwrap();
    symlink("../d3", root.join("d4/link")).unwrap();
    symlink("nowhere", root.join("broken")).unwrap();
    let status = std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap();
    assert!(status.success());
    std::fs::create_dir(root.join("wide")).unwrap();
    for f in 0..3000 {
        std::fs::write(root.join(format!("wide/some-longer-name-{f:05}")), b"").unwrap();
    }
}

/// Counts without building paths, which are long in a deep tree.
#[derive(Debug, Default)]
pub(crate) struct Count {
    entries: u64,
    pub(crate) deepest: usize,
}

impl Visitor for Count {
    type Dir = ();
    fn enter(&mut self, dir: &NewDir<'_, ()>) -> Option<()> {
        self.deepest = self.deepest.max(dir.depth());
        Some(())
    }
    fn entry(&mut self, _dir: DirRef<'_, ()>, _found: &Found<'_>) -> Control {
        self.entries += 1;
        Control::Continue
    }
}
