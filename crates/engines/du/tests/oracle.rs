//! Compares scans of random trees with an independent implementation: a plain recursion over the
//! standard library, a sorted list of links, and totals by path.

use ioloom_du::document::Document;
use ioloom_du::scan::{Detail, Scan, ScanError, ScanOptions, ScanProgress, Scanner, scan};
use ioloom_du::tree::Kind;
use ioloom_du::{Tally, ncdu};
use ioloom_walk::{Follow, Method, Threads};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An entry to create: the index of an earlier directory, and the type.
#[derive(Debug, Clone)]
enum Make {
    Dir(usize),
    File(usize, u64),
    Sparse(usize, u64),
    Link(usize, usize),
    Symlink(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Make>> {
    let any = any::<prop::sample::Index>;
    let at = (any(), any()).prop_map(|(a, b)| (a.index(1000), b.index(1000)));
    let one = (0..5u8, at, 0..40_000u64).prop_map(|(kind, (a, b), size)| match kind {
        0 => Make::Dir(a),
        1 => Make::File(a, size),
        2 => Make::Sparse(a, size * 100),
        3 => Make::Link(a, b),
        _ => Make::Symlink(a, b),
    });
    proptest::collection::vec(one, 0..60)
}

/// Names that are unusual in every way, but unique.
fn name(i: usize) -> Vec<u8> {
    let odd: [&[u8]; 6] = [b"plain", b"new\nline", b"\xff\xfe", b" space ", b"a", b"-dash"];
    [odd[i % odd.len()], format!("{}", i / 2 * 7919 % 100 + i * 100).as_bytes()].concat()
}

fn build(root: &Path, steps: &[Make]) {
    let mut dirs = vec![root.to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        let at = |n: &usize| dirs[n % dirs.len()].join(OsStr::from_bytes(&name(i)));
        match step {
            Make::Dir(n) => {
                let path = at(n);
                fs::create_dir(&path).unwrap();
                dirs.push(path);
            }
            Make::File(n, size) => {
                fs::write(at(n), vec![7; *size as usize]).unwrap();
                files.push(at(n));
            }
            Make::Sparse(n, size) => {
                fs::File::create(at(n)).unwrap().set_len(*size).unwrap();
                files.push(at(n));
            }
            Make::Link(n, to) if !files.is_empty() => {
                fs::hard_link(&files[to % files.len()], at(n)).unwrap();
            }
            Make::Symlink(n, to) => {
                std::os::unix::fs::symlink(&dirs[to % dirs.len()], at(n)).unwrap();
            }
            Make::Link(..) => {}
        }
    }
}

/// Names from the root downwards.
type Names = Vec<Vec<u8>>;

#[derive(Default)]
struct Account {
    /// The totals of each directory, including the directory itself.
    dirs: BTreeMap<Names, Tally>,
    shared: BTreeMap<Names, u64>,
    /// Every link of every file: directory, name, inode, size, links.
    links: Vec<(Names, Vec<u8>, u64, Tally, u64)>,
}

fn size_of(meta: &fs::Metadata) -> Tally {
    Tally::entry(meta.len(), meta.blocks() * 512)
}

fn recurse(dir: &Path, names: &Names, account: &mut Account) {
    let own = size_of(&fs::symlink_metadata(dir).unwrap());
    for above in 0..=names.len() {
        *account.dirs.entry(names[..above].to_vec()).or_default() += own;
    }
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (meta, name) = (entry.metadata().unwrap(), entry.file_name().as_bytes().to_vec());
        if meta.is_dir() {
            recurse(&entry.path(), &[names.as_slice(), &[name]].concat(), account);
        } else {
            account.links.push((names.clone(), name, meta.ino(), size_of(&meta), meta.nlink()));
        }
    }
}

fn oracle(root: &Path, count_links: bool) -> Account {
    let mut account = Account::default();
    recurse(root, &Vec::new(), &mut account);
    account.links.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    let mut charged = BTreeSet::new();
    for (dir, _, inode, size, _) in &account.links {
        if count_links || charged.insert(*inode) {
            for above in 0..=dir.len() {
                *account.dirs.entry(dir[..above].to_vec()).or_default() += *size;
            }
        }
    }
    if !count_links {
        for dir in account.dirs.keys() {
            let inside = |d: &Names| d.starts_with(dir);
            let mut found: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
            for (_, _, inode, size, links) in account.links.iter().filter(|l| inside(&l.0)) {
                found.entry(*inode).or_insert((0, *links, size.disk_bytes)).0 += 1;
            }
            let shared = found.values().filter(|(seen, links, _)| seen < links).map(|f| f.2).sum();
            account.shared.insert(dir.clone(), shared);
        }
    }
    account
}

/// Compares every directory of a scan, down to its depth, with the expected totals.
fn agree(scan: &Scan, root: &Path, account: &Account, depth: u32) {
    let tree = &scan.roots[0];
    assert!(scan.errors.is_empty(), "{:?}", scan.errors);
    let mut seen = 0;
    for (at, node) in tree.nodes().iter().enumerate().filter(|n| n.1.kind == Kind::Directory) {
        let path = tree.path(at);
        let below = &path[root.as_os_str().len()..];
        let names: Names =
            below.split(|b| *b == b'/').filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
        let words = || String::from_utf8_lossy(&path).into_owned();
        assert_eq!(Some(&node.total), account.dirs.get(&names), "{}", words());
        if !account.shared.is_empty() {
            assert_eq!(Some(&node.shared_bytes), account.shared.get(&names), "{}", words());
        }
        seen += 1;
    }
    assert_eq!(seen, account.dirs.keys().filter(|d| d.len() <= depth as usize).count());
}

fn scanned(root: &Path, options: ScanOptions) -> Option<Scan> {
    match scan(&[root.to_owned()], options) {
        Ok(scan) => Some(scan),
        // The kernel lacks io_uring or forbids it.
        Err(ScanError::Walk(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_directory_agrees_whatever_the_method_and_the_threads(steps in steps()) {
        let temp = tempfile::tempdir().unwrap();
        build(temp.path(), &steps);
        let (once, often) = (oracle(temp.path(), false), oracle(temp.path(), true));
        for method in [Method::Statx, Method::Lstat, Method::Sweep, Method::Uring] {
            for (threads, depth_max, files) in
                [(1, u32::MAX, true), (2, u32::MAX, false), (7, 1, false), (3, 0, false), (5, 2, true)]
            {
                let options = ScanOptions {
                    detail: Detail { depth_max, files },
                    method,
                    threads: Threads::Count(threads),
                    ..ScanOptions::default()
                };
                let counted = ScanOptions { count_links: true, ..options.clone() };
                if let Some(scan) = scanned(temp.path(), options) {
                    agree(&scan, temp.path(), &once, depth_max);
                }
                if let Some(scan) = scanned(temp.path(), counted) {
                    agree(&scan, temp.path(), &often, depth_max);
                }
            }
        }
    }

    #[test]
    fn exports_and_documents_say_the_same(steps in steps(), count_links in any::<bool>()) {
        let temp = tempfile::tempdir().unwrap();
        build(temp.path(), &steps);
        let options = ScanOptions { detail: Detail::ALL, count_links, ..ScanOptions::default() };
        let scan = scanned(temp.path(), options).unwrap();
        let mut text = Vec::new();
        ncdu::export(&scan.roots[0], ("ioloom", "0"), 0, count_links, &mut text).unwrap();
        let back = ncdu::import(&mut &text[..], ncdu::Limits::default()).unwrap().tree;
        let sums = |tree: &ioloom_du::Tree| -> Vec<_> {
            (0..tree.nodes().len())
                .map(|at| (tree.path(at), tree.nodes()[at].total, tree.nodes()[at].shared_bytes))
                .collect()
        };
        prop_assert_eq!(sums(&scan.roots[0]), sums(&back));
        let document = Document::of(&scan, None, &|_, _| true);
        let json = serde_json::to_vec(&document).unwrap();
        let read = Document::read(&json[..]).unwrap();
        prop_assert_eq!(&read.directories, &document.directories);
        for (line, at) in read.directories.iter().zip(1..) {
            prop_assert_eq!(line.path_bytes().unwrap(), scan.roots[0].path(at));
        }
    }
}

#[test]
fn the_progress_is_the_total_for_every_detail() {
    let place = tempfile::tempdir().unwrap();
    for i in 0..300 {
        let dir = place.path().join(format!("d{}", i % 7));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(i.to_string()), [7_u8; 5000]).unwrap();
    }
    let roots = [place.path().to_owned()];
    for detail in [Detail::ALL, Detail { depth_max: 0, files: false }] {
        let options = ScanOptions { detail, ..ScanOptions::default() };
        let progress = Arc::new(ScanProgress::default());
        let mut scanner = Scanner::new(options, &roots, Arc::default(), progress.clone()).unwrap();
        scanner.root(&roots[0]).unwrap();
        let total = scanner.finish().total();
        assert_eq!(progress.entries.load(Ordering::Relaxed), total.inodes, "{detail:?}");
        assert_eq!(progress.disk_bytes.load(Ordering::Relaxed), total.disk_bytes, "{detail:?}");
    }
}

#[test]
fn a_root_that_is_a_link_is_followed_only_with_a_slash_or_an_option() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("dir")).unwrap();
    fs::write(place.path().join("dir/f"), "x").unwrap();
    for (target, link) in [("dir", "lnk"), ("dir/f", "file"), ("absent", "broken")] {
        std::os::unix::fs::symlink(target, place.path().join(link)).unwrap();
    }
    for (name, follow, kind, inodes) in [
        ("lnk", Follow::Never, Kind::Symlink, 1),
        ("lnk/", Follow::Never, Kind::Directory, 2),
        ("lnk/.", Follow::Never, Kind::Directory, 2),
        ("file", Follow::Never, Kind::Symlink, 1),
        ("file", Follow::Roots, Kind::Regular, 1),
        ("broken", Follow::Never, Kind::Symlink, 1),
        ("lnk", Follow::Roots, Kind::Directory, 2),
        ("lnk", Follow::Always, Kind::Directory, 2),
    ] {
        let options = ScanOptions { follow, ..ScanOptions::default() };
        let scan = scan(&[place.path().join(name)], options).unwrap();
        let root = scan.roots[0].root();
        assert_eq!((root.kind, root.total.inodes), (kind, inodes), "{name} {follow:?}");
        // One thread is enough for a file or a link.
        let for_file = scan.threads.unwrap() == "1 thread, for a file";
        assert_eq!(for_file, kind != Kind::Directory, "{name} {follow:?}");
    }
}

/// Scans two roots; returns what each one adds.
fn two(first: &Path, second: &Path) -> (Scan, Vec<u64>) {
    let scan = scan(&[first.to_owned(), second.to_owned()], ScanOptions::default()).unwrap();
    let disk = scan.roots.iter().map(|tree| tree.root().total.inodes).collect();
    (scan, disk)
}

#[test]
fn entries_of_an_earlier_root_are_not_counted_again() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::create_dir(at("c")).unwrap();
    fs::write(at("a/b/f"), "x").unwrap();
    fs::hard_link(at("a/b/f"), at("c/f")).unwrap();
    fs::write(at("a/g"), "x").unwrap();
    assert_eq!(two(&at("a"), &at("c")).1, [4, 1]);
    assert_eq!(two(&at("c"), &at("a")).1, [2, 3]);
    assert_eq!(two(&at("a/b"), &at("a")).1, [2, 2]);
    assert_eq!(two(&at("a"), &at("a/b")).1, [4], "a root inside an earlier one is skipped");
    assert_eq!(two(&at("a"), &at("a")).1, [4]);
    assert_eq!(
        two(&at("a/g"), &at("a")).1,
        [1, 3],
        "a file that is itself a root is not counted again"
    );
    assert_eq!(two(&at("a"), &at("a/g")).1, [4]);
    let shared = two(&at("a"), &at("c")).0;
    assert!(shared.roots.iter().all(|tree| tree.root().shared_bytes > 0));
}

