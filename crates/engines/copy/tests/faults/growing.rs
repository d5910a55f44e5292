//! Sources that grow while they are read. The writer appends between two calls of the copy.

use super::{alone, content};
use ioloom_copy::{CopyCounters, CopyOptions, Mode, Report, Silent, Target, copy};
use ioloom_sys::fault;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The calls that read content, or share it.
const READS: [&str; 6] = ["pread", "preadv2", "uring_read", "read", "copy_file_range", "ficlone"];

/// Copies a file of this size while `times` of the reads append to it.
fn copy_growing(dir: &Path, bytes: usize, times: u64, options: &CopyOptions) -> Report {
    let (from, to) = (dir.join("log"), dir.join("copy"));
    fs::write(&from, content(bytes)).unwrap();
    fs::write(&to, "old").unwrap();
    let log = File::options().append(true).open(&from).unwrap();
    let left = AtomicU64::new(times);
    fault::before_each(Some(Box::new(move |op| {
        let take = |left: u64| left.checked_sub(1);
        let appends = READS.contains(&op)
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok();
        if appends {
            (&log).write_all(b"one more line\n").unwrap();
        }
    })));
    let report = copy(&[from], &Target::As(to), options, &Silent, &CopyCounters::default());
    fault::before_each(None);
    report.unwrap()
}

#[test]
fn a_log_that_grows_during_every_attempt_is_copied_in_part_and_reported() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for bytes in [0, 100, 300_000] {
        for mode in [None, Some(Mode::Buffered), Some(Mode::Range), Some(Mode::Uncached)] {
            let options = CopyOptions { mode, ..CopyOptions::default() };
            let report = copy_growing(dir.path(), bytes, u64::MAX, &options);
            let text: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
            let (log, copied) =
                (fs::read(dir.path().join("log")), fs::read(dir.path().join("copy")));
            let (log, copied) = (log.unwrap(), copied.unwrap());
            let case = format!("{bytes} {mode:?} {text:?}");
            if text.iter().any(|text| text.contains("cannot be used here")) {
                assert_eq!(copied, b"old", "{case}");
                continue;
            }
            assert_eq!(report.errors_count, 1, "{case}");
            if matches!(mode, Some(Mode::Range | Mode::Uncached)) && bytes > 0 {
                // A method that was asked for is not exchanged for another.
                assert!(text[0].contains("grew during the copy"), "{case}");
                assert_eq!(copied, b"old", "{case}");
                continue;
            }
            assert!(text[0].contains("grew while it was copied: the copy has its first"), "{case}");
            assert!(copied.len() >= bytes && copied.len() < log.len(), "{case}");
            assert!(copied == log[..copied.len()], "{case}");
            assert_eq!(report.bytes, copied.len() as u64, "{case}");
            let strict = CopyOptions { strict_source: true, ..options };
            let report = copy_growing(dir.path(), bytes, u64::MAX, &strict);
            assert_eq!(report.errors_count, 1, "{case}");
            assert!(report.errors[0].to_string().contains("grew during the copy"), "{case}");
            assert_eq!(fs::read(dir.path().join("copy")).unwrap(), b"old", "{case}");
        }
    }
}

/// A file without offsets takes each write for a whole value.
#[test]
fn a_value_that_is_written_in_part_is_an_error() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    fs::write(&small, "renamed").unwrap();
    for from in [small.as_path(), Path::new("/proc/sys/kernel/ostype")] {
        fault::set("write:1:cut3");
        let to = Target::As("/proc/self/comm".into());
        let (from, options) = ([from.to_owned()], CopyOptions::default());
        let report = copy(&from, &to, &options, &Silent, &CopyCounters::default());
        let calls = fault::calls_of("write");
        fault::set("");
        assert_eq!((calls, report.unwrap().errors_count), (1, 1), "{from:?}");
    }
}

