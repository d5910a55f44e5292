//! Every system call fails once: one file fails, or the run with one clear error, and everything
//! else is unchanged. A binary of its own with one test, because the fault table is global.

#![allow(clippy::print_stderr, reason = "skipped tests print what the machine lacks")]

#[path = "../ioloom/support.rs"]
#[allow(dead_code, reason = "shared with the other test binaries")]
mod support;

use ioloom::engine::{self, RunOptions};
use ioloom::{Error, Links};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::dir::{Dir, Fields, StatRing};
use ioloom_sys::fault;
use ioloom_sys::ring::{Completion, Outcome, Ring};
use std::io::Write;
use support::{expected, lacks, list, make, plan, roots, run};

const EINTR: i32 = 4;
const EIO: i32 = 5;
const EAGAIN: i32 = 11;

/// Operations, and the plans that use them.
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
fn one_failed_call_fails_one_file_or_the_run() {
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
                            assert!(error.to_string().contains("Input/output error"), "{error}");
                            assert!(got.hashes.insert(error.index, want[&error.index]).is_none());
                        }
                        assert!(got.hashes == want, "{what}: other bytes");
                    }
                    Err(Error::Refused(reason)) => {
                        assert!(hit && reason.contains(": cannot "), "{what}: {reason}");
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
    the_end_is_proved_with_few_calls();
    a_bad_page_is_not_mistaken_for_the_end();
    trees_are_not_queried_to_sort_them();
    filters_know_directories_whose_kind_is_not_reported();
    windows_grow_to_the_threads_that_explain_prints();
    a_ring_that_cannot_be_created_is_done_without(&paths, &want);
    a_sandbox_without_preadv2_is_read_with_blocking_calls(&paths, &want);
    a_controller_sees_which_later_pieces_wait(&paths, &want);
    walks_of_polite_runs_lower_their_priority();
    files_without_a_buffer_fail_in_a_team(&paths);
    a_ring_whose_submissions_are_refused_collects_what_has_ended();
    a_stat_ring_whose_submissions_are_refused_collects_what_has_ended();
    a_ring_that_is_dropped_cancels_what_was_not_submitted();
}

/// A ring of one thread looks for completions only when the thread enters the kernel for them. Method: a
/// read of a pipe, which cannot end while it is submitted.
fn a_ring_whose_submissions_are_refused_collects_what_has_ended() {
    let Ok(mut ring) = Ring::new(2) else { return eprintln!("skipped: no io_uring") };
    let (reader, mut writer) = std::io::pipe().unwrap();
    ring.read(7, reader.into(), Buffer::new(4096), 0..4096, 0);
    fault::set("");
    ring.submit().unwrap();
    writer.write_all(b"abc").unwrap();
    let refused: Vec<String> = (1..=100).map(|n| format!("io_uring_enter:{n}:{EAGAIN}")).collect();
    fault::set(&refused.join(","));
    let mut done = Vec::new();
    let reaped = ring.reap(true, &mut done);
    let calls = fault::calls_of("io_uring_enter");
    fault::set("");
    reaped.unwrap();
    assert!(matches!(&done[..], [Completion { token: 7, outcome: Outcome::Read(_, _, Ok(3)) }]));
    assert!(calls < 100, "it collected nothing until a submission was accepted");
}

/// The same for a ring that queries names. Method: one kernel thread, so most queries end after the first wait.
fn a_stat_ring_whose_submissions_are_refused_collects_what_has_ended() {
    let Ok(mut ring) = StatRing::new(512, 1) else { return eprintln!("skipped: no io_uring") };
    let dir = Dir::open(std::path::Path::new("/")).unwrap();
    let refused: Vec<String> = (2..=1000).map(|n| format!("io_uring_enter:{n}:{EAGAIN}")).collect();
    let mut metas = Vec::new();
    fault::set(&refused.join(","));
    let queried = ring.stat_all(&dir, &[c"."; 512], Fields::BYTES, &mut metas);
    let calls = fault::calls_of("io_uring_enter");
    fault::set("");
    queried.unwrap();
    assert!(metas.iter().all(Result::is_ok));
    assert!(calls < 1000, "it collected nothing until a submission was accepted");
}

