//! Compares the visitor with an independent walk for every method, thread count and descriptor
//! limit.

use crate::oracle::{self, Seen, Tree};
use crate::{deep, remove_deep, touch};
use ioloom_failure::PathError;
use ioloom_testbed::{alone, as_nobody};
use ioloom_walk::{
    Control, DirRef, Fields, Follow, Found, Kind, Method, NewDir, Report, Threads, Visitor, Waits,
    Walk,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) const ALL: Fields = Fields::BYTES;
const METHODS: [Method; 4] = [Method::Statx, Method::Lstat, Method::Uring, Method::Sweep];

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

fn collect_with(
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
fn varied() -> tempfile::TempDir {
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

#[test]
fn every_method_and_thread_count_finds_the_same() {
    let temp = varied();
    let expected = oracle::tree(temp.path(), false);
    let sums = oracle::sums(&expected);
    for method in METHODS {
        for (threads, descriptors_max) in [(1, 64), (2, 0), (5, 3), (16, 64)] {
            let walk = Walk { descriptors_max, sweep_files_max: 700, ..walk(method, threads) };
            let (found, all, report) = collect(&walk, &one(temp.path()));
            assert!(found == expected, "{method} {threads} {descriptors_max}");
            assert_eq!(
                all.sums.into_iter().collect::<BTreeMap<_, _>>(),
                sums,
                "{method} {threads}"
            );
            assert_eq!((report.errors_count, report.vanished, report.loops), (0, 0, 0));
            assert_eq!(report.entries + report.directories, expected.len() as u64);
            assert_eq!(report.ring_workers.is_some(), method == Method::Uring);
            assert_eq!(report.names_without_ring, 0, "{method} {threads}");
            assert!(all.partly.is_empty());
        }
    }
    let (found, ..) = collect(&walk(Method::NamesOnly, 3), &one(temp.path()));
    let kinds = |tree: &Tree| -> Vec<_> { tree.iter().map(|(p, s)| (p.clone(), s.0)).collect() };
    assert!(kinds(&found) == kinds(&expected));
    assert!(found.values().all(|seen| seen.4 == 0), "only names, no attributes");
    for waits in [Waits::Anything, Waits::Reads, Waits::OneTree] {
        let auto = Walk { threads: Threads::Auto, waits, ..walk(Method::Statx, 1) };
        let (found, _, report) = collect(&auto, &one(temp.path()));
        assert!(found == expected, "{waits:?}");
        assert!(report.threads > 0 && !report.threads_why.is_empty());
    }
    let mut here = Collect::default();
    walk(Method::Sweep, 9).run_here(&one(temp.path()), &mut here).unwrap();
    assert!(here.seen.into_iter().collect::<Tree>() == expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..Default::default() })]
    #[test]
    fn random_trees_are_seen_whole(
        files in proptest::collection::vec(
            (proptest::collection::vec("[a-c]", 1..6), 0usize..9000, 0u8..8), 0..60),
        threads in 1usize..9,
        descriptors_max in 0usize..4,
        method in 0usize..4,
        follow: bool,
    ) {
        let temp = tempfile::tempdir().unwrap();
        // Following links multiplies the number of paths behind them.
        let mut links_left = if follow { 1 } else { 20 };
        for (names, bytes, what) in &files {
            let path = temp.path().join(names.iter().collect::<PathBuf>());
            if std::fs::create_dir_all(path.parent().unwrap()).is_err() {
                continue;
            }
            links_left -= i32::from(*what < 3);
            let _ = match what {
                0..3 if links_left < 0 => Ok(()),
                // Never links above the tree, which would walk the files of other tests.
                0 => symlink(".", path),
                1 => symlink("a/b", path),
                2 => symlink(temp.path().join("c"), path),
                3 => std::fs::create_dir(path),
                _ => std::fs::write(path, vec![0u8; *bytes]),
            };
        }
        let expected = oracle::tree(temp.path(), follow);
        let follow = if follow { Follow::Always } else { Follow::Never };
        let walk = Walk { descriptors_max, follow, ..walk(METHODS[method], threads) };
        let (found, all, _) = collect(&walk, &one(temp.path()));
        prop_assert_eq!(&found, &expected);
        let sums: BTreeMap<_, _> = all.sums.into_iter().collect();
        prop_assert_eq!(sums, oracle::sums(&expected));
    }
}

