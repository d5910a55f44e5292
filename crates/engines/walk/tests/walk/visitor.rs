//! Compares the visitor with an independent walk for every method, thread count and descriptor
//! limit.

use crate::collect::{ALL, Collect, Count, METHODS, collect, one, varied, walk};
use crate::oracle::{self, Tree};
use crate::touch;
use ioloom_walk::{Fields, Follow, Kind, Method, Threads, Waits, Walk};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

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
