//! Leases of shards, also lost ones.

use crate::setup::{
    GUARD, SHORT_LEASE_OVER, SHORT_LEASE_TIME, commit, finish, join, patient_terms, publish, queue,
    short_terms, take, terms,
};
use ioloom_queue::{Committed, QueueError};
use ioloom_testbed::Nats;
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn each_shard_is_handed_out_once_while_nothing_fails() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("once");
    assert_eq!(queue(&url).submit(&terms(5, 3), false).unwrap().leases, 5);
    assert_eq!(queue(&url).submit(&terms(5, 3), false).unwrap().leases, 0);
    let (mut a, mut b) = (join(&url, "a"), join(&url, "b"));
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.extend([take(&mut a), take(&mut b)]);
        assert_eq!(commit(&mut a), Committed::Counted);
        assert_eq!(commit(&mut b), Committed::Counted);
    }
    seen.push(take(&mut b));
    assert_eq!(commit(&mut b), Committed::Counted);
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4, 5]);
    assert_eq!((finish(&mut a), finish(&mut b)), ((5, 0), (5, 0)));
    a.end();
    b.end();
    let status = queue(&url).status().unwrap();
    assert!(status.is_finished() && status.submitted);
    assert_eq!(status.work.as_deref(), Some("count"));
    let shards: Vec<u64> = status.workers.iter().map(|worker| worker.shards).collect();
    assert_eq!(shards.iter().sum::<u64>(), 5);
    assert!(status.workers.iter().all(|worker| worker.ended));
    queue(&url).remove().unwrap();
    assert!(matches!(queue(&url).status(), Err(QueueError::Missing { .. })));
}

#[test]
fn a_queue_of_many_shards_leases_ranges_and_splits_those_of_a_lost_worker() {
    let Some(server) = Nats::start_without_sync() else { return };
    let url = server.queue("many");
    // A lease is a range of three shards.
    assert_eq!(queue(&url).submit(&short_terms(30_000, 3), false).unwrap().leases, 10_000);
    // A shard that fails is queued again alone.
    let mut fails = join(&url, "fails");
    for last in [false, false, true] {
        let shard = take(&mut fails);
        match last {
            false => assert_eq!(commit(&mut fails), Committed::Counted),
            true => assert!(!fails.fail("no such file").unwrap(), "shard {shard} is parked"),
        }
    }
    fails.give_back().unwrap();
    let mut lost = join(&url, "lost");
    let first = take(&mut lost);
    assert_eq!(queue(&url).status().unwrap().counts.queued, 10_000);
    assert_eq!(commit(&mut lost), Committed::Counted);
    assert_eq!(take(&mut lost), first + 1);
    drop(lost);
    std::thread::sleep(SHORT_LEASE_OVER);
    let mut other = join(&url, "other");
    let mut seen = Vec::new();
    // The lease that was lost comes before those that were never begun.
    for _ in 0..4 {
        seen.push(take(&mut other));
        assert_eq!(commit(&mut other), Committed::Counted);
    }
    assert!(!seen.contains(&first), "a finished shard came again: {seen:?}");
    let status = queue(&url).status().unwrap();
    // The rest of the lost range was queued again, one by one.
    assert_eq!(status.counts.done, 7);
    assert!(status.counts.queued >= 10_000, "{:?}", status.counts);
}

#[test]
fn shards_with_failed_files_are_counted_once_whatever_becomes_of_their_workers() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("errors");
    queue(&url).submit(&patient_terms(2, 9), false).unwrap();
    let (mut slow, mut fast) = (join(&url, "slow"), join(&url, "fast"));
    let first = take(&mut slow);
    let other = take(&mut fast);
    assert_eq!(commit(&mut fast), Committed::Counted);
    // The lease of the first worker runs out while it cannot extend it: both run the shard.
    drop(slow);
    assert_eq!(take(&mut fast), first);
    assert_ne!(first, other);
    assert_eq!(fast.commit(&json!({}), 3).unwrap(), Committed::Counted);
    drop(fast);
    let status = queue(&url).status().unwrap();
    assert_eq!((status.counts.with_errors, status.is_finished()), (1, true));
}

#[test]
fn messages_that_are_no_leases_are_dropped() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("noise");
    queue(&url).submit(&terms(1, 9), false).unwrap();
    for payload in ["", "0-1", "1-2", "7", "rm -rf /"] {
        publish(&server, "ioloom.noise.1.work", payload);
    }
    publish(&server, "ioloom.noise.1.worker.x", "{");
    let mut worker = join(&url, "host");
    assert_eq!(take(&mut worker), 1);
    assert_eq!(commit(&mut worker), Committed::Counted);
    assert_eq!(finish(&mut worker), (1, 0));
    assert_eq!(queue(&url).status().unwrap().counts.queued, 0);
}

/// Waits until the queue has this many shards done.
fn wait_until_done(url: &str, shards: u64) {
    let start = Instant::now();
    while queue(url).status().unwrap().counts.done < shards {
        assert!(start.elapsed() < GUARD, "the commit does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Goal: a lease of which nothing is left does not come again. Method: a range is lost and split; after
/// another lease time, nothing more may be queued than its two shards.
#[test]
fn a_range_that_was_split_does_not_come_again() {
    let Some(server) = Nats::start_without_sync() else { return };
    let url = server.queue("split");
    assert_eq!(queue(&url).submit(&short_terms(30_000, 3), false).unwrap().leases, 10_000);
    let mut lost = join(&url, "lost");
    take(&mut lost);
    assert_eq!(commit(&mut lost), Committed::Counted);
    drop(lost);
    std::thread::sleep(SHORT_LEASE_OVER);
    let queued = |url: &str| queue(url).status().unwrap().counts.queued;
    let mut other = join(&url, "other");
    take(&mut other);
    other.give_back().unwrap();
    // Two shards of the split range and three that were given back, each alone; the ranges are acknowledged.
    let after = queued(&url);
    assert_eq!(after, 10_000 - 2 + 2 + 3);
    std::thread::sleep(SHORT_LEASE_TIME);
    let mut third = join(&url, "third");
    take(&mut third);
    third.give_back().unwrap();
    // One more range was given back as three shards.
    assert_eq!(queued(&url), after - 1 + 3);
}

/// Goal: a worker that is killed while it runs a shard leaves no lease of the shard before.
#[test]
fn the_lease_of_a_committed_shard_ends_while_the_next_one_runs() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("next");
    queue(&url).submit(&short_terms(2, 3), false).unwrap();
    let mut killed = join(&url, "killed");
    take(&mut killed);
    killed.begin_commit(&json!({"files": 1}), 0, |_| {}).unwrap();
    take(&mut killed);
    wait_until_done(&url, 1);
    let start = Instant::now();
    while queue(&url).status().unwrap().counts.queued > 1 {
        assert!(start.elapsed() < GUARD, "the lease is not acknowledged");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(killed);
    let mut other = join(&url, "other");
    take(&mut other);
    assert_eq!(commit(&mut other), Committed::Counted);
    assert_eq!(finish(&mut other), (2, 0));
    let (report, error) = other.end();
    assert!(error.is_none() && report.shards == 1);
    assert_eq!(queue(&url).status().unwrap().counts.queued, 0);
}
