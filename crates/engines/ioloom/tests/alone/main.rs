//! Properties of the whole process: its memory, threads and children. One test in a binary of its own, so
//! that no other test interferes.

#![allow(clippy::print_stderr, reason = "skipped tests print what the machine lacks")]

#[path = "../ioloom/support.rs"]
#[allow(dead_code, reason = "shared with the other test binaries")]
mod support;
mod why;

use ioloom_model::CallKind;
use support::{expected, lacks, list, make, plan, roots, run};

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the peak memory of the process while `f` runs, above what it had before, in KiB.
fn peak_kib(f: impl FnOnce()) -> u64 {
    // 5 resets the peak; without that permission the peak so far is below the limits tested here.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = status("VmRSS:");
    f();
    status("VmHWM:").saturating_sub(before)
}

#[test]
fn memory_is_bounded_threads_end_and_limits_are_found() {
    a_dropped_iterator_leaves_no_thread();
    large_and_small_files_stay_within_the_budget();
    more_files_take_no_more_memory();
    files_in_memory_start_no_more_threads();
    why::planted_limits_are_found();
}

fn a_dropped_iterator_leaves_no_thread() {
    let (_dir, paths) = make(&roots()[0], &[20_000; 400]);
    let before = status("Threads:");
    for text in ["read/window:l=16,p=2", "uring/window:l=16,p=2", "read/roles:r=2,h=1,c=1,w=8"] {
        let mut values = ioloom::files(paths.clone()).pin(plan(text)).map(|f| f.len()).into_iter();
        match values.next().unwrap() {
            Ok(first) => assert_eq!(first, 20_000),
            Err(_) => assert!(lacks(&plan(text), values.error().unwrap())),
        }
        drop(values);
        // The kernel counts a thread for a moment after it was joined.
        let until = std::time::Instant::now() + support::NEVER;
        while status("Threads:") != before && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(status("Threads:"), before, "{text}");
    }
}

fn large_and_small_files_stay_within_the_budget() {
    const MEMORY: u64 = 80 << 20;
    const SLACK_KIB: u64 = 24 << 10;
    let mut sizes = vec![3000; 60];
    for at in [0, 20, 21, 59] {
        sizes[at] = (64 << 20) - 5;
    }
    let (_dir, paths) = make(&roots()[0], &sizes);
    let want = expected(&paths);
    for text in [
        "read/window:l=32,p=2",
        "nowait/window:l=32,p=2",
        "uring/window:l=32,p=2",
        "uring/roles:r=2,h=1,c=1,w=16",
    ] {
        let plan = plan(&format!("{text}/memory=80MiB"));
        let mut budget_peak = 0;
        let peak = peak_kib(|| match run(list(&paths), plan) {
            Err(error) => assert!(lacks(&plan, &error), "{plan}: {error}"),
            Ok(got) => {
                assert!(got.failed.is_empty() && got.hashes == want, "{plan}: {:?}", got.failed);
                budget_peak = got.budget_peak_bytes;
            }
        });
        assert!(budget_peak <= MEMORY, "{plan}: {budget_peak}");
        assert!(peak * 1024 <= MEMORY + SLACK_KIB * 1024, "{plan}: {peak} KiB");
    }
}

fn more_files_take_no_more_memory() {
    let (_dir, paths) = make(&roots()[0], &[4096; 50]);
    let many = |files: usize, text: &str| {
        let paths = paths.clone().into_iter().cycle().take(files);
        let files = ioloom::files(paths).pin(plan(text)).map(|f| f.len());
        files.fold(|| 0, |sum, len| *sum += len, |sum, other| *sum += other).map(|run| run.value)
    };
    for text in [
        "read/window:l=8,p=2",
        "nowait/window:l=8,p=2",
        "uring/window:l=8,p=2",
        "read/roles:r=1,h=1,c=1,w=8",
    ] {
        match many(1000, text) {
            Err(error) if lacks(&plan(text), &error) => continue,
            sum => assert_eq!(sum.unwrap(), 1000 * 4096),
        }
        let peak = peak_kib(|| assert_eq!(many(15_000, text).unwrap(), 15_000 * 4096));
        assert!(peak < 2048, "{text}: {peak} KiB more for 15000 files");
    }
}

/// Threads also wait for the lock of their address space, which must not start more of them.
fn files_in_memory_start_no_more_threads() {
    let device_bytes = || {
        let io = std::fs::read_to_string("/proc/self/io").ok()?;
        io.lines().find_map(|line| line.strip_prefix("read_bytes: ")).map(str::to_owned)
    };
    let sizes: Vec<usize> = (0..2000).map(|i| if i % 50 == 0 { 2 << 20 } else { 20_000 }).collect();
    let (_dir, paths) = make(&roots()[0], &sizes);
    for _ in 0..20 {
        let before = device_bytes();
        let files = ioloom::files(paths.clone()).pin(plan("nowait/window:l=256,p=2"));
        // Touch each cache line of the memory once: computation without sleeping.
        let run = files.map(|f| f.bytes().iter().step_by(64).max().copied()).run();
        let measured = run.unwrap().measured;
        let waited = measured.calls.get(&CallKind::Completion).is_some_and(|calls| calls.count > 0);
        if !waited && before.is_some() && before == device_bytes() {
            assert_eq!(measured.threads.len(), 2, "{measured:?}");
        }
    }
}
