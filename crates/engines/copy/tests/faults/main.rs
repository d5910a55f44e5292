//! Injects a failure into every system call of a copy. Afterwards each target is absent, old or
//! correct, and the failure was reported. Runs in a separate process because fault rules apply to
//! the whole process.

#![allow(clippy::print_stdout, reason = "skipped tests print the reason")]

mod attributes;
mod durable;
mod growing;
mod sweep;

use ioloom_copy::{
    CopyCounters, CopyOptions, Durable, Follow, Mode, Preserve, Report, Silent, Target, Verify,
    copy,
};
use ioloom_sys::fault;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Every operation of a copy that supports fault injection.
const OPERATIONS: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "statx",
    "getdents",
    "create",
    "tmpfile",
    "linkat",
    "renameat",
    "mkdirat",
    "symlinkat",
    "readlinkat",
    "mknodat",
    "pread",
    "read",
    "pwrite",
    "fallocate",
    "ftruncate",
    "lseek",
    "ficlone",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "futimens",
    "utimensat",
    "listxattr",
    "getflags",
    "getxattr",
    "setxattr",
    "removexattr",
    "fdatasync",
    "sync_file_range",
    "fsync",
    "syncfs",
    "fstatfs",
    "unlinkat",
    "read-text",
    "cachestat",
    "io_uring_setup",
    "io_uring_enter",
    "uring_read",
    "uring_write",
    "preadv2",
    "pwritev2",
    "copy_file_range",
    "fadvise",
    "mmap",
    "close",
    "dup",
    "flock",
];

/// Fault rules apply to the whole process, so only one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    fault::set("");
    alone
}

/// `EIO` and `ENOSPC`.
const ERRORS: [i32; 2] = [5, 28];

/// The files in the tree; the last one only if requested.
const FILES: [&str; 5] = ["small", "dir/middle", "dir/again", "sparse", "dir/deep/big"];

fn make(root: &Path, big: bool) {
    fs::create_dir_all(root.join("dir/deep")).unwrap();
    fs::write(root.join("small"), "small").unwrap();
    fs::write(root.join("dir/middle"), content(700_000)).unwrap();
    if big {
        // Large enough for direct I/O, but mostly a hole to keep each round fast.
        let file = fs::File::create(root.join("dir/deep/big")).unwrap();
        file.set_len(32 << 20).unwrap();
        file.write_all_at(&content(2 << 20), 0).unwrap();
        file.write_all_at(&content(3 << 20), 20 << 20).unwrap();
    }
    fs::hard_link(root.join("small"), root.join("dir/again")).unwrap();
    symlink("small", root.join("link")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    Command::new("mkfifo").arg(root.join("pipe")).status().unwrap();
    let name = c"user.test";
    let flags = rustix::fs::XattrFlags::empty();
    let _ = rustix::fs::setxattr(root.join("small"), name, b"value", flags);
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 % 253) as u8).collect()
}

