//! Terms, queues and workers for the tests.

use ioloom_queue::{Address, Committed, Next, Queue, Terms, Worker, WorkerReport};
use ioloom_testbed::Nats;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Longer than a short lease, even if the server pauses for seconds before it notices its end: for what
/// must happen then.
pub(crate) const SHORT_LEASE_OVER: Duration = Duration::from_secs(5);
/// Longer than a short lease on a machine without load: for what must not happen then. On a busy machine,
/// the test can look too early and passes.
pub(crate) const SHORT_LEASE_TIME: Duration = Duration::from_millis(1200);
/// A hang is a failure after this time.
pub(crate) const GUARD: Duration = Duration::from_secs(60);

/// Terms with leases that no pause of the machine uses up.
pub(crate) fn terms(shards: u64, tries: u32) -> Terms {
    let plan = "a-plan".to_owned();
    Terms { plan, shards, files: shards, lease_ms: 60_000, tries, created_ns: 1 }
}

/// Terms for tests in which leases are lost.
pub(crate) fn short_terms(shards: u64, tries: u32) -> Terms {
    Terms { lease_ms: 1000, ..terms(shards, tries) }
}

/// Terms for a test in which one lease is lost and the others must not be.
pub(crate) fn patient_terms(shards: u64, tries: u32) -> Terms {
    Terms { lease_ms: 5000, ..terms(shards, tries) }
}

pub(crate) fn queue(url: &str) -> Queue {
    Queue::connect(&url.parse::<Address>().unwrap()).unwrap()
}

pub(crate) fn join(url: &str, host: &str) -> Worker {
    let report = WorkerReport { host: host.to_owned(), pid: 1, ..WorkerReport::default() };
    queue(url).join("a-plan", "count", report, Arc::default()).unwrap()
}

/// Joins with a flag that ends waits.
pub(crate) fn join_until(url: &str, stop: &Arc<AtomicBool>) -> Worker {
    queue(url).join("a-plan", "count", WorkerReport::default(), stop.clone()).unwrap()
}

/// Publishes a message without the client.
pub(crate) fn publish(server: &Nats, subject: &str, payload: &str) {
    exchange(server, &format!("PUB {subject} {}\r\n{payload}\r\nPING\r\n", payload.len()), "PONG");
}

/// Publishes a message and waits until `JetStream` has stored or done it.
pub(crate) fn publish_and_wait(server: &Nats, subject: &str, payload: &str) {
    let words = format!(
        "SUB _INBOX.test 1\r\nPUB {subject} _INBOX.test {}\r\n{payload}\r\n",
        payload.len()
    );
    exchange(server, &words, "MSG _INBOX.test");
}

/// Sends words of the protocol and waits for an answer.
pub(crate) fn exchange(server: &Nats, words: &str, answer: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    let words = format!("CONNECT {{\"verbose\":false}}\r\n{words}");
    stream.write_all(words.as_bytes()).unwrap();
    let mut said = String::new();
    while !said.contains(answer) {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{said}");
        said += &String::from_utf8_lossy(&buffer[..count]);
    }
}

/// Takes the next shard, which must exist.
pub(crate) fn take(worker: &mut Worker) -> u64 {
    match worker.next_shard().unwrap() {
        Next::Shard(shard) => shard,
        other => panic!("no shard: {other:?}"),
    }
}

pub(crate) fn finish(worker: &mut Worker) -> (u64, u64) {
    match worker.next_shard().unwrap() {
        Next::Finished(counts) => (counts.done, counts.parked),
        other => panic!("not finished: {other:?}"),
    }
}

pub(crate) fn commit(worker: &mut Worker) -> Committed {
    worker.commit(&json!({"files": 1}), 0).unwrap()
}

/// Begins to commit the current shard.
pub(crate) fn begin(worker: &mut Worker) {
    worker.begin_commit(&json!({}), 0, |report| report.files += 1).unwrap();
}
