//! How a run ends: complete, cancelled, with an error of the function, or with a panic.

use crate::support::{NEVER, guarded, make, plan, roots};
use ioloom::{Cancel, Cause, Error, FileError, OnError, Order};
use std::cell::RefCell;
use std::error::Error as _;
use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[test]
fn a_cancel_after_the_last_file_loses_nothing() {
    let (_dir, paths) = make(&roots()[0], &[10; 20]);
    let token = Cancel::new();
    let run = ioloom::list(&paths).cancel(&token).map(|f| f.len()).scope(|results| {
        let all: Vec<_> = results.collect();
        token.cancel();
        all
    });
    assert_eq!(run.unwrap().value.len(), 20);

    // All files have begun when the last one cancels, and no other is in the list.
    let sorted = ioloom::tree(&paths[0]).sorted(true).into_files();
    for files in [ioloom::list(&paths[..1]), sorted] {
        let token = Cancel::new();
        let run = files.cancel(&token).map(|_| token.cancel()).run().unwrap();
        assert!(!run.cancelled && run.value.len() == 1);
    }
}

#[test]
fn a_scope_that_ends_by_itself_is_no_cancelled_run() {
    let (_dir, paths) = make(&roots()[0], &[10; 2]);
    let many = std::iter::repeat_n(&paths[0], 2000);
    let token = Cancel::new();
    let run = ioloom::list(many).cancel(&token).map(|f| f.len()).scope(|results| {
        let first = results.next();
        token.cancel();
        first
    });
    let run = run.unwrap();
    assert!(run.stopped && !run.cancelled && run.value.unwrap().unwrap() == 10);
    // One that sees the end of the results because of the cancel is.
    let token = Cancel::new();
    let endless = std::iter::repeat(paths[0].clone());
    let run = ioloom::files(endless).cancel(&token).map(|f| f.len()).scope(|results| {
        results.next();
        token.cancel();
        results.count()
    });
    assert!(matches!(run, Err(Error::Cancelled { .. })));
    // One that takes the last result leaves nothing, although it has not seen the end.
    for (count, stopped) in [(2, false), (1000, true)] {
        let files = ioloom::list(std::iter::repeat_n(&paths[0], count));
        let run = files.map(|f| f.len()).scope(|results| results.take(2).count()).unwrap();
        assert_eq!((run.value, run.stopped, run.cancelled), (2, stopped, false), "{count}");
    }
}

/// However far the run is when the caller leaves.
#[test]
fn a_scope_is_stopped_by_a_caller_that_leaves_results() {
    let (_dir, paths) = make(&roots()[0], &[10; 20]);
    for order in [Order::Any, Order::Input] {
        for (is_list, count, stopped) in
            [(true, 20, false), (true, 19, true), (false, 20, true), (false, 21, false)]
        {
            let files = match is_list {
                true => ioloom::list(&paths),
                false => ioloom::files(paths.clone()),
            };
            let processed = AtomicUsize::new(0);
            let job = files.order(order).map(|_| processed.fetch_add(1, Ordering::SeqCst));
            let run = job.scope(|results| {
                let taken = results.take(count).count();
                // The other results are then ready, and the end of the stream is known.
                while processed.load(Ordering::SeqCst) < 20 {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(20));
                taken
            });
            let run = run.unwrap();
            let seen = (run.value, run.stopped, run.cancelled);
            assert_eq!(seen, (count.min(20), stopped, false), "{order:?} {is_list}");
        }
    }
}

#[test]
fn a_run_that_the_last_file_stops_has_left_nothing() {
    let (_dir, paths) = make(&roots()[0], &[10; 4]);
    for count in 1..=3 {
        for (more, stopped) in [(0, false), (1, true)] {
            let files = || ioloom::list(&paths[..count + more]);
            let until = files().pin(plan("read/threads:n=1")).map_until(|f| {
                let last = f.index() + 1 == count;
                if last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let run = until.run().unwrap();
            assert_eq!((run.value.len(), run.stopped), (count, stopped), "{count} and {more}");
            let run = files().map(|f| f.len()).take_results(count).unwrap();
            assert_eq!((run.value.len(), run.stopped), (count, stopped), "{count} and {more}");
        }
    }
}

#[test]
fn a_run_of_which_no_result_is_wanted_leaves_what_there_is() {
    let (_dir, paths) = make(&roots()[0], &[10; 2]);
    for (count, stopped) in [(0, false), (2, true)] {
        let run = ioloom::list(&paths[..count]).map(|f| f.len()).take_results(0).unwrap();
        assert_eq!((run.value.len(), run.stopped), (0, stopped), "{count}");
    }
    for (most, stopped) in [(0, false), (1, true)] {
        let files = ioloom::files(paths.clone()).take(most);
        assert_eq!(files.map(|f| f.len()).take_results(0).unwrap().stopped, stopped, "{most}");
    }
}

#[test]
fn an_error_that_the_function_returned_is_not_lost_to_a_cancel() {
    let (_dir, paths) = make(&roots()[0], &[10; 50]);
    let token = Cancel::new();
    let fails = |f: &ioloom::File<'_>| match f.index() {
        7 => {
            token.cancel();
            Err("this one")
        }
        _ => Ok(()),
    };
    let files = ioloom::list(&paths).cancel(&token).partial(true).on_error(OnError::Collect);
    let run = files.try_map(fails).run().unwrap();
    assert_eq!(run.failed, 1);
    assert_eq!(run.errors[0].function_error(), Some(&"this one"));
}

#[test]
fn a_search_that_was_cancelled_gives_no_answer() {
    let (_dir, paths) = make(&roots()[0], &[10]);
    let endless = || std::iter::repeat(paths[0].clone());
    for any in [true, false] {
        let token = Cancel::new();
        let cancels = |_: &u64| {
            token.cancel();
            false
        };
        let job = ioloom::files(endless()).cancel(&token).partial(true).map(|f| f.len());
        let found = if any { job.find_any(cancels) } else { job.find_first(cancels) };
        assert!(matches!(found, Err(Error::Cancelled { .. })), "{any}: {found:?}");
    }
}

thread_local! {
    /// Dropped when its thread ends.
    static ENDS: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
}

/// One function gives the answer and its thread ends; then the other one, which runs already, fails.
#[test]
fn an_answer_is_not_lost_to_an_error_that_comes_after_it() {
    for any in [true, false] {
        let (_dir, paths) = make(&roots()[0], &[10; 2]);
        let (begins, begun) = channel::<()>();
        let (ends, ended) = channel::<()>();
        let (begins, begun) = (Mutex::new(begins), Mutex::new(begun));
        let (ends, ended) = (Mutex::new(Some(ends)), Mutex::new(ended));
        let function = |f: &ioloom::File<'_>| {
            if f.index() == 0 {
                begun.lock().unwrap().recv_timeout(NEVER).unwrap();
                ENDS.set(ends.lock().unwrap().take());
                return Ok(7);
            }
            begins.lock().unwrap().send(()).unwrap();
            let ended = ended.lock().unwrap().recv_timeout(NEVER);
            assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
            Err("too late")
        };
        let job = ioloom::list(&paths).pin(plan("read/threads:n=2")).try_map(function);
        let found = match any {
            true => job.find_any(|found| *found == 7).unwrap(),
            false => job.take_results(1).unwrap().value.pop(),
        };
        assert_eq!(found, Some(7));
    }
}

