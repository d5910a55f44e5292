//! The memory budget is never exceeded, never a reason to hang, and may be filled by retained
//! bytes.
//!
//! A case that waits forever hangs the test, which the time limit of the test run then ends.

use crate::support::{expected, list, make, plan, roots, run};
use ioloom::{Bytes, Error, OnError};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const LOOPS: [&str; 12] = [
    "read/threads:n=1",
    "read/threads:n=3",
    "read/window:l=4,p=2",
    "nowait/threads:n=2",
    "nowait/window:l=4,p=1",
    "nowait/window:l=4,p=2",
    "uring/window:l=4,p=2",
    "uring:open/window:l=4,p=1",
    "read/roles:r=1,h=0,c=1,w=4",
    "read/roles:r=1,h=1,c=0,w=4,open=1",
    "nowait/roles:r=1,h=1,c=0,w=4,open=1",
    "uring/roles:r=1,h=1,c=1,w=4,open=1",
];

#[test]
fn all_files_are_read_if_few_fit_at_once() {
    // Each is at least a third of the memory, and rounding up to buffer classes must not prevent
    // it.
    for (memory, sizes) in [
        ("4MiB", vec![1_300_000; 12]),
        ("4MiB", vec![3_400_000; 8]),
        ("5MiB", vec![4_200_000, 100, 4_200_000, 70_000, 3_000_000, 1_100_000, 4_100_000]),
    ] {
        let (_dir, paths) = make(&roots()[0], &sizes);
        let want = expected(&paths);
        for text in LOOPS {
            let plan = plan(&format!("{text}/memory={memory}"));
            let got = run(list(&paths), plan).unwrap();
            assert!(got.failed.is_empty(), "{plan}: {:?}", got.failed);
            assert!(got.hashes == want, "{plan}");
            assert!(got.budget_peak_bytes <= plan.memory_bytes, "{plan}");
        }
    }
}

#[test]
fn a_file_fits_the_budget_that_its_error_names() {
    let (_dir, paths) = make(&roots()[0], &[12 << 20]);
    let named = |reason: &str| reason.rsplit_once(" to ").unwrap().1.to_owned();
    for text in ["read/threads:n=2", "nowait/window:l=128,p=2", "read/roles:r=1,h=0,c=1,w=4"] {
        let failed = run(list(&paths), plan(&format!("{text}/memory=12MiB"))).unwrap().failed;
        let memory = named(&failed[0].to_string());
        let got = run(list(&paths), plan(&format!("{text}/memory={memory}"))).unwrap();
        assert!(got.failed.is_empty(), "{text}: {memory}: {:?}", got.failed);
    }
    let total = |memory| ioloom::list(&paths).memory(memory).map(|f| f.len()).sum::<u64>();
    let reason = total(12 << 20).unwrap_err().to_string();
    assert!(reason.contains("of which the first buffers of other files use"), "{reason}");
    let memory = ioloom_model::units::parse_size(&named(&reason)).unwrap();
    assert_eq!(total(memory).unwrap(), 12 << 20, "{reason}");
}

#[test]
fn a_file_fits_the_budget_that_its_error_names_with_many_threads() {
    let mut sizes = vec![100; 20];
    sizes.push(3 << 20);
    let (_dir, paths) = make(&roots()[0], &sizes);
    for threads in [None, Some(1), Some(16), Some(64), Some(200)] {
        let total = |memory| {
            let files = ioloom::list(&paths).memory(memory);
            let files = threads.into_iter().fold(files, |files, threads| files.threads(threads));
            files.map(|f| f.len()).sum::<u64>()
        };
        for memory in [64 << 10, 1 << 20, 3 << 20, 4 << 20] {
            let Err(error) = total(memory) else { continue };
            let reason = error.to_string();
            let named = reason.rsplit_once(" to ").unwrap().1;
            let named = ioloom_model::units::parse_size(named).unwrap();
            assert_eq!(total(named).unwrap(), (3 << 20) + 2000, "{threads:?}: {reason}");
        }
    }
}

#[test]
fn all_chunks_are_read_in_little_memory() {
    let (_dir, paths) = make(&roots()[0], &[600_000; 12]);
    let want = expected(&paths);
    for text in LOOPS.iter().filter(|t| !t.contains("roles")) {
        let plan = plan(&format!("{text}/chunk=100KiB,memory=256KiB"));
        let got = run(list(&paths), plan).unwrap();
        assert!(got.failed.is_empty() && got.hashes == want, "{plan}: {:?}", got.failed);
        assert!(got.budget_peak_bytes <= plan.memory_bytes, "{plan}");
    }
}

