//! Tests of the file system through the kernel. Skipped where the user cannot mount.

#![allow(clippy::print_stderr, reason = "skipped tests print what the machine lacks")]

use ioloom_delayfs::{DelayFs, Mounted, Options, available, content, serve_for_parent};
use ioloom_sys::file::{Nowait, read_nowait_at};
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// Longer than threads take to start on a busy machine. Passed in full only by a test that fails.
const LONG: Duration = Duration::from_secs(60);

#[test]
#[ignore = "run in a child by the other tests"]
fn server() {
    serve_for_parent();
}

/// Mounts in a child, or prints why not.
fn mounted(options: Options) -> Option<(Mounted, tempfile::TempDir)> {
    if let Err(reason) = available() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted = DelayFs::mount_in_child(dir.path(), options, "server").unwrap();
    Some((mounted, dir))
}

/// A mount whose server has just ended fails calls until it is removed.
fn is_mounted(dir: &Path) -> bool {
    let above = dir.parent().unwrap().metadata().unwrap().dev();
    dir.metadata().map_or(true, |found| found.dev() != above)
}

/// Opens all files at the same time, each in a thread of its own, and reads each one.
fn read_together(mounted: &Mounted) -> Vec<Vec<u8>> {
    let paths = mounted.paths();
    let start = Barrier::new(paths.len());
    thread::scope(|scope| {
        let read = |path| {
            start.wait();
            let file = File::open(path).unwrap();
            start.wait();
            let mut bytes = vec![0; 10_000];
            let len = file.read_at(&mut bytes, 0).unwrap();
            bytes.truncate(len);
            bytes
        };
        let threads: Vec<_> = paths.iter().map(|path| scope.spawn(move || read(path))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn opens_and_reads_overlap() {
    for number in [64, 256] {
        let mut options = Options::new(number, 5000);
        (options.open, options.read) = (LONG, LONG);
        options.until_overlap = NonZeroUsize::new(number);
        let Some((mounted, _dir)) = mounted(options) else { return };
        let read = read_together(&mounted);
        for (file, bytes) in read.iter().enumerate() {
            assert!(*bytes == content(file, 0, 5000), "file {file} of {number}");
        }
        let seen = mounted.counters();
        assert_eq!(seen.opens, number as u64, "{seen}");
        assert_eq!(seen.opens_peak, number as u64, "{seen}");
        assert!(seen.reads_peak >= number as u64 && seen.both_peak >= seen.reads_peak, "{seen}");
        assert_eq!(seen.bytes, number as u64 * 5000, "{seen}");
    }
}

#[test]
fn the_limit_bounds_what_is_served() {
    let mut options = Options::new(32, 100);
    options.open = Duration::from_millis(100);
    options.limit = NonZeroUsize::new(4);
    let Some((mounted, _dir)) = mounted(options) else { return };
    read_together(&mounted);
    let seen = mounted.counters();
    assert_eq!(seen.opens, 32, "{seen}");
    assert!(seen.served_peak > 1 && seen.served_peak <= 4, "{seen}");
}

#[test]
fn a_tree_contains_the_files_with_their_contents() {
    let mut options = Options::new(50, 0);
    options.sizes = vec![0, 1, 4095, 4096, 4097, 300_000];
    options.dirs = NonZeroUsize::new(7).unwrap();
    let Some((mounted, _dir)) = mounted(options) else { return };
    let mut found = Vec::new();
    for dir in std::fs::read_dir(mounted.root()).unwrap() {
        for file in std::fs::read_dir(dir.unwrap().path()).unwrap() {
            let file = file.unwrap();
            assert!(file.file_type().unwrap().is_file());
            found.push(file.path());
        }
    }
    found.sort();
    assert_eq!(found, mounted.paths());
    for (file, path) in found.iter().enumerate() {
        let size = mounted.size(file);
        assert_eq!(path.metadata().unwrap().len(), size, "{}", path.display());
        assert!(std::fs::read(path).unwrap() == content(file, 0, size as usize), "{file}");
    }
    assert!(File::open(mounted.root().join("d00/f999999")).is_err());
    assert!(File::create(&found[0]).is_err(), "it is read-only");
}

#[test]
fn nothing_is_kept_between_opens() {
    let Some((mounted, _dir)) = mounted(Options::new(1, 4096)) else { return };
    let path = &mounted.paths()[0];
    for round in 1..=3 {
        std::fs::read(path).unwrap();
        let seen = mounted.counters();
        assert_eq!((seen.opens, seen.bytes), (round, round * 4096), "{seen}");
        assert!(seen.lookups >= round && seen.getattrs >= round, "{seen}");
    }
    // Within one open, the page cache serves the second read.
    mounted.reset();
    let file = File::open(path).unwrap();
    for _ in 0..2 {
        file.read_exact_at(&mut [0; 4096], 0).unwrap();
    }
    assert_eq!(mounted.counters().bytes, 4096);
}

#[test]
fn reads_that_must_not_wait_are_not_supported() {
    let Some((mounted, _dir)) = mounted(Options::new(1, 4096)) else { return };
    let file = File::open(&mounted.paths()[0]).unwrap();
    let mut bytes = [0; 4096];
    assert_eq!(read_nowait_at(&file, &mut bytes, 0).unwrap(), Nowait::Unsupported);
    file.read_exact_at(&mut bytes, 0).unwrap();
    // Not even if the page cache holds all of it.
    assert_eq!(read_nowait_at(&file, &mut bytes, 0).unwrap(), Nowait::Unsupported);
}

#[test]
fn a_drop_unmounts_even_with_open_files() {
    let Some((mounted, dir)) = mounted(Options::new(2, 4096)) else { return };
    assert!(is_mounted(dir.path()));
    let _open = File::open(&mounted.paths()[0]).unwrap();
    drop(mounted);
    assert!(!is_mounted(dir.path()));
}

#[test]
fn a_killed_process_leaves_no_mount() {
    if available().is_err() {
        eprintln!("skipped: cannot mount");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child_that_kills_itself", "--exact", "--ignored"]).env("TO_MOUNT", dir.path());
    let status = command.status().unwrap();
    assert!(!status.success(), "the child was not killed: {status}");
    // The server notices the end of its parent after the parent has ended.
    let guard = std::time::Instant::now();
    while is_mounted(dir.path()) {
        assert!(guard.elapsed() < LONG, "it is still mounted");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "run in a child by a_killed_process_leaves_no_mount"]
fn child_that_kills_itself() {
    let Some(dir) = std::env::var_os("TO_MOUNT") else { return };
    let mut options = Options::new(1, 4096);
    // The child ends only when the open is answered.
    options.open = Duration::from_millis(200);
    let mounted = DelayFs::mount_in_child(Path::new(&dir), options, "server").unwrap();
    let path = mounted.paths().remove(0);
    thread::spawn(move || File::open(path));
    while mounted.counters().opens == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    // An open is in flight.
    std::process::abort();
}

#[test]
fn a_test_that_does_not_exist_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = DelayFs::mount_in_child(dir.path(), Options::new(1, 1), "no_such_test");
    assert!(error.unwrap_err().to_string().contains("no_such_test"));
}
