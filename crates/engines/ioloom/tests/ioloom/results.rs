//! Results while the run goes on: iterators, scopes, early stops, and the order of the input.

use crate::support::{NEVER, content, evict, guarded, lacks, make, plan, roots};
use ioloom::{Cancel, Error, OnError};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PLANS: [&str; 6] = [
    "read/window:l=8,p=2",
    "read/threads:n=2",
    "nowait/window:l=64,p=2",
    "uring/window:l=64,p=2",
    "uring:open/roles:r=1,h=1,c=1,w=8",
    "nowait/window:l=64,p=2/order=inode",
];

#[test]
fn iterators_and_scopes_keep_the_order_of_the_input() {
    // More than the horizon, of very different sizes, so that results come in any order.
    let sizes: Vec<usize> =
        (0..3000).map(|i| if i % 100 == 0 { 400_000 } else { i % 50 }).collect();
    let (_dir, mut paths) = make(&roots()[0], &sizes);
    paths.reverse();
    paths[77] = "no/such/file".into();
    for text in PLANS {
        let paths = paths.clone();
        guarded(text.to_owned(), move || {
            let job = || ioloom::files(paths.clone()).pin(plan(text)).ordered();
            let seen = |result: Result<(usize, PathBuf), ioloom::FileError>, at: usize| match result
            {
                Ok(value) => assert_eq!(value, (at, paths[at].clone()), "{text}"),
                // The run ended early: see below.
                Err(error) if error.index == usize::MAX => {}
                Err(error) => assert_eq!((error.index, at), (77, 77), "{text}: {error}"),
            };
            let mut all = job().map(|f| (f.index(), f.path().to_owned())).into_iter();
            let count = all.by_ref().enumerate().map(|(at, result)| seen(result, at)).count();
            match all.error() {
                Some(error) => assert!(lacks(&plan(text), error), "{text}: {error}"),
                None => assert_eq!(count, 3000, "{text}"),
            }
            let listed = ioloom::list(&paths).pin(plan(text)).ordered();
            let run = listed
                .map(|f| (f.index(), f.path().to_owned()))
                .scope(|results| results.enumerate().map(|(at, result)| seen(result, at)).count());
            match run {
                Err(error) => assert!(lacks(&plan(text), &error), "{text}: {error}"),
                Ok(run) => {
                    assert_eq!((run.value, run.failed, run.stopped), (3000, 1, false), "{text}");
                    assert_eq!(run.measured.files, 2999);
                }
            }
        });
    }
}

/// One slow file at the start: the rest waits behind the horizon instead of filling memory.
#[test]
fn results_that_come_early_are_bounded() {
    let (_dir, paths) = make(&roots()[0], &[10; 50]);
    guarded("horizon".to_owned(), move || {
        let taken = AtomicUsize::new(0);
        let (go, wait) = channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let paths: Vec<PathBuf> = paths.iter().cycle().take(20_000).cloned().collect();
        let run = ioloom::list(&paths).ordered().map(|f| {
            if f.index() == 0 {
                let _ = wait.lock().unwrap().recv_timeout(NEVER);
            }
            taken.fetch_add(1, Ordering::Relaxed);
            f.index()
        });
        let run = run.scope(|results| {
            // Nothing can be received until the first is done; the caller drains the channel.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(300));
                    let before = taken.load(Ordering::Relaxed);
                    go.send(()).unwrap();
                    assert!(before <= 1024, "{before} results before the first one");
                });
                results.enumerate().all(|(at, result)| result.unwrap() == at)
            })
        });
        assert!(run.unwrap().value);
    });
}

#[test]
fn a_scope_that_returns_early_ends_the_run_and_leaves_the_token_alone() {
    let (_dir, paths) = make(&roots()[0], &[100; 500]);
    for text in PLANS {
        let paths = paths.clone();
        guarded(text.to_owned(), move || {
            let token = Cancel::new();
            let endless = paths.clone().into_iter().cycle();
            let run = ioloom::files(endless).pin(plan(text)).cancel(&token).map(|f| f.len());
            match run.scope(|results| {
                results.take(5).filter(|len| *len.as_ref().unwrap() == 100).count()
            }) {
                Err(error) => assert!(lacks(&plan(text), &error), "{text}: {error}"),
                Ok(run) => assert_eq!((run.value, run.stopped), (5, true), "{text}"),
            }
            assert!(!token.is_cancelled());
            token.cancel();
            let run = ioloom::list(&paths).pin(plan(text)).cancel(&token).map(|f| f.len());
            match run.scope(|results| results.count()) {
                Err(Error::Cancelled { .. }) => {}
                Err(error) => assert!(lacks(&plan(text), &error), "{text}: {error}"),
                Ok(run) => panic!("{text}: {run:?}"),
            }
        });
    }
}

