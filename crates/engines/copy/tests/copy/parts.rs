//! Sources that are copied in several parts keep what they would have in one.

use crate::test_dir::TestDir;
use ioloom_copy::{CopyCounters, CopyOptions, Preserve, Silent, Target, copy};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
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
