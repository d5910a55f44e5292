//! The walker on real trees: unusual names, file types, depth, concurrent changes and refusals.

mod collect;
mod ends;
mod failures;
mod oracle;
mod resources;
#[cfg(feature = "inode-tables")]
mod tables;
mod visitor;

use ioloom_failure::Operation;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_testbed::{alone, as_nobody};
use ioloom_walk::{
    Control, Entry, PathList, Summary, Threads, WalkOptions, files, walk, walk_parallel,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn with(threads: usize, descriptors_max: usize) -> WalkOptions {
    WalkOptions { threads: Threads::Count(threads), descriptors_max }
}

fn walked(root: &Path, options: &WalkOptions) -> (Vec<Vec<u8>>, Summary) {
    let mut found = Vec::new();
    let summary = walk(root, options, &mut |entry: Entry<'_>| {
        found.push(entry.path.to_vec());
        Control::Continue
    })
    .unwrap();
    found.sort();
    (found, summary)
}

fn listed(root: &Path, options: &WalkOptions) -> (Vec<Vec<u8>>, Summary) {
    let (mut list, summary) = files(root, options).unwrap();
    list.sort();
    (list.iter().map(<[u8]>::to_vec).collect(), summary)
}

fn touch(path: impl AsRef<Path>) {
    std::fs::write(path, b"x").unwrap();
}

fn skipped(summary: &Summary) -> BTreeMap<Kind, u64> {
    summary.skipped.iter().map(|s| (s.kind, s.count)).collect()
}

#[test]
fn odd_names_and_odd_kinds() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    for name in [&b"plain"[..], b"new\nline", b"\xff\xfe", b" ", b"-rf", b"a'\"b"] {
        touch(root.join(OsStr::from_bytes(name)));
    }
    std::fs::create_dir_all(root.join("empty/inside")).unwrap();
    symlink(".", root.join("loop")).unwrap();
    symlink("loop", root.join("loop2")).unwrap();
    symlink("plain", root.join("to-file")).unwrap();
    symlink("nowhere", root.join("broken")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    let status = std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap();
    assert!(status.success());
    for threads in [1, 4] {
        let (found, summary) = listed(root, &with(threads, 8));
        assert_eq!(found.len(), 6);
        let mut newline = root.as_os_str().as_bytes().to_vec();
        newline.extend_from_slice(b"/new\nline");
        assert!(found.contains(&newline));
        assert_eq!((summary.files, summary.directories, summary.errors_count), (6, 3, 0));
        let expected = [(Kind::Symlink, 4), (Kind::Fifo, 1), (Kind::Socket, 1)];
        assert_eq!(skipped(&summary), BTreeMap::from(expected));
    }
    let (found, summary) = walked(root, &WalkOptions::default());
    assert_eq!(found[0], b" ");
    assert_eq!(summary.base, root);
    assert!(summary.skipped.iter().any(|s| s.to_string() == "1 socket skipped"));
}

#[test]
fn inodes_and_names_are_those_of_the_file() {
    use std::os::unix::fs::MetadataExt;
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("d")).unwrap();
    touch(temp.path().join("d/f"));
    let inode = std::fs::metadata(temp.path().join("d/f")).unwrap().ino();
    walk(temp.path(), &WalkOptions::default(), &mut |entry| {
        assert_eq!((entry.name(), entry.inode), (&b"f"[..], inode));
        assert_eq!(entry.as_path(), Path::new("d/f"));
        Control::Continue
    })
    .unwrap();
    let (list, _) = files(temp.path(), &WalkOptions::default()).unwrap();
    assert_eq!(list.inode(0), Some(inode));
    assert!(list.known_regular(0));
}

#[test]
fn a_single_file_is_its_own_list() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("one");
    touch(&file);
    let (found, summary) = walked(&file, &WalkOptions::default());
    assert_eq!(found, [b"one"]);
    assert_eq!(summary.base, temp.path());
    let (list, summary) = files(&file, &WalkOptions::default()).unwrap();
    assert_eq!((list.len(), list.path(0)), (1, file.as_path()));
    assert_eq!((summary.files, summary.directories), (1, 0));
}