#[test]
fn entries_of_roots_that_are_not_known_in_advance_count_once() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::create_dir(at("c")).unwrap();
    fs::write(at("a/b/f"), "x").unwrap();
    fs::hard_link(at("a/b/f"), at("c/f")).unwrap();
    fs::write(at("a/g"), "x").unwrap();
    for (roots, expected) in [
        (&["a", "a/g", "a/b", "c"][..], &[4_u64, 1][..]),
        (&["a/g", "a"], &[1, 3]),
        (&["c", "a/b/f", "a/b", "a"], &[2, 1, 2]),
    ] {
        for keep in [true, false] {
            let scanner =
                Scanner::new(ScanOptions::default(), &[], Arc::default(), Arc::default()).unwrap();
            let mut scanner = scanner.with_further_roots();
            for root in roots {
                scanner.root(&at(root)).unwrap();
                if !keep {
                    scanner.drop_trees();
                }
            }
            let scan = scanner.finish();
            let found: Vec<u64> = scan.roots.iter().map(|t| t.root().total.inodes).collect();
            assert_eq!(found, if keep { expected } else { &[] }, "{roots:?}");
            assert_eq!(scan.total().inodes, expected.iter().sum::<u64>(), "{roots:?}");
        }
    }
}

#[test]
fn link_loops_end_and_broken_links_are_reported() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    fs::create_dir_all(at("t/sub")).unwrap();
    fs::write(at("t/sub/f"), vec![1; 5000]).unwrap();
    for (to, link) in [("..", "t/sub/up"), ("sub", "t/again"), ("sub/f", "t/file")] {
        std::os::unix::fs::symlink(to, at(link)).unwrap();
    }
    let follow = |detail| ScanOptions { follow: Follow::Always, detail, ..ScanOptions::default() };
    let all = scan(&[at("t")], follow(Detail::ALL)).unwrap();
    let sum = scan(&[at("t")], follow(Detail::ROOTS)).unwrap();
    assert_eq!((all.total(), all.total().inodes), (sum.total(), 3));
    assert_eq!(all.errors_count, 0, "{:?}", all.errors);
    std::os::unix::fs::symlink("nowhere", at("t/lost")).unwrap();
    let lost = scan(&[at("t")], follow(Detail::ROOTS)).unwrap();
    assert_eq!((lost.total(), lost.errors_count), (sum.total(), 1));
    assert!(lost.errors[0].contains("t/lost"), "{:?}", lost.errors);
}

