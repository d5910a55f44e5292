//! Policies, cancellation, panics, forms of results.

use crate::support::{NEVER, content, errno, make, plan, roots};
use ioloom::{Cancel, Cause, Error, OnError, Order, Plan, ReadOrder, Tuning};
use ioloom_model::{HybridOrder, Method, ReadAhead, Schedule};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Plans of every kind of loop.
const PLANS: [&str; 7] = [
    "read/window:l=8,p=2",
    "read/threads:n=2",
    "nowait/window:l=8,p=2",
    "uring/window:l=8,p=2",
    "uring:open/roles:r=1,h=1,c=1,w=8",
    "read/roles:r=0,h=2,c=0,w=8",
    "uring:registered/window:l=4,p=2",
];

#[test]
fn stop_skip_and_collect_handle_a_failure() {
    let (_dir, mut paths) = make(&roots()[0], &[100; 30]);
    paths.insert(7, "no/such/file".into());
    for text in PLANS {
        let sum = |policy| ioloom::list(&paths).pin(plan(text)).on_error(policy).map(|f| f.len());
        match sum(OnError::Stop).run() {
            Err(Error::File(e)) => assert_eq!((e.index, errno(&e)), (7, Some(2)), "{text}"),
            other => panic!("{text}: {other:?}"),
        }
        let run = sum(OnError::Skip).run().unwrap();
        assert_eq!((run.value.len(), run.failed, run.errors.len()), (30, 1, 0), "{text}");
        let run = sum(OnError::Collect).run().unwrap();
        assert_eq!((run.value.len(), run.failed, run.errors[0].index), (30, 1, 7), "{text}");
    }
}

#[test]
fn collect_keeps_a_thousand_and_counts_all() {
    let paths = (0..2500).map(|i| PathBuf::from(format!("no/such/{i}")));
    let run = ioloom::files(paths).on_error(OnError::Collect).map(|f| f.len()).run().unwrap();
    assert_eq!((run.failed, run.errors.len(), run.value.len()), (2500, 1000, 0));
}

#[test]
fn an_error_of_the_function_is_an_error_of_its_file() {
    let (_dir, paths) = make(&roots()[0], &[10; 20]);
    for text in PLANS {
        let run = ioloom::list(&paths)
            .pin(plan(text))
            .on_error(OnError::Collect)
            .try_map(|f| if f.index() == 3 { Err("not mine") } else { Ok(()) })
            .run()
            .unwrap();
        assert_eq!((run.value.len(), run.failed), (19, 1), "{text}");
        assert_eq!(run.errors[0].function_error(), Some(&"not mine"), "{text}");
    }
}

/// An error without a text, which is not `Sync` and borrows from the caller.
#[derive(Debug, PartialEq)]
struct Own<'a>(std::cell::Cell<u8>, &'a str);

