//! Copies that are interrupted: what the report counts, and what the next copy continues.
//!
//! Tests that resume a copy run in their own process: a program that another test starts has the lock of the
//! journal until its `exec`.

use crate::test_dir::TestDir;
use ioloom_copy::{
    CopyCounters, CopyOptions, Existing, Preserve, Report, Silent, Target, Verify, Watcher, copy,
};
use ioloom_sys::attr::Attr;
use ioloom_testbed::alone;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

fn run(from: &Path, to: &Path, options: &CopyOptions, watcher: &dyn Watcher) -> Report {
    let (sources, target) = ([from.to_owned()], Target::As(to.to_owned()));
    copy(&sources, &target, options, watcher, &CopyCounters::default()).unwrap()
}

fn tree(at: &Path, files: usize) {
    fs::create_dir_all(at.join("sub")).unwrap();
    for number in 0..files {
        fs::write(at.join(format!("sub/{number}")), format!("file {number}")).unwrap();
    }
}

/// Does something after the first file.
struct After<F>(F);

impl<F: Fn() + Sync> Watcher for After<F> {
    fn wants_names(&self) -> bool {
        true
    }

    fn copied(&self, from: &Path, _to: &Path, _backup: Option<&Path>) {
        if from.is_file() {
            (self.0)();
        }
    }
}

/// Cancels the copy after the first file.
fn stop(options: &CopyOptions) -> impl Watcher {
    After(|| options.cancel.store(true, Ordering::Relaxed))
}

#[test]
fn a_directory_that_disappears_is_named() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::create_dir_all(from.join("gone")).unwrap();
    fs::write(from.join("file"), "text").unwrap();
    let report =
        run(&from, &to, &options(false), &After(|| drop(fs::remove_dir(from.join("gone")))));
    let messages: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
    assert_eq!(report.errors_count, 1, "{messages:?}");
    let path = from.join("gone");
    let wanted = format!("cannot stat '{}': No such file or directory", path.display());
    assert!(messages[0].starts_with(&wanted), "{messages:?}");
    assert_eq!(fs::read(to.join("file")).unwrap(), b"text");
}

fn options(resume: bool) -> CopyOptions {
    CopyOptions { recursive: true, threads: Some(1), resume, ..CopyOptions::default() }
}

#[test]
fn files_that_were_removed_again_are_not_in_the_report() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    tree(&from, 3);
    let options = CopyOptions { verify: Verify::Cache, ..options(false) };
    let report = run(&from, &to, &options, &stop(&options));
    assert!(report.cancelled && !to.exists());
    assert_eq!((report.counts.files, report.bytes), (0, 0));
    assert!(report.hashes.is_empty(), "{:?}", report.hashes);
    assert!(report.modes.is_empty(), "{:?}", report.modes);
    assert_eq!((report.evidence.files, report.evidence.bytes), (0, 0));
    options.cancel.store(false, Ordering::Relaxed);
    let report = run(&from, &to, &options, &Silent);
    assert_eq!((report.hashes.len(), report.evidence.files), (3, 3));
    assert_eq!(report.modes.iter().map(|(_, files)| files).sum::<u64>(), 3);
}

/// Appends to the source once, when the copy has opened it.
struct Append<'a>(&'a Path, AtomicBool);

impl Watcher for Append<'_> {
    fn may_replace(&self, _: &Path, _: &Attr) -> bool {
        if !self.1.swap(true, Ordering::Relaxed) {
            File::options().append(true).open(self.0).unwrap().write_all(b"more").unwrap();
        }
        true
    }
}

#[test]
fn a_file_that_is_copied_again_is_counted_once() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "text").unwrap();
    fs::write(&to, "old").unwrap();
    let options = CopyOptions { existing: Existing::Ask, ..CopyOptions::default() };
    let report = run(&from, &to, &options, &Append(&from, AtomicBool::new(false)));
    assert_eq!((report.errors_count, fs::read(&to).unwrap()), (0, b"textmore".to_vec()));
    assert_eq!(report.modes.iter().map(|(_, files)| files).sum::<u64>(), 1);
}

#[test]
fn an_interrupted_copy_is_continued_under_other_spellings_of_its_paths() {
    if !alone("interrupted::an_interrupted_copy_is_continued_under_other_spellings_of_its_paths") {
        return;
    }
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    tree(&at("from"), 5);
    fs::create_dir(at("dir")).unwrap();
    std::os::unix::fs::symlink("dir", at("link")).unwrap();
    for other in ["dir/./to", "link/to", "dir/../dir/to", "dir/to"] {
        let options = options(true);
        let report = run(&at("from"), &at("dir/to"), &options, &stop(&options));
        assert!(report.cancelled && report.counts.files > 0, "{other}");
        options.cancel.store(false, Ordering::Relaxed);
        let again = run(&at("from"), &at(other), &options, &Silent);
        assert_eq!(again.errors_count, 0, "{other}: {:?}", again.errors);
        assert_eq!(again.counts.resumed, report.counts.files, "{other}");
        assert_eq!(fs::read(at("dir/to/sub/4")).unwrap(), b"file 4", "{other}");
        assert_eq!(fs::read_dir(at("dir")).unwrap().count(), 1, "{other}");
        fs::remove_dir_all(at("dir/to")).unwrap();
    }
}