/// A read of a pipe whose submission was refused ends when its ring is dropped.
fn a_ring_that_is_dropped_cancels_what_was_not_submitted() {
    let Ok(mut ring) = Ring::new(2) else { return eprintln!("skipped: no io_uring") };
    let (reader, _writer) = std::io::pipe().unwrap();
    ring.read(7, reader.into(), Buffer::new(4096), 0..4096, 0);
    fault::set(&format!("io_uring_enter:1:{EAGAIN}"));
    drop(ring);
    fault::set("");
}

/// A reader whose first buffer cannot be allocated reports the file instead of waiting for memory, and so do
/// threads that would otherwise wait for each other.
fn files_without_a_buffer_fail_in_a_team(paths: &[std::path::PathBuf]) {
    const ENOMEM: i32 = 12;
    let all: Vec<String> = (1..=400).map(|n| format!("mmap:{n}:{ENOMEM}")).collect();
    for text in [
        "read/roles:r=1,c=1,w=2/buffers=fresh",
        "read/roles:r=0,h=1,c=0,w=2/buffers=fresh",
        "read/threads:n=2/buffers=fresh",
        "read/window:l=4,p=2/buffers=fresh",
    ] {
        fault::set(&all.join(","));
        let got = run(list(paths), plan(text)).unwrap();
        fault::set("");
        assert_eq!(got.failed.len(), paths.len(), "{text}");
        assert!(got.failed.iter().all(|e| support::errno(e) == Some(ENOMEM)), "{text}");
    }
}

/// Returns a rule for each of the first calls of `preadv2`.
fn without_preadv2(errno: i32) -> String {
    (1..=400).map(|n| format!("preadv2:{n}:{errno}")).collect::<Vec<_>>().join(",")
}

fn a_sandbox_without_preadv2_is_read_with_blocking_calls(
    paths: &[std::path::PathBuf],
    want: &support::Hashes,
) {
    const EPERM: i32 = 1;
    const EINVAL: i32 = 22;
    for errno in [EPERM, EINVAL] {
        fault::set(&without_preadv2(errno));
        let got = run(list(paths), plan("nowait/window:l=3,p=1")).unwrap();
        fault::set("");
        assert!(got.failed.is_empty() && got.hashes == *want, "{errno}: {:?}", got.failed);
    }
}

/// Only the first piece of a file is queued if it misses the page cache. A run with a controller finds
/// out for each of the others whether it waits.
fn a_controller_sees_which_later_pieces_wait(paths: &[std::path::PathBuf], want: &support::Hashes) {
    const LATER: u64 = 70_000 / 8192 + 200_000 / 8192 + 65_536 / 8192 - 1;
    fault::set(&without_preadv2(EAGAIN));
    let got = run(list(paths), plan("nowait/window:l=3,p=1/chunk=8KiB,auto")).unwrap();
    let calls = fault::calls_of("preadv2");
    fault::set("");
    assert!(got.failed.is_empty() && got.hashes == *want, "{:?}", got.failed);
    assert!(calls >= paths.len() as u64 + LATER, "{calls} calls");
}

fn walks_of_polite_runs_lower_their_priority() {
    let (dir, _paths) = make(&roots()[0], &[100; 10]);
    fault::set("");
    let run = ioloom::tree(dir.path()).polite().map(|f| f.len()).run().unwrap();
    let calls = fault::calls_of("ioprio_get");
    assert_eq!(calls, run.measured.threads.len() as u64 + 1, "the others of a walk inherit it");
}

/// A run whose controller chooses the method reads without rings where there are none, and says so.
fn a_ring_that_cannot_be_created_is_done_without(
    paths: &[std::path::PathBuf],
    want: &support::Hashes,
) {
    const ENOMEM: i32 = 12;
    let by_ring = |rules: &str| {
        fault::set(rules);
        let options = RunOptions { ring_first: true, ..RunOptions::default() };
        let plan = plan("nowait/window:l=8,p=2/auto");
        let done = engine::run(&list(paths), None, plan, &options, &support::Hashing).unwrap();
        let hashes: support::Hashes =
            done.locals.iter().flat_map(|(found, _)| found.clone()).collect();
        assert!(hashes == *want, "{rules}: other bytes");
        let refused = "cannot create an io_uring: ";
        let decisions = done.tuned.unwrap().decisions;
        let reasons = decisions
            .into_iter()
            .filter_map(|decided| decided.reason.strip_prefix(refused).map(str::to_owned));
        reasons.collect::<Vec<String>>()
    };
    let reasons = by_ring("");
    if !reasons.is_empty() {
        eprintln!("skipped: no io_uring: {reasons:?}");
        return;
    }
    assert!(fault::calls_of("uring_read") > 0, "files begin by a ring");
    for op in ["io_uring_setup", "io_uring_enter", "uring_open"] {
        let reasons = by_ring(&format!("{op}:1:{ENOMEM}"));
        assert_eq!(reasons, ["Cannot allocate memory"], "{op}");
    }
    fault::set("");
}