#[test]
fn the_last_item_of_an_iterator_keeps_the_reason() {
    let (_dir, paths) = make(&roots()[0], &[10]);
    let token = Cancel::new();
    let job = ioloom::files(std::iter::repeat(paths[0].clone())).cancel(&token).map(|f| f.len());
    let mut seen = 0;
    let last = job.into_iter().find_map(|item| {
        seen += 1;
        if seen == 3 {
            token.cancel();
        }
        item.err()
    });
    let last: FileError = last.unwrap();
    assert!(last.to_string().starts_with("the run ended early: "), "{last}");
    let source = last.source().and_then(|source| source.downcast_ref::<Error>());
    assert!(matches!(source, Some(Error::Cancelled { .. })), "{last:?}");
    assert!(matches!(&last.cause, Cause::Run(error) if matches!(**error, Error::Cancelled { .. })));
}

#[test]
fn a_cancelled_walk_is_no_complete_list() {
    let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
    (0..50).for_each(|i| fs::write(dir.path().join(i.to_string()), "x").unwrap());
    let token = Cancel::new();
    let list = ioloom::tree(dir.path()).cancel(&token).walk();
    assert!(!list.cancelled && list.files.len() == 50);
    token.cancel();
    assert!(ioloom::tree(dir.path()).cancel(&token).walk().cancelled);
    let mut files = ioloom::tree(dir.path()).sorted(true).cancel(&token);
    assert!(files.known_paths().is_none());
    assert!(matches!(files.map(|f| f.len()).run(), Err(Error::Cancelled { .. })));
}

/// The list is a part, whatever the token of the run that uses it.
#[test]
fn a_walk_that_an_earlier_token_cancelled_is_no_complete_list() {
    let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
    (0..50).for_each(|i| fs::write(dir.path().join(i.to_string()), "x").unwrap());
    let cut = || {
        let first = Cancel::new();
        first.cancel();
        let mut files = ioloom::tree(dir.path()).sorted(true).cancel(&first);
        assert!(files.known_paths().is_none());
        let mut files = files.cancel(&Cancel::new());
        assert!(files.known_paths().is_none());
        files
    };
    assert!(matches!(cut().map(|f| f.len()).run(), Err(Error::Cancelled { .. })));
    let scope = cut().map(|f| f.len()).scope(|results| results.count());
    assert!(matches!(scope, Err(Error::Cancelled { .. })), "{scope:?}");
    assert!(cut().map(|f| f.len()).into_iter().any(|item| item.is_err()));
    assert!(cut().walk().cancelled);
}

#[test]
fn the_walk_ends_with_a_run_that_panics() {
    guarded("the walk of a run that panics".to_owned(), || {
        let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
        for i in 0..2000 {
            fs::create_dir(dir.path().join(format!("d{i}"))).unwrap();
        }
        fs::write(dir.path().join("one"), "x").unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let called = Arc::new(AtomicUsize::new(0));
        let (seen, late) = (ended.clone(), called.clone());
        let filter = move |entry: &ioloom::TreeEntry<'_>| {
            if seen.load(Ordering::SeqCst) {
                late.fetch_add(1, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_millis(1));
            !entry.file_name().is_empty()
        };
        let files = ioloom::tree(dir.path()).filter_entry(filter);
        let run = std::panic::AssertUnwindSafe(|| files.map(|_| panic!("planned")).run().map(drop));
        assert!(std::panic::catch_unwind(run).is_err());
        ended.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Each thread of the walk may be in one call.
        let late = called.load(Ordering::SeqCst);
        assert!(late <= 64, "{late} calls of the filter after the run");
    });
}
