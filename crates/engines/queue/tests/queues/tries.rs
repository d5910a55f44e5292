//! Shards that fail or end their workers: how often they are tried, and when they are parked.

use crate::setup::{
    SHORT_LEASE_TIME, commit, finish, join, publish, queue, short_terms, take, terms,
};
use ioloom_queue::Committed;
use ioloom_testbed::Nats;
use serde_json::json;

#[test]
fn a_shard_that_ends_its_workers_is_parked_and_can_be_tried_again() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("poison");
    queue(&url).submit(&short_terms(1, 2), false).unwrap();
    for _ in 0..2 {
        let mut doomed = join(&url, "doomed");
        assert_eq!(take(&mut doomed), 1);
        drop(doomed);
    }
    let mut last = join(&url, "last");
    assert_eq!(finish(&mut last), (0, 1));
    let status = queue(&url).status().unwrap();
    assert_eq!(status.parked[0].error, "its worker ended or lost its lease 2 times");
    assert_eq!(queue(&url).submit(&short_terms(1, 2), true).unwrap().unparked, 1);
    assert_eq!(take(&mut last), 1);
    assert_eq!(commit(&mut last), Committed::Counted);
    assert_eq!(finish(&mut last), (1, 0));
}

#[test]
fn a_shard_that_fails_is_tried_again_and_parked_with_its_error() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("fails");
    queue(&url).submit(&terms(1, 3), false).unwrap();
    let mut worker = join(&url, "host");
    let parked: Vec<bool> = (0..4)
        .map(|_| {
            assert_eq!(take(&mut worker), 1);
            worker.fail("not mounted").unwrap()
        })
        .collect();
    // The first failure does not count: the host may be the cause.
    assert_eq!(parked, [false, false, false, true]);
    assert_eq!(finish(&mut worker), (0, 1));
    let found = queue(&url).status().unwrap().parked;
    assert_eq!((&*found[0].error, found[0].tries, &*found[0].host), ("not mounted", 3, "host"));
}

#[test]
fn failures_of_a_shard_add_up_over_workers_that_end() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("poison");
    queue(&url).submit(&terms(1, 1), false).unwrap();
    let parked: Vec<bool> = (0..6)
        .map(|_| {
            let mut worker = join(&url, "host");
            assert_eq!(take(&mut worker), 1);
            worker.give_back().unwrap();
            assert_eq!(take(&mut worker), 1);
            let parked = worker.fail("poison").unwrap();
            worker.give_back().unwrap();
            parked
        })
        .collect();
    assert_eq!(parked, [false, false, false, false, false, true]);
    assert_eq!(finish(&mut join(&url, "host")), (0, 1));
    // It is tried as often again.
    assert_eq!(queue(&url).submit(&terms(1, 1), true).unwrap().unparked, 1);
    let mut worker = join(&url, "host");
    assert_eq!(take(&mut worker), 1);
    assert!(!worker.fail("poison").unwrap());
}

#[test]
fn a_shard_that_is_given_back_counts_no_try() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("back");
    queue(&url).submit(&terms(1, 1), false).unwrap();
    for _ in 0..3 {
        let mut worker = join(&url, "host");
        assert_eq!(take(&mut worker), 1);
        worker.give_back().unwrap();
    }
    let mut worker = join(&url, "host");
    assert_eq!(take(&mut worker), 1);
    assert_eq!(commit(&mut worker), Committed::Counted);
    assert_eq!(finish(&mut worker), (1, 0));
}

#[test]
fn a_shard_that_is_parked_and_done_counts_once() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("both");
    queue(&url).submit(&terms(2, 9), false).unwrap();
    let mut worker = join(&url, "host");
    let first = take(&mut worker);
    assert_eq!(commit(&mut worker), Committed::Counted);
    // What a worker leaves that was killed between the two.
    let parked = json!({"shard": first, "tries": 1, "error": "", "host": "", "parked_ns": 1});
    publish(&server, &format!("ioloom.both.1.parked.{first}"), &parked.to_string());
    let status = queue(&url).status().unwrap();
    assert!(!status.is_finished(), "{:?}", status.counts);
    let second = take(&mut worker);
    assert_ne!(first, second);
    assert_eq!(commit(&mut worker), Committed::Counted);
    assert_eq!(finish(&mut worker), (2, 0));
}

/// Goal: a shard that was parked because its workers ended is tried again by another worker, and not parked
/// by its old lease.
#[test]
fn a_parked_shard_leaves_no_lease() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("unpark");
    queue(&url).submit(&short_terms(1, 1), false).unwrap();
    drop({
        let mut doomed = join(&url, "doomed");
        take(&mut doomed);
        doomed
    });
    let mut parks = join(&url, "parks");
    assert_eq!(finish(&mut parks), (0, 1));
    parks.end();
    assert_eq!(queue(&url).status().unwrap().counts.queued, 0);
    assert_eq!(queue(&url).submit(&short_terms(1, 1), true).unwrap().unparked, 1);
    std::thread::sleep(SHORT_LEASE_TIME);
    let mut again = join(&url, "again");
    take(&mut again);
    assert_eq!(commit(&mut again), Committed::Counted);
    assert_eq!(finish(&mut again), (1, 0));
}
