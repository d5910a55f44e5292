//! Calls, descriptors, stack and memory of a walk.

use crate::collect::{Count, collect, one, varied, walk};
use crate::{deep, remove_deep, touch};
use ioloom_testbed::alone;
use ioloom_walk::{Control, DirRef, Found, Method, NewDir, Visitor, Walk};
use std::path::Path;

#[test]
fn deep_trees_need_little_stack_and_few_descriptors() {
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let root = temp.path().join("deep");
    std::fs::create_dir(&root).unwrap();
    deep(&root, 5000, b"level", true);
    for (method, threads, descriptors_max) in [
        (Method::Statx, 1, 0),
        (Method::Statx, 3, 16),
        (Method::Sweep, 2, 16),
        (Method::Lstat, 1, 8),
    ] {
        let walk = Walk { descriptors_max, ..walk(method, threads) };
        let (visitors, report) = walk.run(&one(&root), |_| Count::default()).unwrap();
        assert_eq!((report.directories, report.entries), (10_001, 5001), "{method}");
        assert_eq!(report.errors_count, 0, "{method}");
        let deepest = visitors.iter().map(|v| v.deepest).max();
        assert_eq!(deepest, Some(5000));
    }
    remove_deep(&root);
}

#[test]
fn calls_stay_within_the_budget() {
    if !alone("resources::calls_stay_within_the_budget") {
        return;
    }
    let temp = varied();
    for threads in [1, 8] {
        ioloom_sys::fault::set("");
        let (_, _, report) = collect(&walk(Method::Statx, threads), &one(temp.path()));
        let calls = ioloom_sys::fault::calls_of;
        let opens = calls("open") + calls("openat") + calls("openat2");
        // Everything that was opened is closed.
        let all = 2 * opens + calls("statx") + calls("getdents");
        let budget = report.entries as f64 + 5.2 * report.directories as f64;
        assert!(all as f64 <= budget + 500.0, "{all} calls, {budget}");
        assert!(all > report.entries, "calls must be counted");
    }
}

/// Runs a test in a separate process with a limit of 40 descriptors.
fn with_few_descriptors(test: &str) {
    let script = format!("ulimit -n 40 && exec \"$0\" {test} --exact");
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env("IOLOOM_FEW_DESCRIPTORS", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn few_descriptors_are_enough() {
    if std::env::var_os("IOLOOM_FEW_DESCRIPTORS").is_none() {
        return with_few_descriptors("resources::few_descriptors_are_enough");
    }
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("tree");
    std::fs::create_dir(&root).unwrap();
    deep(&root, 200, b"l", true);
    // Names for many threads, all of which would create a ring.
    let wide = temp.path().join("wide");
    std::fs::create_dir(&wide).unwrap();
    for f in 0..5000 {
        touch(wide.join(format!("{f:0100}")));
    }
    for (method, threads) in
        [(Method::Statx, 1), (Method::Statx, 4), (Method::Uring, 4), (Method::Uring, 64)]
    {
        let walk = Walk { descriptors_max: 1000, ..walk(method, threads) };
        let roots = [wide.clone(), root.clone()];
        let (_, report) = walk.run(&roots, |_| Count::default()).unwrap();
        let errors: Vec<_> = report.errors.iter().map(ToString::to_string).collect();
        let found = (report.directories, report.entries, report.errors_count);
        assert_eq!(found, (402, 5201, 0), "{method} {threads}: {errors:?}");
    }
    remove_deep(&root);
}

/// A walk in which no descriptor is ever free waits once, not for every directory.
#[test]
fn lost_descriptors_end_a_walk() {
    if std::env::var_os("IOLOOM_FEW_DESCRIPTORS").is_none() {
        return with_few_descriptors("resources::lost_descriptors_end_a_walk");
    }
    let temp = tempfile::tempdir().unwrap();
    for d in 0..200 {
        std::fs::create_dir(temp.path().join(format!("d{d}"))).unwrap();
    }
    for threads in [1, 8] {
        let taken = std::sync::Mutex::new(Vec::new());
        let take = || {
            let mut taken = taken.lock().unwrap();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                taken.push(file);
            }
        };
        ioloom_sys::fault::set("");
        let (_, report) = walk(Method::Statx, threads)
            .run(&one(temp.path()), |_| TakesAll { take: &take })
            .unwrap();
        assert_eq!((report.directories, report.errors_count), (201, 200), "{threads}");
        assert!(report.errors[0].to_string().contains("ulimit -n"), "{}", report.errors[0]);
        // A thread that waits makes 200 attempts; for every directory they would be 40,000.
        let attempts = ["open", "openat", "openat2"].map(ioloom_sys::fault::calls_of);
        assert!(attempts.iter().sum::<u64>() < 10_000, "{threads}: {attempts:?}");
    }
}

/// Opens files until none can be opened when the first directory is entered.
struct TakesAll<F> {
    take: F,
}

impl<F: Fn()> Visitor for TakesAll<F> {
    type Dir = ();

    fn enter(&mut self, dir: &NewDir<'_, ()>) -> Option<()> {
        if dir.depth() == 0 {
            (self.take)();
        }
        Some(())
    }

    fn entry(&mut self, _: DirRef<'_, ()>, _: &Found<'_>) -> Control {
        (self.take)();
        Control::Continue
    }

    fn part(&mut self, _: DirRef<'_, ()>) {
        (self.take)();
    }
}

#[test]
fn memory_does_not_grow_with_files() {
    if !alone("resources::memory_does_not_grow_with_files") {
        return;
    }
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for d in 0..20 {
        std::fs::create_dir(temp.path().join(format!("d{d}"))).unwrap();
        for f in 0..2000 {
            std::fs::write(temp.path().join(format!("d{d}/a-name-of-some-length-{f:06}")), b"")
                .unwrap();
        }
    }
    let walk = walk(Method::Statx, 2);
    let run = |root: &Path| walk.run(&one(root), |_| Count::default()).unwrap().1.entries;
    assert_eq!(run(&temp.path().join("d0")), 2000);
    let before = ioloom_sys::proc::status().unwrap().peak_rss_bytes.unwrap();
    assert_eq!(run(temp.path()), 40_000);
    let after = ioloom_sys::proc::status().unwrap().peak_rss_bytes.unwrap();
    // Storing 40,000 names would take more.
    assert!(after - before < 1 << 20, "{before} {after}");
}
