//! Kinds of input: odd names, what is not a file, what changes while it is read, few descriptors.

use crate::support::{
    Outcome, child, content, errno, expected, lacks, list, make, plan, roots, run,
};
use ioloom::{Error, FileError, OnError};
use ioloom_walk::PathList;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const PLANS: [&str; 9] = [
    "read/window:l=8,p=2",
    "read/threads:n=1",
    "nowait/window:l=8,p=2",
    "uring/window:l=8,p=2",
    "uring:open/window:l=8,p=2",
    "uring:registered/threads:n=1",
    "uring/roles:r=1,h=1,c=1,w=8",
    "mmap:plain/threads:n=2",
    "mmap:willneed/window:l=4,p=1",
];

#[test]
fn odd_names_and_links_are_read() {
    let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
    let mut paths: Vec<PathBuf> =
        [&b"caf\xe9 \xff\xfe"[..], b"new\nline", b" ", b"-rf", b"\"'$(x)"]
            .iter()
            .map(|name| dir.path().join(OsStr::from_bytes(name)))
            .collect();
    for (i, path) in paths.iter().enumerate() {
        std::fs::write(path, content(i as u64, 5000)).unwrap();
    }
    let link = dir.path().join("link");
    symlink(&paths[0], &link).unwrap();
    paths.push(link);
    for text in PLANS {
        let got = run(list(&paths), plan(text)).unwrap();
        assert!(
            got.failed.is_empty() && got.hashes == expected(&paths),
            "{text}: {:?}",
            got.failed
        );
    }
}

/// A pipe, a socket, a device, a directory, a missing file, a broken link, a name with a zero byte.
fn strange(dir: &Path) -> Vec<PathBuf> {
    let fifo = dir.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let socket = dir.join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let dangling = dir.join("dangling");
    symlink("nowhere", &dangling).unwrap();
    let looped = dir.join("loop");
    symlink("loop", &looped).unwrap();
    vec![
        fifo,
        socket,
        dir.to_owned(),
        dir.join("missing"),
        dangling,
        looped,
        "/dev/null".into(),
        "/dev/zero".into(),
        OsStr::from_bytes(b"zero\0byte").into(),
        "".into(),
        dir.join("x".repeat(300)),
    ]
}

#[test]
fn special_files_fail_alone_and_never_hang() {
    let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
    let odd = strange(dir.path());
    let (_set, good) = make(&roots()[0], &[3000; 10]);
    let mut paths = odd.clone();
    paths.extend_from_slice(&good);
    for text in PLANS {
        let got = run(list(&paths), plan(text)).unwrap();
        let mut failed: Vec<usize> = got.failed.iter().map(|e| e.index).collect();
        failed.sort_unstable();
        assert_eq!(failed, (0..odd.len()).collect::<Vec<_>>(), "{text}: {:?}", got.failed);
        assert_eq!(got.hashes.len(), good.len(), "{text}");
        for error in &got.failed {
            assert!(error.to_string().len() > 30, "{text}: {error}");
        }
    }
}

#[test]
fn files_replaced_after_the_walk_never_hang() {
    let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
    let odd = strange(dir.path());
    // A pipe with a silent writer: a read of it would block, or return EAGAIN.
    let pipe = dir.path().join("busy");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _writer = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    for text in PLANS {
        let mut list = PathList::new();
        for path in &odd[..8] {
            list.push_found(&[path.as_os_str().as_bytes()], 1);
        }
        list.push_found(&[pipe.as_os_str().as_bytes()], 1);
        let paths = list.len();
        let got = run(list, plan(text)).unwrap();
        assert!(got.hashes.is_empty(), "{text}: {:?}", got.hashes);
        assert_eq!(got.failed.len(), paths, "{text}: {:?}", got.failed);
        for error in got.failed.iter().filter(|e| [0, 6, 7, 8].contains(&e.index)) {
            let special = error.to_string().contains("not a regular file");
            assert!(special, "{text}: {error}");
        }
    }
}

#[test]
fn an_empty_list_runs() {
    for text in PLANS {
        let got = run(PathList::new(), plan(text)).unwrap();
        assert!(got.hashes.is_empty() && got.failed.is_empty(), "{text}");
    }
    let run = ioloom::files(Vec::<PathBuf>::new()).map(|f| f.len()).run().unwrap();
    assert!(run.value.is_empty() && !run.why().is_empty());
}

#[test]
fn a_million_paths_stream_through() {
    let paths = (0..1_000_000).map(|_| PathBuf::from("x"));
    let run = ioloom::files(paths)
        .pin(plan("null/window:l=32,p=2"))
        .map(|_| 1u64)
        .fold(|| 0u64, |a, n| *a += n, |a, b| *a += b)
        .unwrap();
    assert_eq!((run.value, run.measured.files), (1_000_000, 1_000_000));
}

#[test]
fn files_that_vanish_fail_alone() {
    for text in PLANS {
        let (_dir, paths) = make(&roots()[0], &[1000; 60]);
        let list = list(&paths);
        for path in paths.iter().step_by(3) {
            std::fs::remove_file(path).unwrap();
        }
        let got = run(list, plan(text)).unwrap();
        assert_eq!((got.hashes.len(), got.failed.len()), (40, 20), "{text}");
        assert!(got.failed.iter().all(|e| errno(e) == Some(2)), "{text}: {:?}", got.failed);
    }
}

