//! Submissions that do not fit or were killed, and queues that were removed.

use crate::setup::{commit, finish, join, publish_and_wait, queue, take, terms};
use ioloom_queue::{Committed, QueueError, Terms, WorkerReport};
use ioloom_testbed::Nats;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn what_does_not_fit_is_refused() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("fit");
    assert!(matches!(queue(&url).terms(), Err(QueueError::Missing { .. })));
    queue(&url).submit(&terms(1, 1), false).unwrap();
    let mut other = terms(1, 1);
    other.plan = "another".to_owned();
    assert!(matches!(queue(&url).submit(&other, false), Err(QueueError::OtherPlan { .. })));
    let report = WorkerReport::default();
    let joined = queue(&url).join("another", "count", report.clone(), Arc::default());
    assert!(matches!(joined, Err(QueueError::OtherPlan { .. })));
    let mut first = join(&url, "a");
    let joined = queue(&url).join("a-plan", "sum", report, Arc::default());
    assert!(matches!(joined, Err(QueueError::OtherWork { .. })));
    queue(&url).remove().unwrap();
    let next = first.next_shard();
    assert!(
        matches!(next, Err(QueueError::Removed { .. } | QueueError::Missing { .. })),
        "{next:?}"
    );
}

#[test]
fn workers_of_a_removed_queue_cannot_reach_the_next_one_of_its_name() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("again");
    queue(&url).submit(&terms(2, 9), false).unwrap();
    let (mut holds, mut waits) = (join(&url, "holds"), join(&url, "waits"));
    let shards = [take(&mut holds), take(&mut waits)];
    assert_eq!(commit(&mut waits), Committed::Counted);
    queue(&url).remove().unwrap();
    let next = Terms { plan: "another".to_owned(), created_ns: 2, ..terms(2, 9) };
    assert_eq!(queue(&url).submit(&next, false).unwrap().leases, 2);
    let late = holds.commit(&json!({}), 1);
    assert!(matches!(late, Err(QueueError::Removed { .. })), "{shards:?}: {late:?}");
    let more = waits.next_shard();
    assert!(matches!(more, Err(QueueError::Removed { .. })), "{more:?}");
    let status = queue(&url).status().unwrap();
    assert_eq!((status.counts.done, status.counts.queued, status.work), (0, 2, None));
    let join = |plan| queue(&url).join(plan, "sum", WorkerReport::default(), Arc::default());
    assert!(matches!(join("a-plan"), Err(QueueError::OtherPlan { .. })));
    let mut worker = join("another").unwrap();
    for _ in 0..2 {
        take(&mut worker);
        assert_eq!(commit(&mut worker), Committed::Counted);
    }
    assert_eq!(finish(&mut worker), (2, 0));
}

#[test]
fn a_queue_whose_submission_was_killed_says_so_and_can_be_completed() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("half");
    queue(&url).submit(&terms(2, 9), false).unwrap();
    let join = || queue(&url).join("a-plan", "count", WorkerReport::default(), Arc::default());
    for missing in ["STREAM.DELETE.ioloom-half-work", "CONSUMER.DELETE.ioloom-half-work.workers-1"]
    {
        publish_and_wait(&server, &format!("$JS.API.{missing}"), "");
        let refused = join().map(drop);
        assert!(matches!(refused, Err(QueueError::Unfinished { .. })), "{refused:?}");
        if missing.starts_with("STREAM") {
            let refused = queue(&url).status();
            assert!(matches!(refused, Err(QueueError::Unfinished { .. })), "{refused:?}");
        }
        queue(&url).submit(&terms(2, 9), false).unwrap();
    }
    let mut worker = join().unwrap();
    for _ in 0..2 {
        take(&mut worker);
        assert_eq!(commit(&mut worker), Committed::Counted);
    }
    assert_eq!(finish(&mut worker), (2, 0));
}

/// Goal: a submission that was killed does not let its workers wait for ever.
#[test]
fn a_submission_that_does_not_go_on_ends_its_workers() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("stuck");
    queue(&url).submit(&terms(3, 9), false).unwrap();
    // As if it had been killed after the first shard, which was lost.
    publish_and_wait(&server, "ioloom.stuck.1.submitted", "1");
    publish_and_wait(&server, "$JS.API.STREAM.PURGE.ioloom-stuck-work", "");
    let status = queue(&url).status().unwrap();
    assert_eq!((status.submitted, status.submitted_through, status.counts.queued), (false, 1, 0));
    let mut worker = join(&url, "waits");
    worker.wait_for_submission(Duration::from_millis(200));
    let next = worker.next_shard();
    assert!(matches!(next, Err(QueueError::Unfinished { .. })), "{next:?}");
    let again = queue(&url).submit(&terms(3, 9), false).unwrap();
    assert_eq!((again.leases, again.shards), (2, 2));
}