/// A tree to copy, with the contents of its files.
struct Source {
    path: PathBuf,
    files: Vec<(&'static str, Vec<u8>)>,
}

impl Source {
    fn new(path: PathBuf, big: bool) -> Self {
        make(&path, big);
        let read = |name| Some((name, fs::read(path.join(name)).ok()?));
        let files = FILES.into_iter().filter_map(read).collect();
        Self { path, files }
    }
}

/// Counts the complete regular files at the target; each must have either the correct or the old
/// content.
fn look(source: &Source, target: &Path, old: &[u8]) -> usize {
    let mut right = 0;
    for (name, content) in &source.files {
        let Ok(found) = fs::read(target.join(name)) else { continue };
        let is_old = *name == "small" && found == old;
        assert!(is_old || found == *content, "{name} is torn");
        right += usize::from(!is_old);
    }
    right
}

fn run(source: &Path, target: &Path, options: &CopyOptions) -> Option<Report> {
    let sources: Vec<PathBuf> = vec![source.to_owned()];
    copy(&sources, &Target::As(target.to_owned()), options, &Silent, &CopyCounters::default()).ok()
}

/// Returns the options of `cp -a` with one thread.
fn archive() -> CopyOptions {
    CopyOptions {
        recursive: true,
        follow: Follow::Never,
        preserve: Preserve::ALL,
        threads: Some(1),
        ..CopyOptions::default()
    }
}

#[test]
fn each_system_call_fails_once_and_nothing_is_lost() {
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let archive = archive();
    let safe = CopyOptions { durable: Durable::Full, verify: Verify::Device, ..archive.clone() };
    let mut hit = 0;
    for (options, merges, big) in [
        (&archive, false, false),
        (&archive, true, false),
        (&safe, true, false),
        (&archive, false, true),
        (&safe, false, true),
    ] {
        let source = Source::new(place.path().join("source"), big);
        // Skip operations that are never called.
        fault::set("");
        run(&source.path, &place.path().join("first"), options).unwrap();
        let called: Vec<_> = OPERATIONS.iter().filter(|op| fault::calls_of(op) > 0).collect();
        fs::remove_dir_all(place.path().join("first")).unwrap();
        for op in called {
            // Rounds with the large file are slow; one error is enough there.
            for error in &ERRORS[..if big { 1 } else { 2 }] {
                let target = place.path().join("target");
                if merges {
                    fs::create_dir(&target).unwrap();
                    fs::write(target.join("small"), "old").unwrap();
                }
                hit += usize::from(survives(&source, &target, options, (op, *error)));
                fs::remove_dir_all(&target).ok();
                nothing_is_left(place.path(), op);
            }
        }
        fs::remove_dir_all(&source.path).unwrap();
    }
    assert!(hit > 150, "only {hit} faults were triggered");
}

fn nothing_is_left(place: &Path, op: &str) {
    for left in fs::read_dir(place).unwrap() {
        let left = left.unwrap().path();
        if !["source", "target"].contains(&&*left.file_name().unwrap().to_string_lossy()) {
            // A file may be left only if the removal itself failed.
            assert_eq!(op, "unlinkat", "{} was left behind by {op}", left.display());
            fs::remove_dir_all(left).unwrap();
        }
    }
}

/// Injects a failure into the first call of an operation, then copies again without faults. Returns
/// true if the operation was called.
fn survives(
    source: &Source,
    target: &Path,
    options: &CopyOptions,
    (op, error): (&str, i32),
) -> bool {
    fault::set(&format!("{op}:1:{error}"));
    let report = run(&source.path, target, options);
    let met = fault::calls_of(op) > 0;
    fault::set("");
    let all = source.files.len();
    let right = look(source, target, b"old");
    let reported = report.as_ref().is_none_or(|r| r.errors_count > 0);
    if let Some(report) = &report {
        for error in &report.errors {
            let text = error.to_string();
            assert!(text.contains('/') && text.contains('\''), "{op}: {text}");
        }
    }
    assert!(reported || right == all, "{op} failed with {error} and no error was reported");
    let again = run(&source.path, target, options).unwrap();
    assert_eq!(again.errors_count, 0, "after {op}: {:?}", again.errors);
    assert_eq!(look(source, target, b""), all, "after {op}");
    met
}

/// Goal: a new file is copied where an unnamed one cannot be linked, as without /proc. Method: both ways to link it
/// fail.
#[test]
fn a_file_that_cannot_be_linked_is_renamed() {
    const MISSING: i32 = 2;
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::write(&source, "text").unwrap();
    fault::set(&format!("linkat:1:{MISSING},linkat:2:{MISSING}"));
    let report = run(&source, &target, &CopyOptions::default()).unwrap();
    let calls = fault::calls_of("linkat");
    fault::set("");
    if calls == 0 {
        return println!("skipped: this file system has no unnamed files");
    }
    assert!(calls >= 2, "the second way to link it was not tried");
    assert_eq!((report.errors_count, report.counts.files), (0, 1), "{:?}", report.errors);
    assert_eq!(fs::read(&target).unwrap(), b"text");
    nothing_is_left(place.path(), "linkat");
}

/// Goal: without room for the new file, the old one is not overwritten in place. Method: a full disk and a full quota
/// when the new file is created.
#[test]
fn an_old_file_stays_if_there_is_no_room_for_the_new_one() {
    const NO_SPACE: i32 = 28;
    const NO_QUOTA: i32 = 122;
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::write(&source, "new").unwrap();
    fs::write(&target, "old").unwrap();
    for error in [NO_SPACE, NO_QUOTA] {
        fault::set(&format!("create:1:{error}"));
        let report = run(&source, &target, &CopyOptions::default()).unwrap();
        fault::set("");
        assert_eq!(report.errors_count, 1, "{error}: {:?}", report.errors);
        let text = report.errors[0].to_string();
        assert!(text.starts_with("cannot create regular file '"), "{text}");
        assert_eq!(fs::read(&target).unwrap(), b"old", "{error}");
        nothing_is_left(place.path(), "create");
    }
}

/// Goal: a hard link that is lost is an error, and its content is copied. After too many links, the next name is a
/// link to the newest copy. Method: calls to link fail in a new directory, whose files are created under their names.
#[test]
fn a_name_that_cannot_be_a_hard_link_is_copied_and_reported() {
    const NOT_PERMITTED: i32 = 1;
    const OTHER_DEVICE: i32 = 18;
    const TOO_MANY: i32 = 31;
    const NOT_SUPPORTED: i32 = 95;
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("a"), "text").unwrap();
    for name in ["b", "c"] {
        fs::hard_link(source.join("a"), source.join(name)).unwrap();
    }
    let options = archive();
    for (faults, error, expected) in [
        (&[1, 2][..], NOT_PERMITTED, [1, 1, 1]),
        (&[1, 2], OTHER_DEVICE, [1, 1, 1]),
        (&[1, 2], NOT_SUPPORTED, [1, 1, 1]),
        (&[1], TOO_MANY, [1, 2, 2]),
    ] {
        let rules: Vec<_> = faults.iter().map(|n| format!("linkat:{n}:{error}")).collect();
        fault::set(&rules.join(","));
        let report = run(&source, &target, &options).unwrap();
        fault::set("");
        assert_eq!(report.errors_count, faults.len() as u64, "{error}: {:?}", report.errors);
        let first = &report.errors[0];
        assert!(first.to_string().starts_with("cannot create hard link '"), "{first}");
        let links_of = |path: &Path| fs::metadata(path).unwrap().nlink();
        let mut links = ["a", "b", "c"].map(|name| {
            assert_eq!(fs::read(target.join(name)).unwrap(), b"text", "{error}: {name}");
            links_of(&target.join(name))
        });
        links.sort_unstable();
        assert_eq!(links, expected, "{error}");
        // The name that was copied is the one that the next links to.
        assert_eq!(links_of(&first.path), expected[2], "{error}");
        fs::remove_dir_all(&target).unwrap();
    }
}