#[test]
fn a_file_that_grows_or_shrinks_gives_a_prefix() {
    // Every byte encodes its offset, so any consistent read is a prefix of the pattern.
    let pattern = content(7, 1 << 20);
    let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
    let path = dir.path().join("moving");
    std::fs::write(&path, &pattern).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sizes = [0, 100, 65_536, 65_537, 70_000, 200_000, 1 << 20, 4096, 900_000];
            for size in sizes.iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(*size as u64 / 2).unwrap();
                file.write_all(&pattern[..*size]).unwrap();
            }
        });
        for text in PLANS.iter().filter(|t| !t.starts_with("mmap")) {
            for memory in ["memory=2MiB", "memory=64MiB"] {
                let plan = plan(&format!("{text}/{memory}"));
                let run = ioloom::list(std::iter::repeat_n(&path, 60))
                    .pin(plan)
                    .on_error(OnError::Collect)
                    .map(|f| {
                        // If the file was truncated and rewritten during the read, zeros may show.
                        let same = f.bytes().iter().zip(&pattern).all(|(a, b)| a == b || *a == 0);
                        (same, f.len() <= 1 << 20)
                    })
                    .run()
                    .unwrap();
                assert_eq!(run.value.len() as u64 + run.failed, 60, "{plan}");
                assert!(run.value.iter().all(|v| *v == (true, true)), "{plan}");
                for error in &run.errors {
                    assert!(error.to_string().contains("grew"), "{plan}: {error}");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn an_unreadable_file_fails_alone() {
    if std::fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t") {
        // A directory and a copy of this test that another user can reach.
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let exe = dir.path().join("tests");
        std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
        let mut command = Command::new("env");
        command.uid(65534).gid(65534).env("IOLOOM_TEST_DIR", dir.path()).current_dir(dir.path());
        let (ok, text) = child("inputs::child_that_may_not_read", &exe, command);
        assert!(ok, "{text}");
    } else {
        child_that_may_not_read();
    }
}

#[test]
#[ignore = "run by an_unreadable_file_fails_alone in a child"]
fn child_that_may_not_read() {
    let root = std::env::var_os("IOLOOM_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let (_dir, paths) = make(&root, &[100; 9]);
    std::fs::set_permissions(&paths[4], PermissionsExt::from_mode(0o000)).unwrap();
    for text in PLANS {
        let got = match run(list(&paths), plan(text)) {
            Err(Error::Refused(reason)) => {
                eprintln!("skipped: {reason}");
                continue;
            }
            other => other.unwrap(),
        };
        assert_eq!((got.hashes.len(), got.failed.len()), (8, 1), "{text}");
        let error = &got.failed[0];
        assert_eq!((error.index, errno(error)), (4, Some(13)), "{text}");
        assert!(error.to_string().contains("run as a user with permission"), "{error}");
    }
}

#[test]
fn few_descriptors_are_waited_for_or_refused() {
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 160; exec \"$0\" \"$@\""]);
    let (ok, text) = child("inputs::child_with_few_descriptors", &exe, command);
    assert!(ok, "{text}");
}

/// Returns the failures of a run over 120 files, if there are any.
fn lacking(got: Outcome) -> Option<Vec<FileError>> {
    assert_eq!(got.hashes.len() + got.failed.len(), 120);
    Some(got.failed).filter(|failed| !failed.is_empty())
}

#[test]
#[ignore = "run by few_descriptors_are_waited_for_or_refused in a child"]
fn child_with_few_descriptors() {
    let (_dir, paths) = make(&roots()[0], &[10_000; 120]);
    match run(list(&paths), plan("read/window:l=70,p=2")) {
        // It names the number requested, not the number of all descriptors.
        Err(Error::Refused(reason)) => {
            assert!(reason.contains("opens up to 70 files at once"), "{reason}");
            assert!(reason.contains("raise the limit with 'ulimit -n 186'"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    // The caller holds nearly all, so fewer are left than the plan needs at once.
    let mut taken: Vec<std::fs::File> = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    // Room for some files and for what the engine opens for each of its threads.
    taken.truncate(taken.len() - 16);
    for text in ["read/window:l=12,p=2", "read/roles:r=8,c=1,w=20"] {
        // A thread waits a second for the descriptors of another, which may be held up for longer.
        let tries = (0..5).map(|_| run(list(&paths), plan(text)).unwrap());
        let failed: Vec<_> = tries.map_while(lacking).collect();
        assert!(failed.len() < 5, "{text}: {failed:?}");
    }
    taken.extend((0..7).map_while(|_| std::fs::File::open("/dev/null").ok()));
    // Its own reads in flight hold the descriptors, so they must end before the next open.
    for text in
        ["uring/window:l=30,p=1", "uring:open/window:l=30,p=1", "nowait/window:l=30,p=1/chunk=4KiB"]
    {
        match run(list(&paths), plan(text)) {
            Err(error) => assert!(lacks(&plan(text), &error), "{text}: {error}"),
            Ok(got) => {
                assert!(got.failed.is_empty(), "{text}: {:?}", got.failed);
                assert_eq!(got.hashes.len(), 120, "{text}");
            }
        }
    }
    let run = ioloom::list(&paths).pin(plan("uring/window:l=30,p=2")).map(|f| f.len()).run();
    match run {
        Err(Error::File(error)) => assert!(error.to_string().contains("ulimit -n"), "{error}"),
        Err(Error::Refused(reason)) => assert!(reason.contains("io_uring"), "{reason}"),
        Err(other) => panic!("{other}"),
        Ok(run) => assert_eq!(run.value.len(), 120),
    }
}