/// While reads miss the page cache, a window starts threads up to the limit of its layout and
/// never more.
fn windows_grow_to_the_threads_that_explain_prints() {
    const FILES_MAX: usize = 3000;
    let (_dir, paths) = make(&roots()[0], &[100; 8]);
    let misses: Vec<String> = (1..=FILES_MAX).map(|n| format!("preadv2:{n}:{EAGAIN}")).collect();
    // Beyond 16 workers of `nowait`, more start only if almost every file waits for a device.
    for text in ["read/window:l=8,p=2", "nowait/window:l=16,p=2"] {
        let layout = ioloom_model::layout::layout(&plan(text)).unwrap();
        let threads_max = layout.threads_max();
        let threads = || {
            fault::set(&misses.join(","));
            // If a thread is missing, the run ends at the limit of files.
            let until_all = paths.clone().into_iter().cycle().take(FILES_MAX);
            let until_all = until_all.take_while(move |_| workers() < threads_max);
            let run = ioloom::files(until_all).pin(plan(text)).map(|f| {
                std::thread::sleep(std::time::Duration::from_micros(100));
                f.len()
            });
            let run = run.run().unwrap();
            fault::set("");
            run.measured.threads.len() as u32
        };
        // The thread that starts others may be held up until the limit.
        let grown: Vec<u32> = (0..5).map(|_| threads()).take_while(|n| *n != threads_max).collect();
        assert!(grown.len() < 5, "{text}: {grown:?} threads, not {threads_max}");
        assert!(grown.iter().all(|n| *n < threads_max), "{text}: {grown:?}, not {threads_max}");
    }
}

/// Counts the threads of this process that a run has started and not yet joined.
fn workers() -> u32 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|t| std::fs::read_to_string(t.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("ioloom-worker")).count() as u32
}

/// Files that end at a page boundary, where a short read alone proves nothing.
const PAGES: [usize; 4] = [4096, 8192, 4096, 65_536];

fn all_found(paths: &[std::path::PathBuf]) -> ioloom_walk::PathList {
    let mut list = ioloom_walk::PathList::new();
    for path in paths {
        list.push_found(&[path.as_os_str().as_encoded_bytes()], 1);
    }
    list
}

fn all_unknown(paths: &[std::path::PathBuf]) -> ioloom_walk::PathList {
    let mut list = ioloom_walk::PathList::new();
    for path in paths {
        list.push(path.as_os_str().as_encoded_bytes());
    }
    list
}

fn the_end_is_proved_with_few_calls() {
    let (_dir, paths) = make(&roots()[0], &PAGES);
    let want = expected(&paths);
    // Threads read their own statistics, too; in a run that is held up, once more.
    let accounts = (0..5).map(|_| {
        fault::set("");
        run(all_found(&paths), plan("null/threads:n=1")).unwrap();
        fault::calls_of("pread")
    });
    let accounts = accounts.min().unwrap();
    // The last file fills its first buffer and is queried for its size in any case.
    for (text, known, op, reads, sizes) in [
        ("read/threads:n=1", false, "pread", 4, 1),
        ("direct:read/threads:n=1", false, "pread", 4, 1),
        ("read/threads:n=1", true, "pread", 7, 1),
        ("uring/window:l=4,p=1", false, "uring_read", 4, 1),
        ("uring/window:l=4,p=1", true, "uring_read", 4, 4),
        ("direct:uring/window:l=4,p=1", true, "uring_read", 4, 4),
        ("uring:open/window:l=4,p=1", false, "uring_read", 4, 1),
    ] {
        let tries = (0..5).map_while(|_| {
            let list = if known { all_found(&paths) } else { all_unknown(&paths) };
            fault::set("");
            let got = match run(list, plan(text)) {
                Err(error) if lacks(&plan(text), &error) => return None,
                other => other.unwrap(),
            };
            assert!(got.hashes == want, "{text}");
            let calls = fault::calls_of(op) - if op == "pread" { accounts } else { 0 };
            Some((calls, fault::calls_of("fstat")))
        });
        let Some(calls) = tries.min() else { continue };
        assert_eq!(calls, (reads, sizes), "{text}, known: {known}");
        // All files are in one directory, which is queried only where remote file systems are mounted.
        assert!(fault::calls_of("fstatfs") <= 1, "{text}, known: {known}");
    }
}

