//! Memory that functions reserve for themselves, and progress.

use crate::support::{NEVER, guarded, lacks, make, plan, roots};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PLANS: [&str; 5] = [
    "read/window:l=8,p=4",
    "read/threads:n=4",
    "nowait/window:l=16,p=4",
    "uring/window:l=16,p=4",
    "uring/roles:r=1,h=0,c=4,w=16",
];

/// Functions that need most of the budget each, at once and nested, finish and are bounded.
#[test]
fn reservations_are_bounded_and_do_not_deadlock() {
    let (_dir, paths) = make(&roots()[0], &[200_000; 60]);
    for text in PLANS {
        let paths = paths.clone();
        guarded(text.to_owned(), move || {
            let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
            let plan = plan(&format!("{text}/memory=8MiB"));
            let run = ioloom::list(&paths).pin(plan).map(|f| {
                let large = f.reserve(5 << 20);
                let sum = now.fetch_add(large.bytes(), Ordering::SeqCst) + large.bytes();
                most.fetch_max(sum, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
                let small = f.reserve(1 << 20);
                now.fetch_sub(5 << 20, Ordering::SeqCst);
                drop((large, small));
            });
            match run.run() {
                Err(error) => assert!(lacks(&plan, &error), "{text}: {error}"),
                Ok(run) => {
                    assert_eq!(run.value.len(), 60, "{text}");
                    assert_eq!(most.into_inner(), 5 << 20, "{text}: two do not fit at once");
                    let peak = run.measured.budget_peak_bytes;
                    assert!(((6 << 20)..=(14 << 20)).contains(&peak), "{text}: {peak}");
                }
            }
        });
    }
}

#[test]
fn a_reservation_above_the_budget_runs_alone() {
    let (_dir, paths) = make(&roots()[0], &[1000; 30]);
    for text in PLANS {
        let paths = paths.clone();
        guarded(text.to_owned(), move || {
            let inside = Mutex::new(());
            let plan = plan(&format!("{text}/memory=2MiB"));
            let run = ioloom::list(&paths).pin(plan).map(|f| {
                let _reserved = f.reserve(100 << 20);
                let alone = inside.try_lock();
                assert!(alone.is_ok(), "{text}");
                std::thread::sleep(Duration::from_micros(200));
            });
            match run.run() {
                Err(error) => assert!(lacks(&plan, &error), "{text}: {error}"),
                Ok(run) => assert_eq!(run.value.len(), 30, "{text}"),
            }
        });
    }
}

#[test]
fn progress_names_a_current_file_and_the_totals() {
    let (_dir, paths) = make(&roots()[0], &[100; 20]);
    let reports = Mutex::new(Vec::<ioloom::Progress>::new());
    let begun = Instant::now();
    ioloom::list(&paths)
        .threads(2)
        .bytes_total(2000)
        .progress(|progress| reports.lock().unwrap().push(progress))
        .map(|_| {
            let seen = || {
                let reports = reports.lock().unwrap();
                (reports.len(), reports.iter().any(|p| p.current.is_some()))
            };
            // A report names a file that has begun since the one before it.
            let before = seen().0;
            while seen() == (before, false) && begun.elapsed() < NEVER {
                std::thread::sleep(Duration::from_millis(5));
            }
        })
        .run()
        .unwrap();
    let reports = reports.into_inner().unwrap();
    assert!(reports.iter().all(|p| (p.files_total, p.bytes_total) == (Some(20), Some(2000))));
    assert!(reports.iter().any(|p| p.bytes > 0 && p.bytes == p.files * 100), "{reports:?}");
    let named: Vec<_> = reports.iter().filter_map(|p| p.current.as_ref()).collect();
    assert!(!named.is_empty() && named.iter().all(|path| paths.contains(path)), "{reports:?}");
}

#[test]
fn a_number_of_threads_is_refused_with_a_pinned_plan() {
    let job = ioloom::files(["Cargo.toml"]).pin(plan("read/threads:n=2")).threads(3);
    let refused = job.map(|f| f.len()).run();
    assert!(matches!(refused, Err(ioloom::Error::Refused(_))), "{refused:?}");
    let run = ioloom::files(["Cargo.toml"]).threads(700).map(|f| f.len()).run();
    assert_eq!(run.unwrap().value.len(), 1);
}
