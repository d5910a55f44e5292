//! Commits in the background, while the next shard runs.

use crate::setup::{begin, commit, join, join_until, queue, short_terms, take, terms};
use ioloom_queue::{Next, QueueError, Worker};
use ioloom_testbed::Nats;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_shard_runs_while_the_one_before_is_committed() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("meanwhile");
    queue(&url).submit(&terms(300, 3), false).unwrap();
    let mut worker = join(&url, "a");
    let mut taken = Vec::new();
    loop {
        match worker.next_shard().unwrap() {
            Next::Shard(shard) => taken.push(shard),
            Next::Finished(counts) => {
                assert_eq!((counts.done, counts.parked, counts.queued), (300, 0, 0));
                break;
            }
            Next::Stopped => panic!("it was stopped"),
        }
        begin(&mut worker);
    }
    taken.sort_unstable();
    assert_eq!(taken, (1..=300).collect::<Vec<_>>());
    let report = worker.report();
    assert_eq!((report.shards, report.files, report.late), (300, 300, 0));
}

#[test]
fn what_is_begun_is_settled_before_a_worker_gives_back_and_ends() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("settled");
    queue(&url).submit(&terms(3, 3), false).unwrap();
    let mut worker = join(&url, "a");
    let first = take(&mut worker);
    begin(&mut worker);
    let second = take(&mut worker);
    worker.give_back().unwrap();
    assert_eq!(worker.report().shards, 1);
    worker.end();
    let mut other = join(&url, "b");
    let left = [take_and_commit(&mut other), take_and_commit(&mut other)];
    assert!(!left.contains(&first) && left.contains(&second), "{first} {second} {left:?}");
    assert!(matches!(other.next_shard().unwrap(), Next::Finished(counts) if counts.done == 3));
}

fn take_and_commit(worker: &mut Worker) -> u64 {
    let shard = take(worker);
    begin(worker);
    shard
}

#[test]
fn a_commit_that_fails_in_the_background_ends_the_worker() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("gone");
    queue(&url).submit(&terms(2, 3), false).unwrap();
    let mut worker = join(&url, "a");
    take(&mut worker);
    queue(&url).remove().unwrap();
    begin(&mut worker);
    let error = worker.settle().unwrap_err();
    assert!(matches!(error, QueueError::Removed { .. }), "{error}");
    assert_eq!(worker.report().files, 0);
}

#[test]
fn a_lease_whose_commit_failed_is_dropped() {
    let Some(mut server) = Nats::start("") else { return };
    let url = server.queue("dropped");
    queue(&url).submit(&short_terms(2, 3), false).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut worker = join_until(&url, &stop);
    take(&mut worker);
    server.kill();
    stop.store(true, Ordering::SeqCst);
    begin(&mut worker);
    assert!(worker.settle().is_err());
    // With a lease, this would fail without the server, and acknowledge it with one.
    worker.give_back().unwrap();
    server.start_again();
    worker.end();
    let mut other = join(&url, "b");
    let counts = loop {
        match other.next_shard().unwrap() {
            Next::Shard(_) => drop(commit(&mut other)),
            Next::Finished(counts) => break counts,
            Next::Stopped => panic!("it was stopped"),
        }
    };
    assert_eq!((counts.done, counts.parked), (2, 0));
}
