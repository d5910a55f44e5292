//! Queues whose names collide, on a real server.
#![cfg(feature = "nats")]

use ioloom_queue::{Address, Queue, QueueError, Terms};
use ioloom_testbed::Nats;

fn queue(url: &str) -> Queue {
    Queue::connect(&url.parse::<Address>().unwrap()).unwrap()
}

/// Deletes a stream without the queue.
fn delete_stream(server: &Nats, name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(format!("127.0.0.1:{}", server.port())).await.unwrap();
        async_nats::jetstream::new(client).delete_stream(name).await.unwrap();
    });
}

/// The stream for failed shards of one queue has the name of the stream of the terms of the other one.
#[test]
fn queues_whose_streams_have_the_same_name_are_refused_and_none_is_removed() {
    let Some(server) = Nats::start("") else { return };
    let [short, long] = ["scan", "scan-failed"].map(|name| server.queue(name));
    let (plan, shards) = ("a-plan".to_owned(), 2);
    let terms = Terms { plan, shards, files: shards, lease_ms: 1000, tries: 3, created_ns: 1 };
    let submit = |url: &str| queue(url).submit(&terms, false);
    let other = |refused: Result<_, QueueError>| {
        assert!(matches!(refused, Err(QueueError::OtherQueue { .. })), "{refused:?}");
    };
    submit(&long).unwrap();
    other(submit(&short).map(drop));
    assert!(matches!(queue(&short).status(), Err(QueueError::Missing { .. })), "it was begun");
    assert_eq!(queue(&long).status().unwrap().counts.queued, 2);
    queue(&long).remove().unwrap();
    submit(&short).unwrap();
    other(submit(&long).map(drop));
    // A version of the program that did not look at the subjects used the stream of the other queue.
    delete_stream(&server, "ioloom-scan-failed");
    submit(&long).unwrap();
    // A queue that is half created, as that of a submission which lost a race, can be removed.
    queue(&short).remove().unwrap();
    assert!(matches!(queue(&short).status(), Err(QueueError::Missing { .. })), "it is there");
    assert_eq!(queue(&long).status().unwrap().counts.queued, 2);
    queue(&long).remove().unwrap();
    submit(&short).unwrap();
    queue(&short).remove().unwrap();
}
