//! Random trees copied by ioloom and by `cp -a` must be identical.

use crate::snapshot::{differences, snapshot};
use crate::test_dir::TestDir;
use crate::trees;
use ioloom_copy::{CopyCounters, CopyOptions, Follow, Preserve, Silent, Target, Verify, copy};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::path::Path;
use std::process::Command;

fn archive() -> CopyOptions {
    CopyOptions {
        recursive: true,
        follow: Follow::Never,
        preserve: Preserve::ALL,
        ..CopyOptions::default()
    }
}

fn ours(from: &Path, to: &Path, options: &CopyOptions) {
    let target = Target::As(to.to_owned());
    let report =
        copy(&[from.to_owned()], &target, options, &Silent, &CopyCounters::default()).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

fn same_as_cp(from: &TestDir, to: &TestDir, cases: u32) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let ways = (trees::tree(), 0usize..5, 1usize..4);
    let result = TestRunner::new(config).run(&ways, |(items, way, threads)| {
        let (source, target) = (from.fresh(), to.fresh());
        let tree = source.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        trees::make(&tree, &items);
        let mut options = CopyOptions { threads: Some(threads), ..archive() };
        match way {
            0 => options.verify = Verify::Cache,
            1 => options.durable = ioloom_copy::Durable::File,
            2 => options.reflink = ioloom_copy::When::Never,
            _ => {}
        }
        let before = snapshot(&tree);
        let (mine, other) = (target.path().join("mine"), target.path().join("other"));
        ours(&tree, &mine, &options);
        let cp = Command::new("cp").arg("-aT").arg(&tree).arg(&other).output().unwrap();
        prop_assert!(cp.status.success(), "{}", String::from_utf8_lossy(&cp.stderr));
        let (mine_seen, other_seen) = (snapshot(&mine), snapshot(&other));
        prop_assert_eq!(differences(&before, &mine_seen), Vec::<String>::new());
        prop_assert_eq!(differences(&other_seen, &mine_seen), Vec::<String>::new());
        holes_stayed(&tree, &mine);
        // Copying again over the existing target must change nothing.
        ours(&tree, &mine, &options);
        prop_assert_eq!(differences(&before, &snapshot(&mine)), Vec::<String>::new());
        prop_assert_eq!(
            std::fs::read_dir(target.path()).unwrap().count(),
            2,
            "a temporary file was left behind"
        );
        Ok(())
    });
    if let Err(why) = result {
        panic!("{} to {}: {why}", from.kind, to.kind);
    }
}

/// Checks that a copy uses no more space than its source, apart from rounding by the file system.
fn holes_stayed(from: &Path, to: &Path) {
    use std::os::unix::fs::MetadataExt;
    for (name, _) in snapshot(from) {
        let name = name.strip_prefix(b"/").unwrap_or(&name);
        let name = std::path::PathBuf::from(std::ffi::OsString::from(
            <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name),
        ));
        let (a, b) = (from.join(&name), to.join(&name));
        let (a, b) = (a.symlink_metadata().unwrap(), b.symlink_metadata().unwrap());
        if a.is_file() && a.dev() == b.dev() {
            let (a, b) = (a.blocks() * 512, b.blocks() * 512);
            assert!(
                b <= a + (128 << 10),
                "{}: disk usage grew from {a} to {b} bytes",
                name.display()
            );
        }
    }
}

#[test]
fn random_trees_on_disk_are_copied_as_cp_does() {
    let disk = TestDir::disk();
    same_as_cp(&disk, &disk, 24);
}

#[test]
fn random_trees_are_copied_between_memory_and_disk_as_cp_does() {
    let Some(memory) = TestDir::memory() else { return println!("skipped: no /dev/shm") };
    let disk = TestDir::disk();
    same_as_cp(&memory, &disk, 8);
    same_as_cp(&disk, &memory, 8);
}

#[test]
fn random_trees_on_xfs_are_copied_as_cp_does() {
    let Some(xfs) = TestDir::mounted("xfs", 320) else { return };
    same_as_cp(&xfs, &xfs, 10);
    same_as_cp(&TestDir::disk(), &xfs, 4);
}

#[test]
fn random_trees_on_btrfs_are_copied_as_cp_does() {
    let Some(btrfs) = TestDir::mounted("btrfs", 320) else { return };
    same_as_cp(&btrfs, &btrfs, 10);
    same_as_cp(&btrfs, &TestDir::disk(), 4);
}