#[test]
fn a_wide_directory_is_shared() {
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for f in 0..20_000 {
        std::fs::write(temp.path().join(format!("f{f:08}")), b"").unwrap();
    }
    let expected = oracle::tree(temp.path(), false);
    for (method, threads) in [(Method::Statx, 8), (Method::Uring, 2), (Method::Sweep, 3)] {
        let (found, all, report) = collect(&walk(method, threads), &one(temp.path()));
        assert!(found == expected, "{method}");
        assert_eq!(all.entered, 1);
        assert!(report.threads > 1, "{method}: only one thread did any work");
    }
}

#[test]
fn links_are_followed_without_loops() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    std::fs::create_dir_all(root.join("a/b/c")).unwrap();
    std::fs::create_dir(root.join("other")).unwrap();
    std::fs::write(root.join("other/file"), [1u8; 77]).unwrap();
    symlink("..", root.join("a/up")).unwrap();
    symlink("../..", root.join("a/b/top")).unwrap();
    symlink("../other", root.join("a/side")).unwrap();
    symlink("nowhere", root.join("a/broken")).unwrap();
    symlink("self", root.join("a/self")).unwrap();
    let expected = oracle::tree(root, true);
    for method in METHODS {
        for (threads, descriptors_max) in [(1, 8), (4, 0)] {
            let follow = Follow::Always;
            let walk = Walk { follow, descriptors_max, ..walk(method, threads) };
            let (found, all, report) = collect(&walk, &one(root));
            assert!(found == expected, "{method} {threads}");
            assert!(report.loops >= 2 && report.loops == all.looped);
            // Only the self-referencing link is an error.
            assert_eq!(report.errors_count, 1);
            assert!(report.errors[0].to_string().contains("leads back"), "{}", report.errors[0]);
        }
    }
}

#[test]
fn roots_may_be_anything() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, file, link) =
        (temp.path().join("dir"), temp.path().join("file"), temp.path().join("link"));
    std::fs::create_dir(&dir).unwrap();
    touch(dir.join("inside"));
    touch(&file);
    symlink("dir", &link).unwrap();
    let roots = [file.clone(), link.clone(), dir.clone(), temp.path().join("missing")];
    for (follow, linked) in [(Follow::Never, 0), (Follow::Roots, 1), (Follow::Always, 1)] {
        let walk = Walk { follow, ..walk(Method::Statx, 3) };
        let (found, mut all, report) = collect(&walk, &roots);
        assert_eq!((report.directories, report.errors_count), (1 + linked, 1));
        assert_eq!(report.errors[0].path, roots[3]);
        assert_eq!(found.len() as u64, 2 * (1 + linked));
        all.roots.sort_by_key(|(root, ..)| *root);
        let mut expected = vec![(0, file.clone(), Kind::Regular)];
        if follow == Follow::Never {
            expected.push((1, link.clone(), Kind::Symlink));
        }
        assert_eq!(all.roots, expected);
    }
    assert_eq!(collect(&walk(Method::Statx, 2), &[]).0.len(), 0);
}

#[test]
fn a_thousand_roots_are_walked_once_each() {
    let temp = tempfile::tempdir().unwrap();
    let roots: Vec<_> = (0..1000).map(|i| temp.path().join(format!("r{i}"))).collect();
    for root in &roots {
        std::fs::create_dir_all(root.join("below")).unwrap();
    }
    let (found, all, _) = collect(&walk(Method::Statx, 4), &roots);
    assert_eq!((found.len(), all.entered), (2000, 2000));
}

