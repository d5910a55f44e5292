//! Every system call fails once, in turn: one file fails, or the run with one clear error, and all
//! else is as without. A binary of its own with one test, because the fault table is global.

#![allow(clippy::print_stderr, reason = "what a machine lacks is told as skipped")]

#[path = "../ioloom/support.rs"]
#[allow(dead_code, reason = "shared with the other test binaries")]
mod support;

use ioloom::Error;
use ioloom_sys::fault;
use support::{expected, lacks, list, make, plan, roots, run};

const EINTR: i32 = 4;
const EIO: i32 = 5;
const EAGAIN: i32 = 11;

/// Operation, and the plans that use it.
const CASES: [(&str, &[&str]); 12] = [
    (
        "open",
        &[
            "read/threads:n=1",
            "uring/window:l=4,p=1",
            "read/roles:r=1,c=1,w=2",
            "nowait/window:l=3,p=1",
            "mmap:plain/threads:n=1",
        ],
    ),
    ("statx", &["read/threads:n=1", "uring:open/window:l=4,p=1", "direct:read/threads:n=1"]),
    (
        "fstat",
        &[
            "read/threads:n=1",
            "uring/window:l=4,p=2",
            "nowait/window:l=3,p=1",
            "mmap:plain/threads:n=1",
        ],
    ),
    (
        "pread",
        &[
            "read/threads:n=1",
            "read/window:l=3,p=2",
            "read/roles:r=1,h=1,c=0,w=2",
            "direct:read/threads:n=1",
            "read/threads:n=1/chunk=4KiB",
        ],
    ),
    ("preadv2", &["nowait/threads:n=1", "nowait/window:l=3,p=1"]),
    (
        "uring_read",
        &[
            "uring/window:l=4,p=1",
            "uring:registered/threads:n=1",
            "direct:uring/window:l=2,p=1",
            "uring/roles:r=1,c=1,w=3",
            "uring/window:l=2,p=1/chunk=8KiB",
        ],
    ),
    ("uring_open", &["uring:open/window:l=4,p=1", "uring:open/roles:r=1,h=1,c=0,w=3"]),
    ("io_uring_setup", &["uring/window:l=4,p=2", "uring/roles:r=2,c=1,w=3"]),
    (
        "io_uring_enter",
        &["uring/window:l=4,p=1", "uring:open/threads:n=1", "uring/roles:r=1,c=1,w=3"],
    ),
    ("io_uring_register", &["uring:registered/window:l=4,p=2"]),
    (
        "mmap",
        &[
            "mmap:plain/threads:n=1",
            "mmap:willneed/window:l=3,p=1",
            "read/threads:n=1/buffers=fresh",
        ],
    ),
    ("madvise", &["mmap:willneed/window:l=3,p=1", "mmap:sequential/roles:r=1,c=1,w=2"]),
];

#[test]
fn one_failed_call_is_one_failed_file_or_one_clear_error() {
    let (_dir, paths) = make(&roots()[0], &[0, 100, 5000, 70_000, 200_000, 65_536]);
    let want = expected(&paths);
    let (mut runs, mut skipped) = (0, 0);
    for (op, plans) in CASES {
        for text in plans {
            if run(list(&paths), plan(text)).is_err_and(|e| lacks(&plan(text), &e)) {
                skipped += 1;
                continue;
            }
            let mut hits = 0;
            for n in 1..=200 {
                fault::set(&format!("{op}:{n}:{EIO}"));
                let result = run(list(&paths), plan(text));
                let hit = fault::calls_of(op) >= n;
                fault::set("");
                runs += 1;
                let what = format!("{text}: {op} number {n}");
                match result {
                    Ok(mut got) => {
                        let failed = got.failed.len();
                        assert!(failed <= usize::from(hit), "{what}: {:?}", got.failed);
                        for error in &got.failed {
                            assert!(error.to_string().contains("input/output error"), "{error}");
                            assert!(got.hashes.insert(error.index, want[&error.index]).is_none());
                        }
                        assert!(got.hashes == want, "{what}: other bytes");
                    }
                    Err(Error::Refused(reason)) => {
                        assert!(hit && reason.contains("failed: "), "{what}: {reason}");
                    }
                    Err(Error::System { operation, .. }) => {
                        assert!(hit && operation.len() > 5, "{what}");
                    }
                    Err(other) => panic!("{what}: {other}"),
                }
                hits += u32::from(hit);
                if !hit {
                    break;
                }
            }
            assert!(hits > 0, "{text} makes no call of {op}, so this tests nothing");
            assert!(hits < 200, "{text}: {op} is called without end");
        }
    }
    eprintln!("{runs} runs with a fault, {skipped} plans skipped");
    interruptions_are_invisible(&paths, &want);
}

fn interruptions_are_invisible(paths: &[std::path::PathBuf], want: &support::Hashes) {
    let retried = [
        "open",
        "statx",
        "fstat",
        "pread",
        "preadv2",
        "uring_read",
        "uring_open",
        "io_uring_enter",
    ];
    for (op, plans) in CASES.iter().filter(|(op, _)| retried.contains(op)) {
        let errnos: &[i32] = if op.starts_with("uring_") || op.starts_with("io_") {
            &[EINTR, EAGAIN]
        } else {
            &[EINTR]
        };
        for (text, errno) in plans.iter().flat_map(|t| errnos.iter().map(move |e| (t, e))) {
            // Three in a row, early and late.
            for n in [1, 4, 9] {
                let rules: Vec<String> = (n..n + 3).map(|n| format!("{op}:{n}:{errno}")).collect();
                fault::set(&rules.join(","));
                let result = run(list(paths), plan(text));
                fault::set("");
                match result {
                    Err(error) if lacks(&plan(text), &error) => {}
                    Err(error) => panic!("{text}: {op} {errno}: {error}"),
                    Ok(got) => {
                        assert!(got.failed.is_empty(), "{text}: {op} {errno}: {:?}", got.failed);
                        assert!(got.hashes == *want, "{text}: {op} {errno}: other bytes");
                    }
                }
            }
        }
    }
}