/// A crawler in the order of the input: each result sends further paths.
#[test]
fn an_ordered_scope_may_feed_its_own_input() {
    let (_dir, paths) = make(&roots()[0], &[10; 40]);
    for text in PLANS.into_iter().map(Some).chain([None]) {
        let paths = paths.clone();
        guarded(format!("{text:?}"), move || {
            let (send, receive) = channel();
            send.send(paths[0].clone()).unwrap();
            let files = ioloom::files(receive).ordered();
            let files = match text {
                Some(text) => files.pin(plan(text)),
                None => files,
            };
            let run = files.map(|f| f.index()).scope(|results| {
                let mut send = Some(send);
                let mut seen = 0;
                for result in results {
                    assert_eq!(result.unwrap(), seen);
                    seen += 1;
                    match paths.get(seen) {
                        Some(next) => send.as_ref().unwrap().send(next.clone()).unwrap(),
                        None => send = None,
                    }
                }
                seen
            });
            match run {
                Err(error) => assert!(lacks(&plan(text.unwrap()), &error), "{text:?}: {error}"),
                Ok(run) => assert_eq!(run.value, 40, "{text:?}"),
            }
        });
    }
}

#[test]
fn panics_in_a_scope_end_the_run() {
    let (_dir, paths) = make(&roots()[0], &[10; 300]);
    guarded("panics".to_owned(), move || {
        let job = || ioloom::files(paths.clone().into_iter().cycle());
        let caught = |run: &mut dyn FnMut()| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("a panic")
        };
        let payload = caught(&mut || {
            let _ = job().map(|f| f.len()).scope(|results| -> () {
                results.next();
                panic!("consumer")
            });
        });
        assert_eq!(payload.downcast_ref(), Some(&"consumer"));
        let payload = caught(&mut || {
            let _ =
                job().map(|f| assert!(f.index() < 50, "function")).scope(|results| results.count());
        });
        assert_eq!(payload.downcast_ref(), Some(&"function"));
    });
}

#[test]
fn results_in_order_refuse_a_window_of_all_with_its_reason() {
    let (_dir, paths) = make(&roots()[0], &[10; 3]);
    let job = || {
        let plan = plan("read/roles:r=1,c=1,w=all");
        ioloom::list(&paths).pin(plan).ordered().map(|f| f.len())
    };
    assert_eq!(job().run().unwrap().value, [10; 3]);
    let refused = [
        job().find_first(|_| true).map(drop).unwrap_err(),
        job().scope(|results| results.flatten().count()).map(drop).unwrap_err(),
    ];
    for error in refused {
        let Error::Refused(reason) = &error else { panic!("{error}") };
        assert!(
            reason.contains("in the order of the input") && !reason.contains("list"),
            "{reason}"
        );
    }
}