/// Goal: a file of the kernel that is ready, but whose reads would block, is not read for ever.
#[test]
fn a_kernel_file_that_always_would_block_is_an_error() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new("/proc/sys/kernel/ostype");
    for (blocked, errors) in [(1, 0), (64, 1)] {
        let rules: Vec<String> = (1..=blocked).map(|n| format!("read:{n}:11")).collect();
        fault::set(&rules.join(","));
        let (to, options) = (Target::As(dir.path().join("to")), CopyOptions::default());
        let report = copy(&[from.to_owned()], &to, &options, &Silent, &CopyCounters::default());
        let calls = fault::calls_of("read");
        fault::set("");
        assert_eq!(report.unwrap().errors_count, errors, "{blocked}");
        assert!(calls > 1 && calls < 64, "{blocked}: {calls} reads");
    }
}

#[test]
fn a_log_that_grows_during_one_attempt_is_copied_whole() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for bytes in [100, 300_000] {
        let report = copy_growing(dir.path(), bytes, 1, &CopyOptions::default());
        assert_eq!(report.errors_count, 0, "{:?}", report.errors);
        let read = |name| fs::read(dir.path().join(name)).unwrap();
        assert_eq!(read("log").len(), bytes + "one more line\n".len());
        assert!(read("copy") == read("log"));
    }
}

#[test]
fn a_changing_source_keeps_its_holes() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("log"), dir.path().join("copy"));
    const MIB: u64 = 1 << 20;
    for end in ["data", "hole"] {
        let mut log = File::create(&from).unwrap();
        log.write_all(&content(100_000)).unwrap();
        log.set_len(8 * MIB).unwrap();
        if end == "data" {
            log.write_all_at(b"the end", 8 * MIB - 7).unwrap();
        }
        let append = File::options().append(true).open(&from).unwrap();
        fault::before_each(Some(Box::new(move |op| {
            if READS.contains(&op) {
                (&append).write_all(b"one more line\n").unwrap();
            }
        })));
        let (target, options) = (Target::As(to.clone()), CopyOptions::default());
        let report =
            copy(std::slice::from_ref(&from), &target, &options, &Silent, &CopyCounters::default())
                .unwrap();
        fault::before_each(None);
        let text = report.errors[0].to_string();
        let (log, copied) = (fs::read(&from).unwrap(), fs::read(&to).unwrap());
        assert!(copied == log[..copied.len()] && copied.len() as u64 >= 8 * MIB, "{end}: {text}");
        assert!(text.contains(&format!("its first {} bytes", copied.len())), "{end}: {text}");
        let blocks = fs::metadata(&to).unwrap().blocks();
        assert!(blocks * 512 < MIB, "{end}: {blocks} blocks");
    }
}

#[test]
fn a_source_whose_holes_cannot_be_found_is_read() {
    const REFUSALS: [i32; 4] = [22, 25, 38, 95];
    let _alone = alone();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let sparse = File::create(&from).unwrap();
    sparse.set_len(1 << 20).unwrap();
    sparse.write_all_at(&content(100_000), 512 << 10).unwrap();
    let options = CopyOptions { mode: Some(Mode::Buffered), ..CopyOptions::default() };
    let sources = [from.clone()];
    let run = || {
        let target = Target::As(to.clone());
        copy(&sources, &target, &options, &Silent, &CopyCounters::default()).unwrap()
    };
    for (grows, refusal) in
        REFUSALS.into_iter().flat_map(|refusal| [(false, refusal), (true, refusal)])
    {
        let log = File::options().append(true).open(&from).unwrap();
        fault::before_each(Some(Box::new(move |op| {
            if grows && READS.contains(&op) {
                (&log).write_all(b"more").unwrap();
            }
        })));
        let rules: Vec<String> = (1..=64).map(|n| format!("lseek:{n}:{refusal}")).collect();
        fault::set(&rules.join(","));
        let report = run();
        let calls = fault::calls_of("lseek");
        fault::before_each(None);
        fault::set("");
        assert!(calls > 0, "{refusal}: holes were not looked for");
        let (wanted, copied) = (fs::read(&from).unwrap(), fs::read(&to).unwrap());
        let case = format!("{refusal}, grows: {grows}, {:?}", report.errors);
        assert_eq!(report.errors_count, u64::from(grows), "{case}");
        assert!(copied.len() >= 1 << 20 && copied == wanted[..copied.len()], "{case}");
    }
}