#[test]
fn an_unreadable_root_is_one_error() {
    let temp = tempfile::tempdir().unwrap();
    let missing = files(&temp.path().join("no"), &WalkOptions::default()).unwrap_err().to_string();
    assert!(missing.contains("/no") && missing.contains("No such file"), "{missing}");
    let odd = files(Path::new("/dev/null"), &WalkOptions::default()).unwrap_err().to_string();
    assert!(odd.contains("not a directory or regular file"), "{odd}");
}

/// Creates a chain of `levels` directories below `root`, with a side branch in each if `branch`.
fn deep(root: &Path, levels: usize, name: &[u8], branch: bool) {
    let mut at = Dir::open(root).unwrap();
    for _ in 0..levels {
        if branch {
            at.make_dir_at(b"side").unwrap();
            at.open_at(b"side").unwrap().create_at(b"s").unwrap();
        }
        at.make_dir_at(name).unwrap();
        at = at.open_at(name).unwrap();
    }
    at.create_at(b"bottom").unwrap();
}

fn remove_deep(root: &Path) {
    let status = std::process::Command::new("rm").arg("-rf").arg(root).status().unwrap();
    assert!(status.success());
}

#[test]
fn depth_needs_neither_stack_nor_descriptors() {
    // Use tmpfs if possible: with a journal, removing 15,000 entries is slow.
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let root = temp.path().join("deep");
    std::fs::create_dir(&root).unwrap();
    deep(&root, 5000, b"level", true);
    for options in [with(1, 16), with(3, 4)] {
        let (found, summary) = listed(&root, &options);
        let errors: Vec<_> = summary.errors.iter().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{}", &errors[0][errors[0].len() - 200..]);
        assert_eq!((found.len(), summary.directories), (5001, 10_001));
        let longest = found.iter().map(Vec::len).max().unwrap();
        assert!(longest >= 5000 * 6, "paths must exceed the limit of one call: {longest}");
    }
    remove_deep(&root);
}

#[test]
fn few_descriptors_stay_open() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("wide");
    std::fs::create_dir(&root).unwrap();
    deep(&root, 300, b"l", true);
    let base = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut most = 0;
    walk(&root, &with(1, 20), &mut |_| {
        most = most.max(std::fs::read_dir("/proc/self/fd").unwrap().count());
        Control::Continue
    })
    .unwrap();
    // Other tests run at the same time in this process and hold some descriptors.
    assert!(most < base + 20 + 150, "{most} open, {base} before");
    remove_deep(&root);
}

#[test]
fn a_visitor_can_stop_the_walk() {
    let temp = tempfile::tempdir().unwrap();
    for d in 0..20 {
        std::fs::create_dir(temp.path().join(format!("d{d}"))).unwrap();
        for f in 0..20 {
            touch(temp.path().join(format!("d{d}/f{f}")));
        }
    }
    let mut seen = 0;
    let summary = walk(temp.path(), &WalkOptions::default(), &mut |_| {
        seen += 1;
        if seen == 7 { Control::Stop } else { Control::Continue }
    })
    .unwrap();
    assert_eq!((seen, summary.files, summary.stopped), (7, 7, true));
    let (counts, summary) = walk_parallel(
        temp.path(),
        &with(4, 16),
        |_| 0u64,
        |count, _| {
            *count += 1;
            if *count == 3 { Control::Stop } else { Control::Continue }
        },
    )
    .unwrap();
    assert!(summary.stopped);
    assert_eq!(counts.iter().sum::<u64>(), summary.files);
    assert!(summary.files < 400);
}

#[test]
fn the_order_of_a_list_does_not_depend_on_threads() {
    let temp = tempfile::tempdir().unwrap();
    // Some names in a directory sort before its subdirectory, some after it, and some share a
    // prefix longer than a sort key. One directory is wide enough to be visited in parts.
    for dir in ["a", "a/m", "a-b", "wide"] {
        std::fs::create_dir(temp.path().join(dir)).unwrap();
    }
    for name in ["a/z", "a/b", "a/m/1", "a-b/1", "a/alike-alike-2", "a/alike-alike-1", "top", "A"] {
        std::fs::write(temp.path().join(name), b"").unwrap();
    }
    for number in 0..9000 {
        std::fs::write(temp.path().join(format!("wide/{}", number * 7919 % 9000)), b"").unwrap();
    }
    let dir_and_name = |path: &[u8]| {
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap();
        (path[..=slash].to_vec(), path[slash + 1..].to_vec())
    };
    let mut first = None;
    for threads in [1, 2, 7] {
        let (list, summary) = files(temp.path(), &with(threads, 16)).unwrap();
        assert_eq!(summary.files, 9008);
        let found: Vec<_> = list.iter().map(dir_and_name).collect();
        assert!(found.is_sorted(), "sorted by directory, then by name");
        assert_eq!(first.get_or_insert_with(|| found.clone()), &found);
        assert!((0..list.len()).all(|at| list.known_regular(at) && list.inode(at).is_some()));
    }
}

