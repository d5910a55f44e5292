//! The end of a run: all workers compute what one worker has read.

use crate::support::{content, make, plan, roots};
use ioloom::{Cancel, Error, File, OnError};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Longer than any run here: a wait this long means that the other worker has ended.
const NEVER: Duration = Duration::from_secs(60);

/// Yields the first path, and the others when the function runs on it: another worker takes them.
fn after_the_first(
    paths: Vec<PathBuf>,
    begun: Arc<(Mutex<bool>, Condvar)>,
) -> impl Iterator<Item = PathBuf> + Send + 'static {
    paths.into_iter().enumerate().map(move |(index, path)| {
        if index > 0 {
            let waits = begun.1.wait_timeout_while(begun.0.lock().unwrap(), NEVER, |begun| !*begun);
            assert!(!waits.unwrap().1.timed_out(), "the function never ran on the first file");
        }
        path
    })
}

#[test]
fn a_worker_without_files_computes_what_another_has_read() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..5)
        .map(|i| {
            let path = dir.path().join(format!("{i}"));
            std::fs::write(&path, content(i, 30_000)).unwrap();
            path
        })
        .collect();
    // Wide enough that one worker starts four files before it computes the first.
    for text in ["null/window:l=8,p=2", "nowait/window:l=64,p=2", "uring/window:l=8,p=2"] {
        let begun = Arc::new((Mutex::new(false), Condvar::new()));
        let (inside, came) = (Mutex::new(0), Condvar::new());
        let await_calls = |count: MutexGuard<'_, i32>, calls: i32| {
            let waits = came.wait_timeout_while(count, NEVER, |count| *count < calls).unwrap();
            if waits.1.timed_out() { Err("no other thread computes") } else { Ok(()) }
        };
        let run = ioloom::files(after_the_first(paths.clone(), begun.clone()))
            .pin(plan(text))
            .on_error(OnError::Collect)
            .try_map(|f| {
                let mut count = inside.lock().unwrap();
                if f.index() == 0 {
                    *begun.0.lock().unwrap() = true;
                    begun.1.notify_all();
                    return await_calls(count, 1);
                }
                // The first two of these calls only return together, so they run on two threads.
                *count += 1;
                came.notify_all();
                await_calls(count, 2)
            })
            .run();
        match run {
            Err(error) => assert!(crate::support::lacks(&plan(text), &error), "{text}: {error}"),
            Ok(run) => {
                assert_eq!((run.failed, run.value.len()), (0, 5), "{text}: {:?}", run.errors)
            }
        }
    }
}

#[test]
fn resting_workers_end_with_the_run() {
    let paths: Vec<PathBuf> = (0..3).map(|i| PathBuf::from(format!("{i}"))).collect();
    let files = || ioloom::files(paths.clone()).pin(plan("null/window:l=8,p=4"));
    let slow = || std::thread::sleep(Duration::from_millis(30));
    let failing = |_: &File<'_>| -> Result<(), &str> {
        slow();
        Err("no")
    };
    let run = files().try_map(failing).run();
    assert!(matches!(run, Err(Error::File(_))), "{run:?}");
    let token = Cancel::new();
    let cancelling = |_: &File<'_>| {
        token.cancel();
        slow();
    };
    let run = files().cancel(&token).map(cancelling).run();
    assert!(matches!(run, Err(Error::Cancelled { .. })), "{run:?}");
    let panicking = |_: &File<'_>| -> () {
        slow();
        panic!("as the function does")
    };
    let run = std::panic::catch_unwind(|| files().map(panicking).run().map(|_| ()));
    assert!(run.is_err());
}

/// Long functions start more workers than permits. They sleep for the only permit while its holder
/// finds hit after hit. A worker that has ended, or waits, must not keep the permit, or the others
/// would sleep forever.
#[test]
fn waiting_and_resting_workers_return_their_permits() {
    let (_dir, paths) = make(&roots()[0], &vec![100; 3000]);
    for round in 0..10 {
        let seen = AtomicU64::new(0);
        let plan = plan("nowait/window:l=512,p=1");
        let run = ioloom::list(&paths).pin(plan).for_each(|_| {
            let at = seen.fetch_add(1, Ordering::Relaxed);
            if at < 60 || at > 2980 - round * 40 {
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        run.unwrap();
        assert_eq!(seen.into_inner(), 3000);
    }
}