#[test]
fn the_first_error_of_the_function_is_returned_with_its_type() {
    let (_dir, paths) = make(&roots()[0], &[10; 200]);
    let missing = [paths.clone(), vec!["no/such/file".into()]].concat();
    let name = String::from("mine");
    for text in PLANS {
        let job = |paths| ioloom::list(paths).pin(plan(text)).on_error(OnError::Stop);
        let run = job(&paths).try_map(|f| match f.index() {
            7 => Err(Own(7.into(), &name)),
            _ => Ok(f.len()),
        });
        match run.sum::<u64>() {
            Err(Error::File(e)) => match e.cause {
                Cause::Function(own) => assert_eq!(own, Own(7.into(), "mine"), "{text}"),
                other => panic!("{text}: {other:?}"),
            },
            other => panic!("{text}: {other:?}"),
        }
        let run = job(&missing)
            .try_map(|f| if f.index() > 900 { Err(Own(0.into(), "")) } else { Ok(()) });
        match run.run() {
            Err(Error::File(e)) => {
                assert!(matches!(&e.cause, Cause::Io(io) if io.raw_os_error() == Some(2)));
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_function_that_breaks_ends_the_run_and_keeps_the_values() {
    let (_dir, paths) = make(&roots()[0], &[10; 2000]);
    for text in PLANS {
        let files = || {
            let run = ioloom::list(&paths).pin(plan(text)).map_until(|f| match f.index() {
                50 => ControlFlow::Break(f.index()),
                _ => ControlFlow::Continue(f.index()),
            });
            let run = run.run().unwrap();
            assert!(run.stopped && run.value.contains(&50), "{text}: {:?}", run.value);
            assert_eq!(run.value.len() as u64, run.measured.files, "{text}");
            run.value.len()
        };
        // The thread of file 50 may be held up while others go on.
        let ends_early = (0..20).any(|_| files() < 1000);
        assert!(ends_early, "{text}: the other files were processed, too");
        let run = ioloom::list(&paths).pin(plan(text)).map_until(|_| ControlFlow::Continue(()));
        assert!(!run.run().unwrap().stopped, "{text}");
    }
}

/// A thread that has claimed the files 0 to 3 is in the function of file 2 until the thread on which
/// file 9 broke has ended, so it never starts file 3.
#[test]
fn ordered_values_of_a_run_that_ends_early_have_no_gaps() {
    thread_local!(static ENDS: Cell<Option<Sender<()>>> = const { Cell::new(None) });
    let (_dir, mut paths) = make(&roots()[0], &[10; 100]);
    // A failure is a result, too.
    paths[1] = "no/such/file".into();
    for (order, wanted) in [(Order::Any, vec![0, 2, 4, 5, 6, 7, 8, 9]), (Order::Input, vec![0, 2])]
    {
        let (send, ended) = channel();
        let (send, ended) = (Mutex::new(Some(send)), Mutex::new(ended));
        let (begins, begun) = channel();
        let begun = Mutex::new(begun);
        let files = ioloom::list(&paths).pin(plan("read/threads:n=2/stripe=4")).order(order);
        let job = files.on_error(OnError::Skip).map_until(|f| match f.index() {
            2 => {
                begins.send(()).unwrap();
                let waited = ended.lock().unwrap().recv_timeout(NEVER);
                assert_eq!(waited, Err(RecvTimeoutError::Disconnected), "the thread has not ended");
                ControlFlow::Continue(2)
            }
            9 => {
                begun.lock().unwrap().recv_timeout(NEVER).unwrap();
                ENDS.set(send.lock().unwrap().take());
                ControlFlow::Break(9)
            }
            index => ControlFlow::Continue(index),
        });
        let run = job.run().unwrap();
        let mut values = run.value;
        values.sort_unstable();
        assert_eq!(values, wanted, "{order:?}");
        assert_eq!((run.stopped, run.failed), (true, 1), "{order:?}");
    }
}

/// An iterator over a cancelled run ends without an error, if that is wanted.
#[test]
fn a_cancelled_iterator_may_end_without_an_error() {
    for partial in [false, true] {
        let token = Cancel::new();
        let cancels = token.clone();
        let files = ioloom::files(std::iter::repeat("Cargo.toml")).cancel(&token).partial(partial);
        let mut results = files.map(move |_| cancels.cancel()).into_iter();
        let failed = results.by_ref().filter(Result::is_err).count();
        assert_eq!(failed, usize::from(!partial));
        assert_eq!(matches!(results.error(), Some(Error::Cancelled { .. })), !partial);
    }
}

/// Settings apply to a pinned plan whether they come before it or after it.
#[test]
fn settings_apply_whichever_call_comes_first() {
    let plan = plan("nowait/window:l=4,p=1");
    let (order, memory) = (ReadOrder::Inode, 8 << 20);
    let before = ioloom::list(["Cargo.toml"]).memory(memory).polite().read_order(order).pin(plan);
    let after = ioloom::list(["Cargo.toml"]).pin(plan).memory(memory).polite().read_order(order);
    let [before, after] = [before, after].map(|files| files.map(|f| f.len()).run().unwrap().plan);
    assert_eq!(before, after);
    assert_eq!((before.memory_bytes, before.read_order), (memory, order));
    assert_eq!(before.tuning, Tuning::Polite);
}

/// The text of a plan cannot have these counts.
#[test]
fn plans_built_with_impossible_counts_are_refused() {
    let (_dir, paths) = make(&roots()[0], &[10; 2]);
    let roles = |readers, computers| Schedule::Roles {
        readers,
        hybrids: 0,
        computers,
        window: ReadAhead::Files(1),
        open_limit: None,
        order: HybridOrder::ReadFirst,
    };
    let schedules = [
        Schedule::Threads { n: 0 },
        Schedule::Window { window: 0, permits: Some(1) },
        Schedule::Window { window: 1, permits: Some(0) },
        roles(0, 1),
        roles(1, 0),
    ];
    for method in [Method::Read, Method::Nowait, Method::Uring] {
        for schedule in schedules {
            let run = ioloom::list(&paths).pin(Plan::new(method, schedule)).map(|f| f.len()).run();
            assert!(matches!(run, Err(Error::Refused(_))), "{run:?}");
        }
    }
    let plan = Plan { chunk_bytes: Some(0), ..plan("nowait/threads:n=1") };
    let run = ioloom::list(&paths).pin(plan).pieces().map_chunks(|c| c.bytes().len()).run();
    assert!(matches!(run, Err(Error::Refused(_))), "{run:?}");
}

#[test]
fn states_are_as_many_as_functions_run_at_once() {
    let (_dir, paths) = make(&roots()[0], &[10; 300]);
    for text in PLANS {
        let made = AtomicU64::new(0);
        let run = ioloom::list(&paths).pin(plan(text)).map_init(
            || {
                made.fetch_add(1, Ordering::Relaxed);
                0u64
            },
            |seen, _| {
                *seen += 1;
                *seen
            },
        );
        let values = run.run().unwrap().value;
        let made = made.into_inner();
        assert!((1..=2).contains(&made), "{text}: {made} states");
        // Each state counted its files from one.
        assert_eq!(values.iter().filter(|n| **n == 1).count() as u64, made, "{text}");
    }
}

#[test]
fn a_cancelled_run_drains_and_reports_it() {
    let (_dir, paths) = make(&roots()[0], &vec![100_000; 300]);
    for text in PLANS {
        let (token, seen) = (Cancel::new(), AtomicU64::new(0));
        let run = ioloom::list(&paths).pin(plan(text)).cancel(&token).for_each(|_| {
            if seen.fetch_add(1, Ordering::Relaxed) == 20 {
                token.cancel();
            }
        });
        match run {
            Err(Error::Cancelled { files }) => assert_eq!(files, seen.into_inner(), "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_cancel_while_a_thread_waits_for_memory_is_a_cancel() {
    // Two files of 3 MiB do not fit 4 MiB, so one thread waits while the other computes.
    let (_dir, paths) = make(&roots()[0], &[3 << 20; 6]);
    for text in [
        "read/threads:n=2/memory=4MiB",
        "read/window:l=4,p=2/memory=4MiB",
        "uring/window:l=4,p=2/memory=4MiB",
    ] {
        let token = Cancel::new();
        let run = ioloom::list(&paths).pin(plan(text)).cancel(&token).for_each(|_| {
            token.cancel();
            std::thread::sleep(Duration::from_millis(300));
        });
        assert!(matches!(run, Err(Error::Cancelled { .. })), "{text}: {run:?}");
    }
}

#[test]
fn a_panic_is_resumed_after_the_drain_and_the_process_goes_on() {
    let (_dir, paths) = make(&roots()[0], &vec![70_000; 60]);
    for text in PLANS {
        let job = || ioloom::list(&paths).pin(plan(text));
        let in_function = catch_unwind(AssertUnwindSafe(|| {
            job()
                .map(|f| {
                    if f.index() == 11 {
                        panic!("boom {}", f.index())
                    }
                })
                .run()
        }));
        let payload = in_function.expect_err("the panic must come out");
        assert_eq!(payload.downcast_ref::<String>().unwrap(), "boom 11", "{text}");
        // Code other than the function may panic, too.
        let in_accumulator = catch_unwind(AssertUnwindSafe(|| {
            job().map(|_| ()).fold(|| -> u64 { panic!("no accumulator") }, |_, ()| {}, |_, _| {})
        }));
        assert!(in_accumulator.is_err(), "{text}");
        let in_list = catch_unwind(AssertUnwindSafe(|| {
            let paths = paths.clone().into_iter();
            let list = paths.map(|p| if p.ends_with("00030") { panic!("list") } else { p });
            ioloom::files(list).pin(plan(text)).map(|_| ()).run()
        }));
        assert!(in_list.is_err(), "{text}");
        assert_eq!(job().map(|_| 1u64).sum::<u64>().unwrap(), 60, "{text}");
    }
}

#[test]
fn results_can_be_in_input_order() {
    let (dir, mut paths) = make(&roots()[0], &[50; 80]);
    paths.reverse();
    for text in PLANS {
        for order in ["", "/order=inode"] {
            let plan = plan(&format!("{text}{order}"));
            let run = ioloom::list(&paths)
                .pin(plan)
                .order(Order::Input)
                .map(|f| (f.index(), f.path().to_owned()))
                .run()
                .unwrap();
            for (i, (index, path)) in run.value.iter().enumerate() {
                assert_eq!((*index, path), (i, &paths[i]), "{plan}");
            }
            // A list in memory, too: order=inode is the order of reading, not of the input.
            let mut list = crate::support::list(&paths);
            list.push(dir.path().join("00005").as_os_str().as_encoded_bytes());
            let names = ioloom::Files::from(list)
                .pin(plan)
                .take(50)
                .order(Order::Input)
                .map(|f| f.path().to_owned())
                .run()
                .unwrap();
            assert_eq!(
                names.value,
                paths[..50],
                "{plan}: the first fifty of the list, in its order"
            );
        }
    }
}

#[test]
fn folds_sums_and_chunks_agree() {
    let (_dir, paths) = make(&roots()[0], &[0, 1, 4096, 100_000, 300_000]);
    let all: u64 = 1 + 4096 + 100_000 + 300_000;
    let job = || ioloom::list(&paths);
    assert_eq!(job().map(|f| f.len()).sum::<u64>().unwrap(), all);
    assert_eq!(job().map(|f| f.len()).collect().unwrap(), [0, 1, 4096, 100_000, 300_000]);
    let fold = job().map(|f| f.len()).fold(|| 0, |a, n| *a += n, |a, b| *a += b).unwrap();
    assert_eq!(fold.value, all);
    let copies = job()
        .chunks(1000)
        .fold_file(|_| Vec::new(), |v, c| v.extend_from_slice(c.bytes()), |v, _| v)
        .collect()
        .unwrap();
    for (i, copy) in copies.iter().enumerate() {
        assert!(*copy == content(i as u64 + 1, copy.len()), "file {i}");
    }
    let pieces = job().chunks(4096).map_chunks(|c| c.bytes().len()).collect().unwrap();
    assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 25, 74]);
}

#[test]
fn progress_is_reported() {
    let (_dir, paths) = make(&roots()[0], &[10; 5]);
    let reported = AtomicU64::new(0);
    ioloom::list(&paths)
        .progress(|p| {
            assert!(p.files <= 5);
            reported.fetch_add(1, Ordering::Relaxed);
        })
        .map(|_| std::thread::sleep(Duration::from_millis(60)))
        .run()
        .unwrap();
    assert!(reported.into_inner() > 0);
}

#[test]
fn an_iterator_leaves_the_token_of_the_caller_alone() {
    let (_dir, paths) = make(&roots()[0], &[10; 50]);
    let token = Cancel::new();
    let job = || ioloom::files(paths.clone()).cancel(&token).map(|f| f.len());
    assert_eq!(job().into_iter().map(Result::unwrap).sum::<u64>(), 500);
    drop(job().into_iter().take(3).collect::<Vec<_>>());
    assert!(!token.is_cancelled());
    assert_eq!(job().sum::<u64>().unwrap(), 500);
    token.cancel();
    let mut cancelled = job().into_iter();
    let items: Vec<_> = cancelled.by_ref().collect();
    assert!(items.len() <= 50 && items.last().unwrap().is_err());
    assert!(matches!(cancelled.error(), Some(Error::Cancelled { .. })));
}

/// The list does not end by itself while the run is expected to end.
#[test]
fn a_progress_function_that_panics_ends_the_run() {
    let (_dir, paths) = make(&roots()[0], &[10]);
    let since = std::time::Instant::now();
    let endless = move |_: &PathBuf| since.elapsed() < Duration::from_secs(120);
    for text in PLANS {
        let reported = AtomicU64::new(0);
        let run = catch_unwind(AssertUnwindSafe(|| {
            ioloom::files(std::iter::repeat(paths[0].clone()).take_while(endless))
                .pin(plan(text))
                .progress(|_| {
                    reported.fetch_add(1, Ordering::Relaxed);
                    panic!("stop reporting")
                })
                .for_each(|_| ())
        }));
        let payload = run.expect_err(text);
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"stop reporting"), "{text}");
        assert_eq!(reported.into_inner(), 1, "{text}: it is not called again");
        assert!(since.elapsed() < Duration::from_secs(120), "{text}: the list reached its end");
    }
}

#[test]
fn a_cancelled_run_does_not_finish_the_walk_of_a_sorted_tree() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..50 {
        std::fs::create_dir(dir.path().join(format!("d{n}"))).unwrap();
        std::fs::write(dir.path().join(format!("d{n}/f")), "x").unwrap();
    }
    // The thread that ends the walk may be held up until all was found.
    let ends_early = (0..10).any(|_| entries_of_a_cancelled_walk(dir.path()) < 100);
    assert!(ends_early, "the walk went on to its end");
}

/// Cancels a run when its walk has found three entries. Returns how many were found in all.
fn entries_of_a_cancelled_walk(root: &Path) -> usize {
    let (token, found) = (Cancel::new(), Arc::new(AtomicUsize::new(0)));
    let (cancels, counted) = (token.clone(), found.clone());
    let files = ioloom::tree(root).sorted(true).cancel(&token).filter_entry(move |_| {
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => {}
            2 => {
                cancels.cancel();
                std::thread::sleep(Duration::from_millis(200));
            }
            // The cancel comes before all that follow.
            _ => {
                while !cancels.is_cancelled() {
                    std::thread::yield_now();
                }
            }
        }
        true
    });
    let run = files.map(|file| file.len()).run();
    assert!(matches!(run, Err(Error::Cancelled { files: 0 })), "{run:?}");
    // The run does not wait for the walk, which drops the filter at its end.
    while Arc::strong_count(&found) > 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    found.load(Ordering::SeqCst)
}