/// Keeps the notes, and whether a directory that they name as kept can be locked.
#[derive(Default)]
struct Notes(Mutex<Vec<(String, bool)>>);

impl Watcher for Notes {
    fn note(&self, text: &str) {
        let kept = text.strip_prefix("kept '").and_then(|text| text.split('\'').next());
        let lock = |path: &str| ioloom_sys::make::try_lock(fs::File::open(path).unwrap()).unwrap();
        self.0.lock().unwrap().push((text.to_owned(), kept.is_none_or(lock)));
    }
}

/// Goal: what a killed copy of a single file left does not stay for ever. Small files are copied in less time
/// than it takes to list a directory.
#[test]
fn a_large_file_removes_what_a_killed_copy_left_next_to_it() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    let stale = at("dir/.to.ioloom-0123456789abcdef.temp.part");
    fs::write(&stale, "part").unwrap();
    fs::write(at("dir/to"), "old").unwrap();
    for (bytes, stays) in [(1000, true), (4 << 20, false)] {
        fs::write(at("from"), vec![7; bytes]).unwrap();
        let report = run(&at("from"), &at("dir/to"), &CopyOptions::default(), &Silent);
        assert_eq!(report.errors_count, 0, "{:?}", report.errors);
        assert_eq!(fs::metadata(at("dir/to")).unwrap().len(), bytes as u64);
        assert_eq!(stale.exists(), stays, "{bytes} bytes");
    }
}

#[test]
fn a_journal_that_is_kept_is_named_and_removed_by_the_next_copy() {
    if !alone("interrupted::a_journal_that_is_kept_is_named_and_removed_by_the_next_copy") {
        return;
    }
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    tree(&at("from"), 2);
    fs::create_dir_all(at("dir/to/sub/1")).unwrap();
    let other = "dir/.other.ioloom-0123456789abcdef.journal";
    fs::write(at(other), "").unwrap();
    let notes = Notes::default();
    let report = run(&at("from"), &at("dir/to"), &options(true), &notes);
    assert_eq!(report.errors_count, 1, "{:?}", report.errors);
    let notes = notes.0.into_inner().unwrap();
    let names_it = |(text, free): &(String, bool)| text.contains(".journal'") && *free;
    assert!(notes.iter().any(names_it), "{notes:?}");
    let left = || fs::read_dir(at("dir")).unwrap().count();
    assert_eq!(left(), 3);
    fs::remove_dir(at("dir/to/sub/1")).unwrap();
    let report = run(&at("from"), &at("dir/to"), &options(false), &Silent);
    assert_eq!(report.errors_count, 0, "{:?}", report.errors);
    assert!(left() == 2 && at(other).exists(), "the journal of another target stays");
}

#[test]
fn a_copy_that_can_be_resumed_keeps_that_of_another_source() {
    if !alone("interrupted::a_copy_that_can_be_resumed_keeps_that_of_another_source") {
        return;
    }
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    tree(&at("first"), 5);
    tree(&at("second"), 2);
    fs::create_dir(at("dir")).unwrap();
    let first = options(true);
    let stopped = run(&at("first"), &at("dir/to"), &first, &stop(&first));
    assert!(stopped.cancelled);
    let left = || {
        let names = fs::read_dir(at("dir")).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.to_string_lossy().ends_with(".part")).collect::<Vec<PathBuf>>()
    };
    assert_eq!(left().len(), 1);
    let notes = Notes::default();
    let report = run(&at("second"), &at("dir/to"), &options(true), &notes);
    assert_eq!(report.errors_count, 0, "{:?}", report.errors);
    assert_eq!(left().len(), 1, "the work of the first copy is there");
    let notes = notes.0.into_inner().unwrap();
    let is_free = |(text, free): &(String, bool)| text.starts_with("kept ") && *free;
    assert!(notes.iter().any(is_free), "{notes:?}");
    fs::remove_dir_all(at("dir/to")).unwrap();
    first.cancel.store(false, Ordering::Relaxed);
    let continued = run(&at("first"), &at("dir/to"), &first, &Silent);
    assert_eq!(continued.counts.resumed, stopped.counts.files);
    assert_eq!(left(), [] as [PathBuf; 0]);
}