/// Goal: a tree is copied where directories cannot be renamed, which is found before the directory is filled. Method:
/// the first rename fails; it must be to another name, because the kernel does not ask the file system otherwise.
#[test]
fn a_directory_that_cannot_be_renamed_is_filled_under_its_name() {
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("dir/file"), "text").unwrap();
    let options = CopyOptions { recursive: true, ..CopyOptions::default() };
    for error in [38, 95] {
        fault::set(&format!("renameat:1:{error}"));
        let report = run(&source, &target, &options).unwrap();
        fault::set("");
        assert_eq!(report.errors_count, 0, "{:?}", report.errors);
        assert_eq!(fs::read(target.join("dir/file")).unwrap(), b"text");
        nothing_is_left(place.path(), "renameat");
        fs::remove_dir_all(&target).unwrap();
    }
    let (seen, above) = (Arc::new(Mutex::new(Vec::new())), place.path().to_owned());
    let names = seen.clone();
    fault::before_each(Some(Box::new(move |op| {
        if op == "renameat" {
            let found = fs::read_dir(&above).unwrap().map(|entry| entry.unwrap().file_name());
            let hidden = found.filter(|name| name.to_string_lossy().contains(".ioloom-"));
            names.lock().unwrap().extend(hidden);
        }
    })));
    let report = run(&source, &target, &options).unwrap();
    fault::before_each(None);
    assert_eq!(report.errors_count, 0, "{:?}", report.errors);
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 1 && seen[0] != seen[1], "{seen:?}");
}

/// One entry of each type, with timestamps that no new file has.
fn kinds(root: &Path) {
    fs::create_dir_all(root.join("dir")).unwrap();
    fs::write(root.join("dir/inner"), "inner").unwrap();
    fs::write(root.join("one"), "one").unwrap();
    fs::hard_link(root.join("one"), root.join("two")).unwrap();
    symlink("one", root.join("link")).unwrap();
    Command::new("mkfifo").arg(root.join("pipe")).status().unwrap();
    let mut touch = Command::new("touch");
    touch.args(["-h", "-d", "2001-01-01"]).args(["link", "pipe"].map(|name| root.join(name)));
    assert!(touch.status().unwrap().success());
}