/// A file that the walk saw as such is not queried at all, and a link once by the walk and once by the
/// thread that opens it. The rest is for the root and what the process queries about itself.
fn trees_are_not_queried_to_sort_them() {
    const REST: u64 = 20;
    let (dir, _paths) = make(&roots()[0], &[100; 100]);
    let linked = tempfile::tempdir_in(&roots()[0]).unwrap();
    for n in 0..100 {
        let name = format!("{n:05}");
        std::os::unix::fs::symlink(dir.path().join(&name), linked.path().join(&name)).unwrap();
    }
    for ahead_s in [0, 10] {
        for (root, links, each) in [
            (dir.path(), Links::Skip, 0),
            (dir.path(), Links::All, 0),
            (linked.path(), Links::Files, 2),
            (linked.path(), Links::All, 2),
        ] {
            let files = ioloom::tree(root).links(links);
            let files = files.walk_ahead(std::time::Duration::from_secs(ahead_s));
            fault::set("");
            let run = files.pin(plan("read/threads:n=1")).map(|f| f.len()).run().unwrap();
            let calls = fault::calls_of("statx");
            assert_eq!(run.value, [100; 100], "{links:?}");
            let wanted = 100 * each..=100 * each + REST;
            assert!(wanted.contains(&calls), "{links:?}, ahead {ahead_s}: {calls} calls");
        }
    }
}

/// Some file systems do not report kinds with the names in a directory.
fn filters_know_directories_whose_kind_is_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    for (name, text) in [(".gitignore", "b/\n"), ("a/one", ""), ("a/b/two", "")] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    fault::set("d_type:0:cut0");
    let filtered = ioloom::tree(dir.path()).filter_entry(|e| e.is_dir() || e.file_name() == "two");
    let filtered = filtered.map(|f| f.len()).run().unwrap();
    let ignoring = ioloom::tree(dir.path()).ignore_files(true).map(|f| f.len()).run().unwrap();
    fault::set("");
    let walked = filtered.walked.unwrap();
    assert_eq!((walked.files, walked.directories, walked.filtered), (1, 3, 2));
    let walked = ignoring.walked.unwrap();
    assert_eq!((walked.files, walked.directories, walked.ignored), (2, 2, 1));
}

/// The kernel returns the pages before a bad page, and the error to the next read: a read that is
/// cut to a page, and then an error.
fn a_bad_page_is_not_mistaken_for_the_end() {
    let (_dir, paths) = make(&roots()[0], &[20_000, 16_384]);
    for text in ["read/threads:n=1", "uring/window:l=2,p=1", "uring:open/window:l=2,p=1"] {
        for list in [all_found(&paths), all_unknown(&paths)] {
            let op = if text.starts_with("uring") { "uring_read" } else { "pread" };
            // The statistics of a thread are read first.
            let n = if op == "pread" { 2 } else { 1 };
            let fails: Vec<String> = (n + 1..n + 4).map(|n| format!("{op}:{n}:{EIO}")).collect();
            fault::set(&format!("{op}:{n}:cut4096,{}", fails.join(",")));
            let result = run(list, plan(text));
            fault::set("");
            match result {
                Err(error) => assert!(lacks(&plan(text), &error), "{text}: {error}"),
                Ok(got) => assert!(got.hashes.is_empty(), "{text}: {:?}", got.hashes),
            }
        }
    }
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