#[test]
fn searches_end_when_they_have_found() {
    let (_dir, mut paths) = make(&roots()[0], &[10; 5000]);
    paths[3000] = "no/such/file".into();
    for text in PLANS {
        let paths = paths.clone();
        guarded(text.to_owned(), move || {
            let calls = AtomicUsize::new(0);
            let job = || {
                ioloom::list(&paths).pin(plan(text)).map(|f| {
                    calls.fetch_add(1, Ordering::Relaxed);
                    f.index()
                })
            };
            match job().find_first(|index| *index % 700 == 699) {
                Err(error) => return assert!(lacks(&plan(text), &error), "{text}: {error}"),
                Ok(first) => assert_eq!(first, Some(699), "{text}"),
            }
            assert!(calls.swap(0, Ordering::Relaxed) < 3000, "{text}");
            // A failure may come before what is searched for.
            let job = || {
                ioloom::list(&paths).pin(plan(text)).on_error(OnError::Skip).map(|f| {
                    calls.fetch_add(1, Ordering::Relaxed);
                    f.index()
                })
            };
            let any = job().find_any(|index| *index % 500 == 17).unwrap().unwrap();
            assert_eq!(any % 500, 17, "{text}");
            assert!(calls.load(Ordering::Relaxed) < 4000, "{text}");
            let run = job().take_results(20).unwrap();
            assert_eq!((run.value.len(), run.stopped), (20, true), "{text}");
            assert!(job().take_results(0).unwrap().value.is_empty(), "{text}");
            let stopping = ioloom::list(&paths).pin(plan(text)).map(|f| f.index());
            match stopping.find_first(|index| *index > 4000) {
                Err(Error::File(error)) => assert_eq!(error.index, 3000, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
            let skipping = ioloom::list(&paths).on_error(OnError::Skip).map(|f| f.index());
            assert_eq!(skipping.find_first(|index| *index > 4000).unwrap(), Some(4001));
        });
    }
}

/// Values that retain their bytes, in order: the memory budget bounds them, and a file that comes
/// late is not starved for ever.
#[test]
fn ordered_values_that_retain_memory_end_or_finish() {
    let (_dir, paths) = make(&roots()[0], &[100_000; 200]);
    for text in ["read/window:l=8,p=2", "nowait/window:l=16,p=2"] {
        let paths = paths.clone();
        guarded(text.to_owned(), move || {
            let plan = plan(&format!("{text}/memory=4MiB"));
            let job =
                ioloom::list(&paths).pin(plan).ordered().map(|f| (f.index() as u64, f.keep()));
            let run = job.scope(|results| {
                let mut taken = Vec::new();
                for (index, bytes) in results.map(Result::unwrap) {
                    taken.push(index);
                    assert!(bytes[..] == content(index + 1, 100_000)[..]);
                }
                // A run that ends early may leave some out.
                assert!(taken.is_sorted());
                taken.len()
            });
            match run {
                Ok(run) => assert_eq!(run.value, 200),
                Err(Error::BudgetHeld { .. }) => {}
                Err(error) => panic!("{text}: {error}"),
            }
        });
    }
}

/// Values and failures of every kind reach one fold, and a cancelled run keeps them.
#[test]
fn failures_are_folded_like_values_and_survive_a_cancel() {
    let (_dir, mut paths) = make(&roots()[0], &[100; 300]);
    paths[7] = "no/such/file".into();
    for text in PLANS {
        for chunk_bytes in [None, Some(4096)] {
            let plan = ioloom::Plan { chunk_bytes, ..plan(text) };
            if ioloom_model::table::check(&plan).is_err() {
                continue;
            }
            for cancel_at in [None, Some(100)] {
                let (token, done) = (Cancel::new(), AtomicUsize::new(0));
                let run = ioloom::list(&paths)
                    .pin(plan)
                    .cancel(&token)
                    .partial(true)
                    .pieces()
                    .try_fold_file(
                        |_| (0, 0),
                        |sum, c| {
                            *sum = (c.index(), sum.1 + c.bytes().len());
                            if c.index() == 9 { Err("nine") } else { Ok(()) }
                        },
                        |(index, sum), _| {
                            if Some(done.fetch_add(1, Ordering::SeqCst)) == cancel_at {
                                token.cancel();
                            }
                            Ok((index, sum))
                        },
                    )
                    .fold_results(
                        || (Vec::new(), Vec::new()),
                        |(good, bad): &mut (Vec<_>, Vec<_>), result| match result {
                            Ok(value) => good.push(value),
                            Err(error) => bad.push((error.index, error.function_error().copied())),
                        },
                        |all, more| {
                            all.0.extend(more.0);
                            all.1.extend(more.1);
                        },
                    );
                let run = match run {
                    Ok(run) => run,
                    Err(error) => {
                        assert!(matches!(error, Error::Refused(_)), "{plan}: {error}");
                        continue;
                    }
                };
                let (good, mut bad) = run.value;
                bad.sort_unstable();
                assert_eq!(run.cancelled, cancel_at.is_some(), "{plan}");
                assert_eq!(run.failed as usize, bad.len(), "{plan}");
                assert_eq!(run.measured.errors, run.failed, "{plan}");
                assert!(good.iter().all(|(_, bytes)| *bytes == 100), "{plan}");
                if cancel_at.is_none() {
                    assert_eq!((good.len(), bad), (298, vec![(7, None), (9, Some("nine"))]));
                } else {
                    assert!((101..298).contains(&good.len()), "{plan}: {}", good.len());
                }
            }
        }
    }
    // Without partial results, a cancelled run is an error that counts what was done.
    let token = Cancel::new();
    token.cancel();
    let run = ioloom::list(&paths).cancel(&token).map(|f| f.len());
    let run = run.fold_results(|| (), |(), _| {}, |(), ()| {});
    assert!(matches!(run, Err(Error::Cancelled { files: 0 })), "{run:?}");
    // A scope returns what its caller returned.
    let job = ioloom::list(&paths).cancel(&token).partial(true).map(|f| f.len());
    let run = job.scope(|results| results.count()).unwrap();
    assert!(run.cancelled && run.value < 300);
}

/// While functions outlast reads, the window hardly fills with misses, so nothing would wait for them:
/// without another attempt at the oldest miss, files in memory overtake all that must be read. A disk
/// that is busy with other work for 100 ms delays the reads as well, so four runs of ten must keep
/// the order.
#[test]
fn files_in_memory_do_not_all_overtake_the_others() {
    let (_dir, paths) = make(&roots()[0], &[3000; 1500]);
    let cold: Vec<usize> = (0..500).step_by(10).collect();
    let mut late = Vec::new();
    let mut in_order = 0;
    for attempt in 0..10 {
        late = places_lost(&paths, &cold);
        in_order += u32::from(late[late.len() / 2] < 900);
        if in_order == 4 {
            return;
        }
        std::thread::sleep(Duration::from_millis(100 * attempt));
    }
    panic!("half of the cold files came last, at last: {late:?}");
}

/// By how many places each of the `cold` files came later than in the input, ascending.
fn places_lost(paths: &[PathBuf], cold: &[usize]) -> Vec<usize> {
    evict(&cold.iter().map(|i| paths[*i].clone()).collect::<Vec<_>>());
    let processed = AtomicUsize::new(0);
    let run = ioloom::files(paths.to_vec()).threads(1).map(|f| {
        let position = processed.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(100) {
            std::hint::spin_loop();
        }
        (f.index(), position)
    });
    let mut positions = run.collect().unwrap();
    positions.retain(|(index, _)| cold.binary_search(index).is_ok());
    let mut late: Vec<_> =
        positions.iter().map(|(i, position)| position.saturating_sub(*i)).collect();
    late.sort_unstable();
    late
}

#[test]
fn results_that_were_taken_are_in_the_order_of_the_input_if_wanted() {
    let paths = std::iter::repeat_n("Cargo.toml", 2000);
    let job = ioloom::list(paths).ordered().threads(2).map(|f| f.index());
    let taken = job.take_results(500).unwrap().value;
    assert_eq!(taken.len(), 500);
    assert!(taken.is_sorted());
}

#[test]
fn a_file_that_grows_is_read_to_its_end_in_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let grow = || {
        use std::io::Write;
        let mut log = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        log.write_all(&vec![1; 1 << 20]).unwrap();
    };
    let bytes = ioloom::list([&path])
        .chunks(256 << 10)
        .fold_file(
            |_| 0,
            |bytes, chunk| {
                if chunk.offset() == 0 {
                    grow();
                }
                *bytes += chunk.bytes().len() as u64;
            },
            |bytes, _| bytes,
        )
        .sum::<u64>();
    assert_eq!(bytes.unwrap(), 2 << 20);
}

#[test]
fn progress_counts_files_that_failed() {
    use std::sync::Mutex;
    let last = Mutex::new(None);
    let run = ioloom::list(["Cargo.toml", "missing"])
        .on_error(ioloom::OnError::Collect)
        .progress(|now| *last.lock().unwrap() = Some((now.files, now.failed)))
        .map(|f| f.len())
        .run()
        .unwrap();
    assert_eq!(run.failed, 1);
    assert_eq!(last.into_inner().unwrap(), Some((1, 1)));
}
