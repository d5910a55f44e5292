//! Sources that are copied in several parts keep what they would have in one.

use crate::test_dir::TestDir;
use ioloom_copy::{
    CopyCounters, CopyOptions, Preserve, Silent, Subtree, Target, Watcher, copy, copy_subtrees,
    finish_subtrees,
};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

fn into(dir: &Path, sources: &[PathBuf], options: &CopyOptions) {
    let (target, progress) = (Target::Into(dir.to_owned()), CopyCounters::default());
    let report = copy(sources, &target, options, &Silent, &progress).unwrap();
    assert_eq!(report.errors_count, 0, "{:?}", report.errors);
}

#[test]
fn hard_links_between_sources_of_one_name_are_kept() {
    let place = TestDir::disk();
    let from = place.path().join("from");
    for dir in ["a/x", "b/x", "c"] {
        fs::create_dir_all(from.join(dir)).unwrap();
    }
    fs::write(from.join("a/x/first"), "content").unwrap();
    for other in ["b/x/second", "c/third"] {
        fs::hard_link(from.join("a/x/first"), from.join(other)).unwrap();
    }
    let to = place.path().join("to");
    fs::create_dir(&to).unwrap();
    let options =
        CopyOptions { preserve: Preserve::ALL, recursive: true, ..CopyOptions::default() };
    into(&to, &[from.join("a/x"), from.join("b/x"), from.join("c/.")], &options);
    let of = |name: &str| fs::metadata(to.join(name)).unwrap();
    let first = of("x/first");
    assert_eq!(first.nlink(), 3);
    assert_eq!([of("x/second").ino(), of("third").ino()], [first.ino(); 2]);
    // The copy of the first name is another file by now: it is not linked.
    fs::remove_dir_all(&to).unwrap();
    fs::create_dir(&to).unwrap();
    fs::write(from.join("b/x/first"), "another").unwrap();
    into(&to, &[from.join("a/x"), from.join("b/x"), from.join("c/.")], &options);
    assert_eq!(fs::read_to_string(to.join("third")).unwrap(), "content");
    assert_eq!(fs::read_to_string(to.join("x/first")).unwrap(), "another");
}

#[test]
fn directories_of_many_sources_keep_their_times() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::create_dir(&to).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    // The same name again in the first directory, after more directories than one part has.
    let mut names: Vec<String> = (0..200).map(|n| format!("top/{n}/file")).collect();
    names.push("top/0/other".to_owned());
    for name in &names {
        fs::create_dir_all(from.join(name).parent().unwrap()).unwrap();
        fs::write(from.join(name), name).unwrap();
    }
    let dirs = (0..200).map(|n| format!("top/{n}")).chain(["top".to_owned()]);
    for dir in dirs.clone() {
        File::open(from.join(dir)).unwrap().set_modified(old).unwrap();
    }
    let options = CopyOptions { preserve: Preserve::ALL, parents: true, ..CopyOptions::default() };
    let sources: Vec<PathBuf> = names.iter().map(|name| from.join(name)).collect();
    into(&to, &sources, &options);
    let below = to.join(from.strip_prefix("/").unwrap());
    for name in &names {
        assert_eq!(fs::read_to_string(below.join(name)).unwrap(), *name);
    }
    for dir in dirs {
        assert_eq!(fs::metadata(below.join(&dir)).unwrap().modified().unwrap(), old, "{dir}");
    }
}

/// Moves the directory of a copied file, and puts a link to another directory in its place.
struct Exchange<'a>(&'a Path);

impl Watcher for Exchange<'_> {
    fn wants_names(&self) -> bool {
        true
    }

    fn copied(&self, _from: &Path, to: &Path, _backup: Option<&Path>) {
        let dir = to.parent().unwrap();
        fs::rename(dir, self.0.join("moved")).unwrap();
        symlink(self.0.join("other"), dir).unwrap();
    }
}

#[test]
fn parents_are_not_finished_through_links() {
    let Some(place) = TestDir::memory() else { return println!("skipped: no /dev/shm") };
    let at = |name: &str| place.path().join(name);
    for dir in ["from/a", "to", "other"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    fs::write(at("from/a/file"), "text").unwrap();
    fs::set_permissions(at("from/a"), Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(at("other"), Permissions::from_mode(0o711)).unwrap();
    let options = CopyOptions { preserve: Preserve::ALL, parents: true, ..CopyOptions::default() };
    let (target, progress) = (Target::Into(at("to")), CopyCounters::default());
    let watcher = Exchange(place.path());
    let report = copy(&[at("from/a/file")], &target, &options, &watcher, &progress).unwrap();
    assert!(report.errors_count > 0);
    assert_eq!(fs::metadata(at("other")).unwrap().mode() & 0o777, 0o711, "{:?}", report.errors);
}

#[test]
fn parts_are_not_finished_through_links() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    for dir in ["from/a/b", "to", "other/b"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    symlink(at("other"), at("to/a")).unwrap();
    fs::set_permissions(at("from/a/b"), Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(at("other/b"), Permissions::from_mode(0o711)).unwrap();
    let part = Subtree { root: at("from"), copy: at("to"), below: "a/b".into(), alone: true };
    let options =
        CopyOptions { preserve: Preserve::ALL, recursive: true, ..CopyOptions::default() };
    let (errors, count) = finish_subtrees(&[part], &options, &Silent);
    assert_eq!((errors.len(), count), (1, 1), "{errors:?}");
    assert_eq!(fs::metadata(at("other/b")).unwrap().mode() & 0o777, 0o711);
}

/// Goal: parts do not follow a link that replaced a directory above them, although the target has the directory. It is
/// one error for all parts below it.
#[test]
fn parts_below_a_source_that_became_a_link_are_not_copied() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    for dir in ["from", "to/a/b", "other/b", "other/c"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    fs::write(at("other/c/secret"), "secret").unwrap();
    fs::set_permissions(at("other/b"), Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(at("to/a/b"), Permissions::from_mode(0o750)).unwrap();
    symlink(at("other"), at("from/a")).unwrap();
    let part = |below: &str, alone| Subtree {
        root: at("from"),
        copy: at("to"),
        below: below.into(),
        alone,
    };
    let parts = [part("a/b", true), part("a/c", false)];
    let options =
        CopyOptions { preserve: Preserve::ALL, recursive: true, ..CopyOptions::default() };
    let copied = copy_subtrees(&parts, &options, &Silent, &CopyCounters::default()).report;
    assert_eq!(copied.errors_count, 1, "{:?}", copied.errors);
    assert!(!at("to/a/c").exists());
    let (errors, count) = finish_subtrees(&parts, &options, &Silent);
    assert_eq!((errors.len(), count), (1, 1), "{errors:?}");
    assert_eq!(fs::metadata(at("to/a/b")).unwrap().mode() & 0o777, 0o750);
}