#[test]
fn stolen_files_continue_with_a_full_window() {
    let (_dir, paths) = make(&roots()[0], &[50_000; 200]);
    let want = expected(&paths);
    for text in [
        "uring/window:l=2,p=2/chunk=4KiB",
        "uring:registered/window:l=4,p=4/chunk=4KiB",
        "uring:registered/window:l=3,p=3",
    ] {
        for _ in 0..3 {
            let got = run(list(&paths), plan(text)).unwrap();
            assert!(got.failed.is_empty() && got.hashes == want, "{text}: {:?}", got.failed);
        }
    }
}

#[test]
fn a_file_larger_than_the_budget_advises() {
    let (_dir, paths) = make(&roots()[0], &[100, 6 << 20, 100]);
    for text in LOOPS {
        let got = run(list(&paths), plan(&format!("{text}/memory=4MiB"))).unwrap();
        assert_eq!((got.hashes.len(), got.failed.len()), (2, 1), "{text}");
        assert!(got.failed[0].to_string().contains(".chunks()"), "{}", got.failed[0]);
    }
}

#[test]
fn retaining_everything_ends_the_run() {
    // The last file is large, so that a waiting thread may hold a first buffer itself.
    let mut sizes = vec![700_000; 30];
    sizes[6..].fill(300_000);
    let (_dir, paths) = make(&roots()[0], &sizes);
    for text in LOOPS {
        let run =
            ioloom::list(&paths).pin(plan(&format!("{text}/memory=4MiB"))).map(|f| f.keep()).run();
        match run {
            Err(Error::BudgetHeld { kept, budget }) => {
                assert!(kept > 1 << 20 && budget == 4 << 20, "{text}: {kept}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

/// Threads that reuse their buffers reserve nothing, but copies count.
#[test]
fn retaining_copies_of_all_files_ends_the_run() {
    let (_dir, paths) = make(&roots()[0], &[3000]);
    let files = std::iter::repeat_n(&paths[0], 20_000);
    let registered = "uring:registered/window:l=8,p=2";
    for text in ["read/threads:n=2", "nowait/window:l=8,p=2", "read/window:l=4,p=2", registered] {
        let plan = plan(&format!("{text}/memory=16MiB"));
        let run = ioloom::list(files.clone()).pin(plan).map(|f| f.keep()).run();
        match run {
            Err(Error::BudgetHeld { kept, .. }) => assert!(kept < 17 << 20, "{text}: {kept}"),
            Ok(run) => panic!("{text}: {} files were retained", run.value.len()),
            Err(error) => assert!(crate::support::lacks(&plan, &error), "{text}: {error}"),
        }
    }
}

/// Each file moves from its registered buffer to a larger one, which is retained.
#[test]
fn retaining_files_larger_than_registered_buffers_ends_the_run() {
    let (_dir, paths) = make(&roots()[0], &[200_000]);
    let plan = plan("uring:registered/window:l=8,p=2/memory=16MiB");
    crate::support::guarded(plan.to_string(), move || {
        let files = std::iter::repeat_n(&paths[0], 500);
        match ioloom::list(files).pin(plan).map(|f| f.keep()).run() {
            Err(Error::BudgetHeld { kept, .. }) => assert!(kept < 17 << 20, "{kept}"),
            Ok(run) => panic!("{} files were retained", run.value.len()),
            Err(error) => assert!(crate::support::lacks(&plan, &error), "{error}"),
        }
    });
}

/// More of them than fit if each took a page.
#[test]
fn small_files_are_retained_at_their_size() {
    let (_dir, paths) = make(&roots()[0], &[50]);
    let files = std::iter::repeat_n(paths[0].clone(), 20_000);
    let kept = ioloom::files(files).memory(16 << 20).map(|f| f.keep()).collect().unwrap();
    assert!(kept.len() == 20_000 && kept.iter().all(|bytes| bytes[..] == kept[0][..]));
}

/// A file larger than the address space, within the budget. Out of memory, it fails alone.
#[test]
fn a_file_that_no_memory_can_hold_fails_alone() {
    let Some(root) = roots().into_iter().nth(1) else { return };
    let (_dir, paths) = make(&root, &[100, 0, 100]);
    let huge = std::fs::File::options().write(true).open(&paths[1]).unwrap();
    huge.set_len(1 << 50).unwrap();
    let files = ioloom::list(&paths).memory(1 << 52).on_error(OnError::Collect);
    let run = files.map(|f| f.len()).run().unwrap();
    assert_eq!((run.value, run.failed), (vec![100, 100], 1));
    let said = run.errors[0].to_string();
    assert!(run.errors[0].index == 1 && said.contains("out of memory"), "{said}");
}

#[test]
fn a_run_waits_while_the_caller_may_drop_bytes() {
    // Each file is half of what may be retained, so the channel alone can hold the whole budget.
    let (_dir, paths) = make(&roots()[0], &[900_000; 24]);
    for text in LOOPS {
        let files = || ioloom::files(paths.clone()).pin(plan(&format!("{text}/memory=4MiB")));
        let mut values = files().map(|f| f.keep()).into_iter();
        let mut sum = 0;
        for bytes in values.by_ref() {
            // Long enough for all workers to find the budget filled by what is in the channel.
            std::thread::sleep(std::time::Duration::from_millis(3));
            sum += bytes.unwrap().len();
        }
        assert!(values.error().is_none(), "{text}: {:?}", values.error());
        assert_eq!(sum, 24 * 900_000, "{text}");
        // A caller that retains everything and waits for more gets an error.
        let mut values = files().map(|f| f.keep()).into_iter();
        let kept: Vec<_> = values.by_ref().collect();
        let (last, whole) = kept.split_last().unwrap();
        assert!(whole.len() < 24 && whole.iter().all(Result::is_ok), "{text}");
        let said = last.as_ref().unwrap_err().to_string();
        assert!(said.starts_with("the run ended early: "), "{text}: {said}");
        assert!(matches!(values.error(), Some(Error::BudgetHeld { .. })), "{text}");
    }
}

/// The last file needs the memory of many others, which another thread drops one by one.
#[test]
fn a_run_waits_for_a_thread_that_drops_bytes_slowly() {
    let mut sizes = vec![300_000; 12];
    sizes.push(2_000_000);
    drops_slowly(&sizes, Duration::ZERO, Duration::from_millis(60));
}

/// Paths that arrive wake the threads of `roles`, and do not shorten the grace period.
#[test]
fn paths_that_arrive_do_not_end_a_wait_for_memory() {
    drops_slowly(&[900_000; 14], Duration::from_millis(5), Duration::from_millis(60));
}

/// Runs over a stream whose paths are `apart`, while another thread holds each result for a time.
fn drops_slowly(sizes: &[usize], apart: Duration, held: Duration) {
    let teams = LOOPS.iter().copied().filter(|text| text.contains("roles"));
    for text in teams.chain(["read/roles:r=0,h=2,c=0,w=4"]) {
        let (dir, paths) = make(&roots()[0], sizes);
        crate::support::guarded(text.to_owned(), move || {
            let _dir = dir;
            let waited = (0..20).any(|_| waits_for_drops(text, &paths, apart, held));
            assert!(waited, "{text}: the receiver was held up in every run");
        });
    }
}

/// Returns whether the run waited until all was dropped. It may end early only if nothing was dropped for
/// the grace period of 200 ms. Then one of the two times from drop to drop in it is at least half as long.
fn waits_for_drops(text: &str, paths: &[PathBuf], apart: Duration, held: Duration) -> bool {
    const HELD_UP: Duration = Duration::from_millis(100);
    let (send, receive) = channel::<Bytes>();
    // Not when the receiver starts, which may be late.
    let begun = Instant::now();
    let receiver = std::thread::spawn(move || {
        let (mut dropped, mut longest, mut sum) = (begun, Duration::ZERO, 0);
        for bytes in receive {
            std::thread::sleep(held);
            sum += bytes.len() as u64;
            drop(bytes);
            let now = Instant::now();
            longest = longest.max(now - dropped);
            dropped = now;
        }
        (sum, longest)
    });
    let given = paths.to_vec();
    let stream = given.into_iter().inspect(move |_| std::thread::sleep(apart));
    let plan = plan(&format!("{text}/memory=4MiB"));
    let run = ioloom::files(stream).pin(plan).try_map(|f| send.send(f.keep())).run();
    drop(send);
    let (received, longest) = receiver.join().unwrap();
    let total: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
    match run {
        Ok(_) => assert_eq!(received, total, "{text}"),
        Err(Error::BudgetHeld { .. }) if longest >= HELD_UP => return false,
        Err(error) => assert!(crate::support::lacks(&plan, &error), "{text}: {error:?}"),
    }
    true
}

#[test]
fn dropping_retained_bytes_makes_room() {
    let (_dir, paths) = make(&roots()[0], &vec![300_000; 60]);
    for text in LOOPS {
        // Inside the function, while other threads wait for memory.
        let run = ioloom::list(&paths).pin(plan(&format!("{text}/memory=2MiB"))).map(|f| {
            let kept = f.keep();
            std::thread::yield_now();
            kept.len() as u64
        });
        assert_eq!(run.sum::<u64>().unwrap(), 60 * 300_000, "{text}");
        // At the next file of the run, so that something is retained at all times.
        let last: Mutex<Option<Bytes>> = Mutex::new(None);
        let run = ioloom::list(&paths).pin(plan(&format!("{text}/memory=4MiB"))).map(|f| {
            let before = last.lock().unwrap().replace(f.keep());
            before.map_or(0, |b| b.len() as u64)
        });
        assert_eq!(run.sum::<u64>().unwrap(), 59 * 300_000, "{text}");
    }
}

#[test]
fn retained_bytes_do_not_change() {
    let (_dir, paths) = make(&roots()[0], &vec![9_000; 200]);
    let want = expected(&paths);
    for text in LOOPS.iter().chain(&["uring:registered/window:l=4,p=2", "direct:read/threads:n=1"])
    {
        let plan = plan(&format!("{text}/memory=8MiB"));
        let kept = match ioloom::list(&paths).pin(plan).map(|f| f.keep()).collect() {
            Err(error) if crate::support::lacks(&plan, &error) => continue,
            other => other.unwrap(),
        };
        for (i, bytes) in kept.iter().enumerate() {
            assert_eq!(xxhash_rust::xxh3::xxh3_64(bytes), want[&i].0, "{plan}: file {i}");
        }
    }
}

#[test]
fn bytes_may_outlive_the_run_on_another_thread() {
    let (_dir, paths) = make(&roots()[0], &vec![20_000; 100]);
    let (send, receive) = channel::<Bytes>();
    let sum = std::thread::spawn(move || receive.iter().map(|b| b.len() as u64).sum::<u64>());
    ioloom::list(&paths).try_map(|f| send.send(f.keep())).run().unwrap();
    drop(send);
    assert_eq!(sum.join().unwrap(), 2_000_000);
}

#[test]
fn a_window_of_all_ends_when_memory_does() {
    let (_dir, paths) = make(&roots()[0], &vec![500_000; 40]);
    for text in [
        "read/roles:r=1,c=1,w=all",
        "uring/roles:r=2,c=1,w=all,open=1",
        "nowait/roles:r=0,h=2,c=0,w=all",
    ] {
        match run(list(&paths), plan(&format!("{text}/memory=8MiB"))) {
            Err(Error::Refused(reason)) => assert!(reason.contains("memory"), "{reason}"),
            // If compute keeps up, memory is never short.
            Ok(got) => assert_eq!(got.hashes.len(), 40, "{text}"),
            Err(other) => panic!("{text}: {other}"),
        }
    }
}

/// The largest file that fits needs all memory that first buffers do not. A worker that has computed
/// pieces of another must not keep a buffer beyond its own part while it waits.
#[test]
fn stolen_pieces_leave_room_for_the_largest_file() {
    let sizes: Vec<usize> = (0..80).map(|i| if i % 4 == 3 { 1 << 20 } else { 1000 }).collect();
    let (_dir, paths) = make(&roots()[0], &sizes);
    for text in ["uring/window:l=8,p=2", "nowait/window:l=8,p=2", "nowait/window:l=8,p=4"] {
        let plan = plan(&format!("{text}/memory=2MiB"));
        for _ in 0..20 {
            let run = ioloom::list(&paths).pin(plan).map(|f| {
                // The other worker finds pieces to steal.
                if f.len() < 2000 {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
                f.len()
            });
            match run.run() {
                Ok(run) => {
                    assert_eq!(run.value.iter().sum::<u64>(), sizes.iter().sum::<usize>() as u64)
                }
                Err(error) => {
                    assert!(crate::support::lacks(&plan, &error), "{plan}: {error}");
                    break;
                }
            }
        }
    }
}
