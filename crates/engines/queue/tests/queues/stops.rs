//! Workers that are stopped.

use crate::setup::{GUARD, commit, finish, join, join_until, queue, take, terms};
use ioloom_queue::{Committed, Next, QueueError};
use ioloom_testbed::Nats;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_worker_that_is_to_end_waits_for_no_server() {
    let Some(mut server) = Nats::start("") else { return };
    let url = server.queue("end");
    queue(&url).submit(&terms(2, 1), false).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut worker = join_until(&url, &stop);
    take(&mut worker);
    server.kill();
    let flag = stop.clone();
    let raise = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        flag.store(true, Ordering::SeqCst);
    });
    let start = Instant::now();
    let committed = worker.commit(&json!({}), 0);
    assert!(matches!(committed, Err(QueueError::Server { .. })), "{committed:?}");
    assert!(matches!(worker.next_shard(), Ok(Next::Stopped)));
    // The lease was dropped.
    worker.give_back().unwrap();
    worker.end();
    // Otherwise it waits for two minutes.
    assert!(start.elapsed() < GUARD, "{:?}", start.elapsed());
    raise.join().unwrap();
}

#[test]
fn a_flag_that_is_raised_between_shards_loses_none() {
    let Some(server) = Nats::start("") else { return };
    let url = server.queue("flag");
    queue(&url).submit(&terms(3, 1), false).unwrap();
    for delay_ms in [0, 1, 3, 10] {
        let stop = Arc::new(AtomicBool::new(false));
        let mut worker = join_until(&url, &stop);
        let raise = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(delay_ms));
            stop.store(true, Ordering::SeqCst);
        });
        let next = worker.next_shard().unwrap();
        assert!(matches!(next, Next::Shard(_) | Next::Stopped), "{next:?}");
        raise.join().unwrap();
        worker.give_back().unwrap();
    }
    // With one try for each shard, one that was lost would be parked.
    let mut worker = join(&url, "host");
    for _ in 0..3 {
        take(&mut worker);
        assert_eq!(commit(&mut worker), Committed::Counted);
    }
    assert_eq!(finish(&mut worker), (3, 0));
}
