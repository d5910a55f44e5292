//! Runs that are stopped, and functions that panic.

use crate::setup::{filled, read, small, store};
use ioloom_bucket::{Fault, First, Law, Target};
use ioloom_objects::{Kind, Options, objects};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn a_run_stops_when_it_is_told() {
    let law = Law { latency: (Duration::from_millis(3), 0.0), ..Law::default() };
    let (server, all) = filled(law, 300, |_| 100);
    let stop = Arc::new(AtomicBool::new(false));
    let seen = AtomicU64::new(0);
    let options = Options { stop: stop.clone(), window: Some(2), ..small() };
    let mapped = objects(&store(&server, "s3://bucket/dir/"), &options, |_| {
        if seen.fetch_add(1, Ordering::Relaxed) == 5 {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .unwrap();
    assert!(mapped.run.cancelled && mapped.errors.is_empty());
    assert!((6..all.len()).contains(&mapped.values.len()), "{}", mapped.values.len());
    assert!(server.counts().in_flight_max <= 4, "two requests, the listing and its description");
}

#[test]
fn a_run_ends_when_the_server_refuses_every_request() {
    let first = vec![First::new(Target::Read, Fault::Busy, u64::MAX)];
    let (server, _) = filled(Law { first, ..Law::default() }, 200, |_| 100);
    let options = Options { outage: Duration::ZERO, ..small() };
    let mapped = read(&store(&server, "s3://bucket/dir/"), &options);
    let last = mapped.errors.last().unwrap();
    assert_eq!((last.kind, mapped.run.cancelled), (Kind::Busy, false));
    assert!(last.reason.contains("refused every request"), "{last}");
    assert!((2..100).contains(&mapped.errors.len()), "{}", mapped.errors.len());
    assert!(server.counts().requests < 200, "{:?}", server.counts());
}

#[test]
fn after_a_stop_nothing_that_waits_is_processed() {
    let (server, _) = filled(Law::default(), 200, |_| 100);
    let stop = Arc::new(AtomicBool::new(false));
    let calls = AtomicU64::new(0);
    let options = Options { stop: stop.clone(), threads: 1, ..small() };
    let mapped = objects(&store(&server, "s3://bucket/dir/"), &options, |_| {
        calls.fetch_add(1, Ordering::Relaxed);
        // Until the others have arrived.
        while server.counts().served < 100 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
    })
    .unwrap();
    assert!(mapped.run.cancelled);
    assert_eq!(calls.into_inner(), 1);
}

#[test]
fn a_panic_of_the_function_is_passed_on() {
    let (server, _) = filled(Law::default(), 20, |_| 100);
    let store = store(&server, "s3://bucket/dir/");
    let run = || objects(&store, &small(), |_| assert!(server.counts().requests == 0, "as wanted"));
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"as wanted"));
}