#[test]
fn unwanted_names_are_skipped() {
    let temp = tempfile::tempdir().unwrap();
    for dir in ["unwanted/a", "pruned/b", "kept/c"] {
        std::fs::create_dir_all(temp.path().join(dir)).unwrap();
        touch(temp.path().join(dir).join("f"));
    }
    for method in METHODS {
        let (found, _, report) = collect(&walk(method, 2), &one(temp.path()));
        assert_eq!((found.len(), report.directories, report.entries), (4, 3, 1));
    }
}

#[test]
fn deep_trees_need_little_stack_and_few_descriptors() {
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let root = temp.path().join("deep");
    std::fs::create_dir(&root).unwrap();
    deep(&root, 5000, b"level", true);
    for (method, threads, descriptors_max) in [
        (Method::Statx, 1, 0),
        (Method::Statx, 3, 16),
        (Method::Sweep, 2, 16),
        (Method::Lstat, 1, 8),
    ] {
        let walk = Walk { descriptors_max, ..walk(method, threads) };
        let (visitors, report) = walk.run(&one(&root), |_| Count::default()).unwrap();
        assert_eq!((report.directories, report.entries), (10_001, 5001), "{method}");
        assert_eq!(report.errors_count, 0, "{method}");
        let deepest = visitors.iter().map(|v| v.deepest).max();
        assert_eq!(deepest, Some(5000));
    }
    remove_deep(&root);
}

