//! The order of the calls of durable copies: what a power failure can take.

use super::alone;
use ioloom_copy::{CopyCounters, CopyOptions, Durable, Follow, Report, Silent, Target, copy};
use ioloom_sys::fault;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Copies durably; returns the report and the operations in their order.
fn calls(from: &Path, to: &Path, mut options: CopyOptions) -> (Report, Vec<&'static str>) {
    options.durable = Durable::File;
    options.threads = Some(1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    fault::before_each(Some(Box::new(move |op| log.lock().unwrap().push(op))));
    let target = Target::As(to.to_owned());
    let report = copy(&[from.to_owned()], &target, &options, &Silent, &CopyCounters::default());
    fault::before_each(None);
    let seen = seen.lock().unwrap().clone();
    (report.unwrap(), seen)
}

/// Goal: the inode that is synced has a name. Without a journal, that of an unnamed file would stay on the
/// device without links. Method: no file without a name is made, and each is synced before its rename.
#[test]
fn a_durable_new_file_is_synced_under_a_name() {
    let _alone = alone();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::write(&from, "text").unwrap();
    let (report, calls) = calls(&from, &to, CopyOptions::default());
    assert_eq!(report.errors_count, 0, "{:?}", report.errors);
    assert!(!calls.contains(&"tmpfile"), "{calls:?}");
    let at = |op| calls.iter().position(|seen| *seen == op);
    assert!(at("fsync").is_some() && at("fsync") < at("renameat"), "{calls:?}");
    assert_eq!(calls.iter().filter(|op| **op == "fsync").count(), 2, "{calls:?}");
    assert_eq!(fs::read(&to).unwrap(), b"text");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

/// Goal: a name that becomes a link at the end of the walk is durable. Method: the directory that got it is
/// synced after the rename, and then the one above.
#[test]
fn the_directory_of_a_link_made_at_the_end_is_synced() {
    let _alone = alone();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::create_dir_all(to.join("sub")).unwrap();
    fs::write(from.join("first"), "text").unwrap();
    fs::hard_link(from.join("first"), from.join("sub/second")).unwrap();
    symlink("nowhere", to.join("first")).unwrap();
    let mut options =
        CopyOptions { recursive: true, follow: Follow::Never, ..CopyOptions::default() };
    options.preserve.links = true;
    let (report, calls) = calls(&from, &to, options);
    assert_eq!(report.errors_count, 0, "{:?}", report.errors);
    assert_eq!(report.counts.hard_links, 1);
    assert_eq!(fs::read(to.join("first")).unwrap(), b"text");
    let syncs = calls.iter().rev().take_while(|op| **op != "renameat");
    assert!(syncs.filter(|op| **op == "fsync").count() >= 2, "{calls:?}");
}