#[test]
fn a_panic_in_a_visitor_ends_all_threads() {
    let temp = tempfile::tempdir().unwrap();
    for d in 0..50 {
        std::fs::create_dir(temp.path().join(format!("d{d}"))).unwrap();
        touch(temp.path().join(format!("d{d}/f")));
    }
    let result = std::panic::catch_unwind(|| {
        walk_parallel(temp.path(), &with(4, 16), |_| (), |(), _| panic!("deliberate panic"))
            .map(|(states, _)| states.len())
    });
    assert!(result.is_err());
}

#[test]
fn replaced_directories_are_errors_and_the_walk_continues() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        std::fs::create_dir(temp.path().join(name)).unwrap();
        touch(temp.path().join(name).join("f"));
    }
    touch(temp.path().join("first"));
    // The visitor sees the first file while the subdirectories are pending, and removes two of
    // them: one disappears, the other is replaced by a symlink that leads outside the tree.
    let outside = tempfile::tempdir().unwrap();
    touch(outside.path().join("secret"));
    let mut found = Vec::new();
    let mut removed = false;
    let summary = walk(temp.path(), &WalkOptions::default(), &mut |entry| {
        found.push(entry.path.to_vec());
        Control::Continue
    })
    .unwrap();
    assert_eq!((found.len(), summary.errors_count), (4, 0));
    let mut names: Vec<Vec<u8>> = Vec::new();
    let summary = walk(temp.path(), &WalkOptions::default(), &mut |entry| {
        names.push(entry.name().to_vec());
        if !removed && entry.path != b"first" {
            removed = true;
            for name in ["a", "b", "c"] {
                let dir = temp.path().join(name);
                if !entry.as_path().starts_with(name) {
                    std::fs::remove_dir_all(&dir).unwrap();
                    symlink(outside.path(), &dir).unwrap();
                }
            }
        }
        Control::Continue
    })
    .unwrap();
    assert!(!names.contains(&b"secret".to_vec()), "the walk escaped the tree");
    assert_eq!(names.len(), 2);
    assert_eq!(summary.errors_count, 2);
    let error = &summary.errors[0];
    assert_eq!(error.operation, Operation::OpenDir, "{error}");
    assert_eq!(error.source.kind(), ErrorKind::NotADirectory, "{error}");
}