/// Counts without building paths, which are long in a deep tree.
#[derive(Debug, Default)]
struct Count {
    entries: u64,
    deepest: usize,
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

#[test]
fn vanished_files_are_not_errors() {
    for method in METHODS {
        let temp = tempfile::tempdir().unwrap();
        touch(temp.path().join("first"));
        let gone = temp.path().join("gone");
        for d in 0..5 {
            std::fs::create_dir_all(gone.join(format!("d{d}"))).unwrap();
        }
        // The walk visits the only file in the root. At that point `gone` is not open yet; it may
        // already be on the stack if its name was read first.
        let make = |_| Collect { remove: Some(gone.clone()), ..Collect::default() };
        let (found, all, report) = collect_with(&walk(method, 1), &one(temp.path()), make);
        assert_eq!((report.errors_count, report.entries), (0, 1), "{method}");
        assert!(all.partly.is_empty());
        // A sweep queries files last, so all directories have been entered by then.
        let left = if method == Method::Sweep { 8 } else { 2 };
        assert_eq!((found.len(), report.vanished), (left, u64::from(left == 2)), "{method}");
    }
}

#[test]
fn an_unreadable_directory_is_entered_failed_and_left() {
    if as_nobody("visitor::an_unreadable_directory_is_entered_failed_and_left") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let closed = temp.path().join("up/closed");
    std::fs::create_dir_all(&closed).unwrap();
    touch(closed.join("inside"));
    touch(temp.path().join("open"));
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    for method in METHODS {
        for descriptors_max in [0, 16] {
            let walk = Walk { descriptors_max, ..walk(method, 2) };
            let (found, mut all, report) = collect(&walk, &one(temp.path()));
            assert_eq!((found.len(), report.directories, report.errors_count), (4, 3, 1));
            assert!(found.contains_key(closed.as_os_str().as_bytes()));
            assert_eq!(all.failed, [(Some(closed.clone()), closed.clone())]);
            all.partly.sort();
            let above = [temp.path().to_owned(), temp.path().join("up"), closed.clone()];
            assert_eq!(all.partly, above);
        }
    }
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn an_early_end_leaves_what_was_entered() {
    let temp = varied();
    for method in METHODS {
        for threads in [1, 4] {
            let make = |_| Collect { stop_at: Some(20), ..Collect::default() };
            let (found, all, report) =
                collect_with(&walk(method, threads), &one(temp.path()), make);
            assert!(report.stopped && found.len() < 3000, "{method} {threads}");
            assert!(all.partly.contains(&temp.path().to_owned()), "the root is incomplete");
        }
    }
    let cancel = Some(Arc::new(AtomicBool::new(true)));
    let cancelled = Walk { cancel, ..walk(Method::Statx, 2) };
    let (found, _, report) = collect(&cancelled, &one(temp.path()));
    assert!(report.stopped && found.is_empty());
}

#[test]
fn a_cancelled_walk_ends_within_a_wide_directory() {
    if !alone("visitor::a_cancelled_walk_ends_within_a_wide_directory") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    // Eleven blocks of names, fewer than idle threads.
    for f in 0..3000 {
        touch(temp.path().join(format!("{f:0200}")));
    }
    let cancel = Arc::new(AtomicBool::new(false));
    let (flag, calls) = (Arc::clone(&cancel), AtomicU64::new(0));
    ioloom_sys::fault::set("");
    ioloom_sys::fault::before_each(Some(Box::new(move |op| {
        if op == "getdents" && calls.fetch_add(1, Ordering::Relaxed) == 1 {
            flag.store(true, Ordering::Relaxed);
        }
    })));
    let cancelled = Walk { cancel: Some(cancel), ..walk(Method::Statx, 32) };
    let (_, all, report) = collect(&cancelled, &one(temp.path()));
    ioloom_sys::fault::before_each(None);
    assert!(report.stopped && all.partly.contains(&temp.path().to_owned()));
    let blocks = ioloom_sys::fault::calls_of("getdents");
    assert!(blocks <= 3, "{blocks} blocks were read");
}

#[test]
fn names_are_queried_one_by_one_without_a_ring() {
    if !alone("visitor::names_are_queried_one_by_one_without_a_ring") {
        return;
    }
    let temp = varied();
    let expected = oracle::tree(temp.path(), false);
    // The first call checks whether the machine can create rings.
    for rule in ["io_uring_setup:2:24", "io_uring_setup:2:12", "io_uring_register:2:22"] {
        for threads in [1, 4] {
            ioloom_sys::fault::set(rule);
            let (found, _, report) = collect(&walk(Method::Uring, threads), &one(temp.path()));
            assert!(found == expected, "{rule} {threads}");
            assert_eq!(report.errors_count, 0, "{rule} {threads}: {:?}", report.errors);
            assert!(report.names_without_ring > 0, "{rule} {threads}");
            let op = rule.split(':').next().unwrap();
            assert!(ioloom_sys::fault::calls_of(op) >= 2, "{rule} {threads}");
        }
    }
    ioloom_sys::fault::set("");
}

#[test]
fn any_call_may_fail() {
    if !alone("visitor::any_call_may_fail") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    for d in 0..4 {
        std::fs::create_dir_all(temp.path().join(format!("d{d}/e"))).unwrap();
        touch(temp.path().join(format!("d{d}/e/f")));
        touch(temp.path().join(format!("d{d}/g")));
    }
    let whole = oracle::tree(temp.path(), false);
    for method in METHODS {
        for op in ["openat", "statx", "getdents", "open", "uring_statx", "io_uring_enter"] {
            for n in 1..28 {
                for threads in [1, 3] {
                    ioloom_sys::fault::set(&format!("{op}:{n}:5"));
                    let (found, _, report) = collect(&walk(method, threads), &one(temp.path()));
                    let reached = ioloom_sys::fault::calls_of(op) >= n;
                    let missing = found.len() < whole.len();
                    assert!(
                        !missing || report.errors_count > 0,
                        "{method} {op} {n}: entries missing without an error"
                    );
                    assert!(reached || report.errors_count == 0, "{method} {op} {n}");
                    assert!(found.keys().all(|path| whole.contains_key(path)));
                    let two_asks =
                        method == Method::Lstat || op == "open" || op == "io_uring_enter";
                    let said = report.errors_count > 0 || two_asks;
                    assert!(!reached || said, "{method} {op} {n} {threads}: error not reported");
                }
            }
        }
    }
    ioloom_sys::fault::set("");
}

#[test]
fn calls_stay_within_the_budget() {
    if !alone("visitor::calls_stay_within_the_budget") {
        return;
    }
    let temp = varied();
    for threads in [1, 8] {
        ioloom_sys::fault::set("");
        let (_, _, report) = collect(&walk(Method::Statx, threads), &one(temp.path()));
        let calls = ioloom_sys::fault::calls_of;
        let opens = calls("open") + calls("openat") + calls("openat2");
        // Everything that was opened is closed.
        let all = 2 * opens + calls("statx") + calls("getdents");
        let budget = report.entries as f64 + 5.2 * report.directories as f64;
        assert!(all as f64 <= budget + 500.0, "{all} calls, {budget}");
        assert!(all > report.entries, "calls must be counted");
    }
}

/// Runs a test in a separate process with a limit of 40 descriptors.
fn with_few_descriptors(test: &str) {
    let script = format!("ulimit -n 40 && exec \"$0\" {test} --exact");
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env("IOLOOM_FEW_DESCRIPTORS", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn few_descriptors_are_enough() {
    if std::env::var_os("IOLOOM_FEW_DESCRIPTORS").is_none() {
        return with_few_descriptors("visitor::few_descriptors_are_enough");
    }
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("tree");
    std::fs::create_dir(&root).unwrap();
    deep(&root, 200, b"l", true);
    // Names for many threads, all of which would create a ring.
    let wide = temp.path().join("wide");
    std::fs::create_dir(&wide).unwrap();
    for f in 0..5000 {
        touch(wide.join(format!("{f:0100}")));
    }
    for (method, threads) in
        [(Method::Statx, 1), (Method::Statx, 4), (Method::Uring, 4), (Method::Uring, 64)]
    {
        let walk = Walk { descriptors_max: 1000, ..walk(method, threads) };
        let roots = [wide.clone(), root.clone()];
        let (_, report) = walk.run(&roots, |_| Count::default()).unwrap();
        let errors: Vec<_> = report.errors.iter().map(ToString::to_string).collect();
        let found = (report.directories, report.entries, report.errors_count);
        assert_eq!(found, (402, 5201, 0), "{method} {threads}: {errors:?}");
    }
    remove_deep(&root);
}

/// A walk in which no descriptor is ever free waits once, not for every directory.
#[test]
fn lost_descriptors_end_a_walk() {
    if std::env::var_os("IOLOOM_FEW_DESCRIPTORS").is_none() {
        return with_few_descriptors("visitor::lost_descriptors_end_a_walk");
    }
    let temp = tempfile::tempdir().unwrap();
    for d in 0..200 {
        std::fs::create_dir(temp.path().join(format!("d{d}"))).unwrap();
    }
    for threads in [1, 8] {
        let taken = std::sync::Mutex::new(Vec::new());
        let take = || {
            let mut taken = taken.lock().unwrap();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                taken.push(file);
            }
        };
        ioloom_sys::fault::set("");
        let (_, report) = walk(Method::Statx, threads)
            .run(&one(temp.path()), |_| TakesAll { take: &take })
            .unwrap();
        assert_eq!((report.directories, report.errors_count), (201, 200), "{threads}");
        assert!(report.errors[0].to_string().contains("ulimit -n"), "{}", report.errors[0]);
        // A thread that waits makes 200 attempts; for every directory they would be 40,000.
        let attempts = ["open", "openat", "openat2"].map(ioloom_sys::fault::calls_of);
        assert!(attempts.iter().sum::<u64>() < 10_000, "{threads}: {attempts:?}");
    }
}

/// Opens files until none can be opened when the first directory is entered.
struct TakesAll<F> {
    take: F,
}

impl<F: Fn()> Visitor for TakesAll<F> {
    type Dir = ();

    fn enter(&mut self, dir: &NewDir<'_, ()>) -> Option<()> {
        if dir.depth() == 0 {
            (self.take)();
        }
        Some(())
    }

    fn entry(&mut self, _: DirRef<'_, ()>, _: &Found<'_>) -> Control {
        (self.take)();
        Control::Continue
    }

    fn part(&mut self, _: DirRef<'_, ()>) {
        (self.take)();
    }
}

#[test]
fn memory_does_not_grow_with_files() {
    if !alone("visitor::memory_does_not_grow_with_files") {
        return;
    }
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for d in 0..20 {
        std::fs::create_dir(temp.path().join(format!("d{d}"))).unwrap();
        for f in 0..2000 {
            std::fs::write(temp.path().join(format!("d{d}/a-name-of-some-length-{f:06}")), b"")
                .unwrap();
        }
    }
    let walk = walk(Method::Statx, 2);
    let run = |root: &Path| walk.run(&one(root), |_| Count::default()).unwrap().1.entries;
    assert_eq!(run(&temp.path().join("d0")), 2000);
    let before = ioloom_sys::proc::status().unwrap().peak_rss_bytes.unwrap();
    assert_eq!(run(temp.path()), 40_000);
    let after = ioloom_sys::proc::status().unwrap().peak_rss_bytes.unwrap();
    // Storing 40,000 names would take more.
    assert!(after - before < 1 << 20, "{before} {after}");
}

#[test]
fn mounts_are_identified_even_on_the_same_device() {
    let inside = std::env::var_os("IOLOOM_OWN_MOUNTS").is_some();
    if !inside {
        let output = std::process::Command::new("unshare")
            .args(["-m", "--propagation", "private"])
            .arg(std::env::current_exe().unwrap())
            .args(["visitor::mounts_are_identified_even_on_the_same_device", "--exact"])
            .env("IOLOOM_OWN_MOUNTS", "1")
            .output();
        match output {
            Ok(output) if output.status.success() => {}
            Ok(output) if String::from_utf8_lossy(&output.stderr).contains("unshare failed") => {
                let _ =
                    writeln!(std::io::stdout(), "skipped: cannot create a mount namespace here");
            }
            Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stdout)),
            Err(error) => {
                let _ = writeln!(std::io::stdout(), "skipped: {error}");
            }
        }
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(temp.path().join("source/below")).unwrap();
    std::fs::create_dir(temp.path().join("target")).unwrap();
    let mount = std::process::Command::new("mount")
        .arg("--bind")
        .args([temp.path().join("source"), temp.path().join("target")])
        .status()
        .unwrap();
    assert!(mount.success());
    let walk = Walk { fields: ALL | Fields::MOUNT, ..walk(Method::Statx, 2) };
    let (found, all, _) = collect(&walk, &one(temp.path()));
    let number = |name: &str| {
        let path = temp.path().join(name).into_os_string();
        let (_, mount) = all.mounts.iter().find(|(p, _)| p == path.as_bytes()).unwrap();
        mount.unwrap()
    };
    assert_eq!(number("source"), number("source/below"));
    assert_eq!(number("target"), number("target/below"));
    assert_ne!(number("source"), number("target"));
    let inode = |name: &str| found[temp.path().join(name).as_os_str().as_bytes()].1;
    assert_eq!(inode("source"), inode("target"), "the inode of the mounted directory");
    let target = temp.path().join("target");
    assert!(std::process::Command::new("umount").arg(target).status().unwrap().success());
}

#[test]
fn impossible_walks_are_refused() {
    assert!(walk(Method::Statx, 0).run(&[], |_| Count::default()).is_err());
    assert!(walk(Method::Statx, 257).probe(&[]).is_err());
}