/// Returns the incomplete entries below a target, and the total size of the complete files, each
/// counted once.
fn half_made(target: &Path) -> (Vec<String>, u64) {
    let (mut found, mut whole) = (Vec::new(), HashMap::new());
    let mut dirs = vec![target.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let kind = meta.file_type();
            if path.to_string_lossy().contains(".ioloom-") {
                found.push(format!("{} was left behind", path.display()));
            } else if (kind.is_symlink() || kind.is_fifo()) && meta.mtime() > 1_000_000_000 {
                found.push(format!("{} does not have the times of its source", path.display()));
            } else if kind.is_file()
                && ["one", "inner"].contains(&&*fs::read_to_string(&path).unwrap())
            {
                whole.insert(meta.ino(), meta.len());
            }
            if kind.is_dir() {
                dirs.push(path);
            }
        }
    }
    (found, whole.into_values().sum())
}

/// Goal: an error leaves no incomplete file under its final name, and the byte count is correct.
/// Method: fail each of the first calls of each operation, into a new target and over an old one.
#[test]
fn an_error_leaves_no_incomplete_file_and_is_not_counted() {
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    kinds(&source);
    let options = archive();
    for merges in [false, true] {
        let begin = || {
            fs::remove_dir_all(&target).ok();
            if merges {
                fs::create_dir(&target).unwrap();
                for name in ["one", "two"] {
                    fs::write(target.join(name), "old").unwrap();
                }
            }
        };
        begin();
        fault::set("");
        run(&source, &target, &options).unwrap();
        let called: Vec<_> = OPERATIONS.iter().map(|op| (*op, fault::calls_of(op))).collect();
        for (op, calls) in called {
            for n in 1..=calls.min(8) {
                begin();
                fault::set(&format!("{op}:{n}:5"));
                let report = run(&source, &target, &options);
                fault::set("");
                let (found, whole) = half_made(&target);
                // An attribute that cannot be set does not cost the file.
                let attributes = ["unlinkat", "utimensat", "fchownat", "fchmodat"];
                assert!(found.is_empty() || attributes.contains(&op), "{op} {n}: {found:?}");
                nothing_is_left(place.path(), op);
                let Some(report) = report else { continue };
                assert!(
                    report.bytes <= whole,
                    "{op} {n}: {} bytes reported, {whole} found",
                    report.bytes
                );
                for error in &report.errors {
                    let text = error.to_string();
                    assert!(!text.contains("Not a directory"), "{op} {n}: {text}");
                }
            }
        }
    }
}

/// Goal: a method that fails after it was chosen leaves no trace in the copy and is not reported as
/// the one used. Method: fail the direct I/O calls one by one, on a file whose last block is
/// partial.
#[test]
fn a_method_that_fails_late_leaves_the_copy_right() {
    const NOT_PERMITTED: i32 = 1;
    const INVALID: i32 = 22;
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    let bytes = content((32 << 20) + 5);
    fs::write(&source, &bytes).unwrap();
    let cold = || {
        let file = fs::File::open(&source).unwrap();
        file.sync_all().unwrap();
        ioloom_sys::cache::evict_file(&file).unwrap();
    };
    cold();
    let usual = run(&source, &target, &CopyOptions::default()).unwrap();
    if usual.modes != [(Mode::Direct, 1)] {
        return println!("skipped: direct I/O is not used on this file system: {:?}", usual.modes);
    }
    for (op, n, error, resume) in [
        ("io_uring_setup", 1, NOT_PERMITTED, false),
        ("io_uring_setup", 2, NOT_PERMITTED, false),
        ("uring_read", 1, INVALID, false),
        ("uring_write", 1, INVALID, false),
        // In pieces.
        ("io_uring_setup", 2, NOT_PERMITTED, true),
        ("uring_read", 1, INVALID, true),
        ("uring_write", 5, INVALID, true),
    ] {
        fs::remove_file(&target).unwrap();
        cold();
        fault::set(&format!("{op}:{n}:{error}"));
        let report =
            run(&source, &target, &CopyOptions { resume, ..CopyOptions::default() }).unwrap();
        fault::set("");
        assert_eq!(report.errors_count, 0, "{op} {n}: {:?}", report.errors);
        assert_eq!(report.modes, [(Mode::Buffered, 1)], "{op} {n}");
        assert_eq!(fs::metadata(&target).unwrap().len(), bytes.len() as u64, "{op} {n}");
        assert_eq!(report.bytes, bytes.len() as u64, "{op} {n}");
        assert!(fs::read(&target).unwrap() == bytes, "{op} {n}");
    }
}
