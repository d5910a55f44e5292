//! Walks that are stopped or cancelled.

use crate::collect::{Collect, METHODS, collect, collect_with, one, varied, walk};
use crate::touch;
use ioloom_testbed::alone;
use ioloom_walk::{Method, Walk};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn an_early_end_leaves_what_was_entered() {
    let temp = varied();
    for method in METHODS {
        for threads in [1, 4] {
            let make = |_| Collect { stop_at: Some(20), ..Collect::default() };
            let (found, all, report) =
                collect_with(&walk(method, threads), &one(temp.path()), make);
            assert!(report.stopped && found.len() < 3000, "{method} {threads}");
            assert!(all.partly.contains(&temp.path().to_owned()), "the root is incomplete");
        }
    }
    let cancel = Some(Arc::new(AtomicBool::new(true)));
    let cancelled = Walk { cancel, ..walk(Method::Statx, 2) };
    let (found, _, report) = collect(&cancelled, &one(temp.path()));
    assert!(report.stopped && found.is_empty());
}

#[test]
fn a_cancelled_walk_ends_within_a_wide_directory() {
    if !alone("ends::a_cancelled_walk_ends_within_a_wide_directory") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    // Eleven blocks of names, fewer than idle threads.
    for f in 0..3000 {
        touch(temp.path().join(format!("{f:0200}")));
    }
    let cancel = Arc::new(AtomicBool::new(false));
    let (flag, calls) = (Arc::clone(&cancel), AtomicU64::new(0));
    ioloom_sys::fault::set("");
    ioloom_sys::fault::before_each(Some(Box::new(move |op| {
        if op == "getdents" && calls.fetch_add(1, Ordering::Relaxed) == 1 {
            flag.store(true, Ordering::Relaxed);
        }
    })));
    let cancelled = Walk { cancel: Some(cancel), ..walk(Method::Statx, 32) };
    let (_, all, report) = collect(&cancelled, &one(temp.path()));
    ioloom_sys::fault::before_each(None);
    assert!(report.stopped && all.partly.contains(&temp.path().to_owned()));
    let blocks = ioloom_sys::fault::calls_of("getdents");
    assert!(blocks <= 3, "{blocks} blocks were read");
}