#[test]
fn files_that_were_copied_with_other_options_are_copied_again() {
    if !alone("interrupted::files_that_were_copied_with_other_options_are_copied_again") {
        return;
    }
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    tree(&at("from"), 5);
    let first = options(true);
    let stopped = run(&at("from"), &at("to"), &first, &stop(&first));
    assert!(stopped.cancelled && stopped.counts.files > 0);
    let preserve = Preserve { times: true, ..Preserve::default() };
    let report = run(&at("from"), &at("to"), &CopyOptions { preserve, ..options(true) }, &Silent);
    assert_eq!((report.errors_count, report.counts.resumed), (0, 0), "{:?}", report.errors);
    for number in 0..5 {
        let modified = |dir: &str| {
            let path = at(&format!("{dir}/sub/{number}"));
            fs::metadata(path).unwrap().modified().unwrap()
        };
        assert_eq!(modified("from"), modified("to"));
    }
}

/// The copy was killed after it had given the directory to the owner of its source, and before the rename.
#[test]
fn a_directory_that_has_its_final_owner_is_continued() {
    if !alone("interrupted::a_directory_that_has_its_final_owner_is_continued") {
        return;
    }
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    tree(&at("from"), 5);
    if chown(at("from"), Some(1234), Some(1234)).is_err() {
        return println!("skipped: this user cannot change owners");
    }
    let preserve = Preserve { owner: true, ..Preserve::default() };
    let options = CopyOptions { preserve, ..options(true) };
    for (shared, errors) in [(false, 0), (true, 1)] {
        fs::create_dir(at("dir")).unwrap();
        let mode = if shared { 0o777 } else { 0o755 };
        fs::set_permissions(at("dir"), fs::Permissions::from_mode(mode)).unwrap();
        let stopped = run(&at("from"), &at("dir/to"), &options, &stop(&options));
        assert!(stopped.cancelled && stopped.counts.files > 0);
        options.cancel.store(false, Ordering::Relaxed);
        let mut left = fs::read_dir(at("dir")).unwrap().map(|entry| entry.unwrap().path());
        let left = left.find(|path| path.is_dir()).unwrap();
        chown(left, Some(1234), Some(1234)).unwrap();
        let notes = Notes::default();
        let report = run(&at("from"), &at("dir/to"), &options, &notes);
        assert_eq!(report.errors_count, errors, "{:?}", report.errors);
        let notes = notes.0.into_inner().unwrap();
        let is_named = notes.iter().any(|(text, _)| text.contains("belongs to another user"));
        assert_eq!(is_named, shared, "{notes:?}");
        if !shared {
            assert_eq!(report.counts.resumed, stopped.counts.files);
            assert_eq!(fs::metadata(at("dir/to")).unwrap().uid(), 1234);
        }
        fs::remove_dir_all(at("dir")).unwrap();
    }
}

/// Exchanges a directory in the middle of the target when the deepest file is there.
struct Exchange<'a>(&'a Path);

impl Watcher for Exchange<'_> {
    fn wants_names(&self) -> bool {
        true
    }

    fn copied(&self, from: &Path, _to: &Path, _backup: Option<&Path>) {
        if from.is_file() {
            let mut names = fs::read_dir(self.0).unwrap().map(|entry| entry.unwrap().path());
            let is_hidden = |path: &PathBuf| path.to_string_lossy().ends_with(".part");
            let fifth = names.find(is_hidden).unwrap().join("d/d/d/d/d");
            fs::rename(fifth.join("d"), self.0.join("sixth")).unwrap();
            fs::rename(&fifth, self.0.join("fifth")).unwrap();
            fs::create_dir(&fifth).unwrap();
            fs::set_permissions(&fifth, fs::Permissions::from_mode(0o711)).unwrap();
        }
    }
}

/// The pairs of the upper directories have been closed, and their path leads to another directory.
#[test]
fn a_directory_that_took_the_place_of_another_one_is_not_changed() {
    let Some(place) = TestDir::memory() else { return println!("skipped: no /dev/shm") };
    let at = |name: &str| place.path().join(name);
    let deepest = at("from").join(vec!["d"; 200].join("/"));
    fs::create_dir_all(&deepest).unwrap();
    fs::write(deepest.join("file"), "text").unwrap();
    fs::set_permissions(at("from/d/d/d/d/d"), fs::Permissions::from_mode(0o755)).unwrap();
    let preserve = Preserve { mode: true, ..Preserve::default() };
    let options = CopyOptions { preserve, ..options(false) };
    let report = run(&at("from"), &at("to"), &options, &Exchange(place.path()));
    assert!(report.errors_count > 0);
    let other = fs::metadata(at("to/d/d/d/d/d")).unwrap();
    assert_eq!(other.mode() & 0o777, 0o711, "{:?}", report.errors);
}
