//! Directories that vanish or are unreadable, and calls that fail.

use crate::collect::{Collect, METHODS, collect, collect_with, one, varied, walk};
use crate::oracle;
use crate::touch;
use ioloom_testbed::{alone, as_nobody};
use ioloom_walk::{Method, Walk};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

#[test]
fn vanished_files_are_not_errors() {
    for method in METHODS {
        let temp = tempfile::tempdir().unwrap();
        touch(temp.path().join("first"));
        let gone = temp.path().join("gone");
        for d in 0..5 {
            std::fs::create_dir_all(gone.join(format!("d{d}"))).unwrap();
        }
        // The walk visits the only file in the root. At that point `gone` is not open yet; it may
        // already be on the stack if its name was read first.
        let make = |_| Collect { remove: Some(gone.clone()), ..Collect::default() };
        let (found, all, report) = collect_with(&walk(method, 1), &one(temp.path()), make);
        assert_eq!((report.errors_count, report.entries), (0, 1), "{method}");
        assert!(all.partly.is_empty());
        // A sweep queries files last, so all directories have been entered by then.
        let left = if method == Method::Sweep { 8 } else { 2 };
        assert_eq!((found.len(), report.vanished), (left, u64::from(left == 2)), "{method}");
    }
}

#[test]
fn an_unreadable_directory_is_entered_failed_and_left() {
    if as_nobody("failures::an_unreadable_directory_is_entered_failed_and_left") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let closed = temp.path().join("up/closed");
    std::fs::create_dir_all(&closed).unwrap();
    touch(closed.join("inside"));
    touch(temp.path().join("open"));
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    for method in METHODS {
        for descriptors_max in [0, 16] {
            let walk = Walk { descriptors_max, ..walk(method, 2) };
            let (found, mut all, report) = collect(&walk, &one(temp.path()));
            assert_eq!((found.len(), report.directories, report.errors_count), (4, 3, 1));
            assert!(found.contains_key(closed.as_os_str().as_bytes()));
            assert_eq!(all.failed, [(Some(closed.clone()), closed.clone())]);
            all.partly.sort();
            let above = [temp.path().to_owned(), temp.path().join("up"), closed.clone()];
            assert_eq!(all.partly, above);
        }
    }
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn names_are_queried_one_by_one_without_a_ring() {
    if !alone("failures::names_are_queried_one_by_one_without_a_ring") {
        return;
    }
    let temp = varied();
    let expected = oracle::tree(temp.path(), false);
    // The first call checks whether the machine can create rings.
    for rule in ["io_uring_setup:2:24", "io_uring_setup:2:12", "io_uring_register:2:22"] {
        for threads in [1, 4] {
            ioloom_sys::fault::set(rule);
            let (found, _, report) = collect(&walk(Method::Uring, threads), &one(temp.path()));
            assert!(found == expected, "{rule} {threads}");
            assert_eq!(report.errors_count, 0, "{rule} {threads}: {:?}", report.errors);
            assert!(report.names_without_ring > 0, "{rule} {threads}");
            let op = rule.split(':').next().unwrap();
            assert!(ioloom_sys::fault::calls_of(op) >= 2, "{rule} {threads}");
        }
    }
    ioloom_sys::fault::set("");
}

#[test]
fn any_call_may_fail() {
    if !alone("failures::any_call_may_fail") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    for d in 0..4 {
        std::fs::create_dir_all(temp.path().join(format!("d{d}/e"))).unwrap();
        touch(temp.path().join(format!("d{d}/e/f")));
        touch(temp.path().join(format!("d{d}/g")));
    }
    let whole = oracle::tree(temp.path(), false);
    for method in METHODS {
        for op in ["openat", "statx", "getdents", "open", "uring_statx", "io_uring_enter"] {
            for n in 1..28 {
                for threads in [1, 3] {
                    ioloom_sys::fault::set(&format!("{op}:{n}:5"));
                    let (found, _, report) = collect(&walk(method, threads), &one(temp.path()));
                    let reached = ioloom_sys::fault::calls_of(op) >= n;
                    let missing = found.len() < whole.len();
                    assert!(
                        !missing || report.errors_count > 0,
                        "{method} {op} {n}: entries missing without an error"
                    );
                    assert!(reached || report.errors_count == 0, "{method} {op} {n}");
                    assert!(found.keys().all(|path| whole.contains_key(path)));
                    let two_asks =
                        method == Method::Lstat || op == "open" || op == "io_uring_enter";
                    let said = report.errors_count > 0 || two_asks;
                    assert!(!reached || said, "{method} {op} {n} {threads}: error not reported");
                }
            }
        }
    }
    ioloom_sys::fault::set("");
}