#[test]
fn unreadable_directories_are_collected() {
    if as_nobody("unreadable_directories_are_collected") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let closed = temp.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    touch(closed.join("inside"));
    touch(temp.path().join("open"));
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    for threads in [1, 3] {
        let (found, summary) = listed(temp.path(), &with(threads, 16));
        assert_eq!((found.len(), summary.errors_count), (1, 1));
        assert_eq!(summary.errors[0].path, closed);
        let text = summary.errors[0].to_string();
        assert!(text.contains("Permission denied") && text.contains("run as"), "{text}");
    }
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_relative_root_stays_as_the_user_gave_it() {
    let (list, _) = files(Path::new("src/"), &WalkOptions::default()).unwrap();
    assert!(list.iter().any(|path| path == b"src/lib.rs"));
    let (list, _) = files(Path::new("."), &with(2, 4)).unwrap();
    assert!(list.iter().any(|path| path == b"./src/lib.rs"));
}

fn make(root: &Path, tree: &[PathBuf]) -> Vec<Vec<u8>> {
    let mut expected = Vec::new();
    for path in tree {
        let path = root.join(path);
        if std::fs::create_dir_all(path.parent().unwrap()).is_err() || path.exists() {
            continue;
        }
        touch(&path);
        expected.push(path.as_os_str().as_bytes().to_vec());
    }
    expected.sort();
    expected
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_tree_is_listed_whole(
        tree in proptest::collection::vec(
            proptest::collection::vec("[a-d]", 1..5).prop_map(|p| p.iter().collect::<PathBuf>()),
            0..60),
        threads in 1usize..6,
        descriptors_max in 0usize..6,
    ) {
        let temp = tempfile::tempdir().unwrap();
        let expected = make(temp.path(), &tree);
        let (found, summary) = listed(temp.path(), &with(threads, descriptors_max));
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(summary.files as usize, expected.len());
        let alone = walked(temp.path(), &with(1, descriptors_max)).0;
        prop_assert_eq!(alone.len(), expected.len());
    }
}

#[test]
fn an_empty_root_is_an_empty_list() {
    let temp = tempfile::tempdir().unwrap();
    let (list, summary) = files(temp.path(), &WalkOptions::default()).unwrap();
    assert_eq!((list.len(), summary.directories), (0, 1));
    assert_eq!(PathList::new().iter().len(), 0);
}

#[test]
fn failed_calls_are_reported_and_the_walk_continues() {
    if !alone("failed_calls_are_reported_and_the_walk_continues") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    for d in 0..10 {
        std::fs::create_dir_all(temp.path().join(format!("d{d}/e"))).unwrap();
        touch(temp.path().join(format!("d{d}/e/f")));
    }
    let errno = |name: &str| match name {
        "EIO" => 5,
        "EINTR" => 4,
        "EMFILE" => 24,
        _ => 38,
    };
    let run = |op: &str, n: u32, name: &str, descriptors_max: usize| {
        ioloom_sys::fault::set(&format!("{op}:{n}:{}", errno(name)));
        let (found, summary) = walked(temp.path(), &with(1, descriptors_max));
        assert!(ioloom_sys::fault::calls_of(op) >= u64::from(n), "{op} was not called {n} times");
        (found.len(), summary)
    };
    let (files, summary) = run("getdents", 7, "EIO", 8);
    assert!((9..=10).contains(&files));
    assert_eq!(summary.errors_count, 1);
    let text = summary.errors[0].to_string();
    assert!(text.contains("cannot read directory") && text.contains("Input/output"), "{text}");
    let (files, summary) = run("openat", 3, "EIO", 8);
    assert!(files < 10);
    let text = summary.errors[0].to_string();
    assert!(text.contains("cannot open directory") && text.contains("kernel log"), "{text}");
    let (files, summary) = run("openat", 3, "EMFILE", 8);
    assert_eq!((files, summary.errors_count), (10, 0), "open directories are closed");
    for (op, descriptors_max) in [("openat", 8), ("openat2", 0), ("getdents", 8), ("statx", 8)] {
        let n = if op == "statx" { 1 } else { 2 };
        let (files, summary) = run(op, n, "EINTR", descriptors_max);
        assert_eq!((files, summary.errors_count), (10, 0), "{op}");
    }
    let (files, summary) = run("openat2", 3, "ENOSYS", 0);
    assert_eq!((files, summary.errors_count), (10, 0), "old kernels open one name at a time");
}

/// A single thread enters directories in the order in which they were found, as a recursive program
/// does.
#[test]
fn directories_are_read_in_the_order_in_which_they_were_found() {
    fn visit(dir: &Path, into: &mut Vec<PathBuf>) {
        let entries: Vec<PathBuf> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        into.extend(entries.iter().filter(|path| path.is_file()).cloned());
        entries.iter().filter(|path| path.is_dir()).for_each(|path| visit(path, into));
    }
    let temp = tempfile::tempdir().unwrap();
    for number in 0..27 {
        let path = temp.path().join(format!("{}/{}/{}", number / 9, number / 3 % 3, number % 3));
        std::fs::create_dir_all(&path).unwrap();
        touch(path.join("file"));
    }
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    visit(temp.path(), &mut expected);
    walk(temp.path(), &with(1, 100), &mut |entry: Entry<'_>| {
        found.push(temp.path().join(OsStr::from_bytes(entry.path)));
        Control::Continue
    })
    .unwrap();
    assert_eq!(found, expected);
}