#[test]
fn a_sum_needs_one_node_for_any_tree() {
    let temp = tempfile::tempdir().unwrap();
    for dir in 0..40 {
        let path = temp.path().join(format!("{dir}/sub"));
        fs::create_dir_all(&path).unwrap();
        (0..20).for_each(|i| fs::write(path.join(i.to_string()), "x").unwrap());
    }
    let scan = scan(&[temp.path().to_owned()], ScanOptions::default()).unwrap();
    assert_eq!(scan.roots[0].nodes().len(), 1);
    assert_eq!(scan.total().inodes, 1 + 40 * 22);
}

/// Returns the output of GNU du for `root`. If no comparable du is installed, prints the reason and
/// returns `None`.
fn gnu(root: &Path, flags: &[&str]) -> Option<u64> {
    let mut command = std::process::Command::new("du");
    command.args(flags).arg(root).env("LC_ALL", "C").env_remove("POSIXLY_CORRECT");
    let text = command.output().ok().filter(|out| out.status.success())?.stdout;
    let number = text.split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    /// Links point only to directories of the tree, and with `-L` both programs count each of them
    /// once. `-L` with `-l` would follow every combination of links, so it is not tested.
    #[test]
    fn random_trees_weigh_what_gnu_du_says(steps in steps(), threads in 1usize..5) {
        let temp = tempfile::tempdir().unwrap();
        build(temp.path(), &steps);
        // Old versions do not include directories in apparent sizes.
        let empty = tempfile::tempdir_in(temp.path().parent().unwrap()).unwrap();
        if gnu(empty.path(), &["-sb"]) != Some(fs::metadata(empty.path()).unwrap().len()) {
            let _ = writeln!(std::io::stdout(), "skipped: no comparable GNU du is installed");
            return Ok(());
        }
        let (never, always) = (Follow::Never, Follow::Always);
        for (how, follow, count_links, one_file_system) in [
            ("-k", never, false, false),
            ("-x", never, false, true),
            ("-l", never, true, false),
            ("-L", always, false, false),
            ("-Lx", always, false, true),
        ] {
            let threads = Threads::Count(threads);
            let options = ScanOptions { follow, count_links, one_file_system, threads, ..ScanOptions::default() };
            let total = scanned(temp.path(), options).unwrap().total();
            let expected = Tally {
                apparent_bytes: gnu(temp.path(), &[how, "-sb"]).unwrap(),
                disk_bytes: gnu(temp.path(), &[how, "-sB1"]).unwrap(),
                inodes: gnu(temp.path(), &[how, "-s", "--inodes"]).unwrap(),
                ..Tally::default()
            };
            prop_assert_eq!(total, expected, "{}", how);
        }
    }
}
