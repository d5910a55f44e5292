//! Queues on a real server: who gets which shard, and which result counts.
#![cfg(feature = "nats")]

use ioloom_queue::{Address, Committed, Next, Queue, QueueError, Terms, Worker, WorkerReport};
use ioloom_testbed::Nats;
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longer than a short lease, even if the server pauses for seconds before it notices its end: for what
/// must happen then.
const SHORT_LEASE_OVER: Duration = Duration::from_secs(5);
/// Longer than a short lease on a machine without load: for what must not happen then. On a busy machine,
/// the test can look too early and passes.
const SHORT_LEASE_TIME: Duration = Duration::from_millis(1200);
/// A hang is a failure after this time.
const GUARD: Duration = Duration::from_secs(60);

/// Terms with leases that no pause of the machine uses up.
fn terms(shards: u64, tries: u32) -> Terms {
    let plan = "a-plan".to_owned();
    Terms { plan, shards, files: shards, lease_ms: 60_000, tries, created_ns: 1 }
}

/// Terms for tests in which leases are lost.
fn short_terms(shards: u64, tries: u32) -> Terms {
    Terms { lease_ms: 1000, ..terms(shards, tries) }
}

/// Terms for a test in which one lease is lost and the others must not be.
fn patient_terms(shards: u64, tries: u32) -> Terms {
    Terms { lease_ms: 5000, ..terms(shards, tries) }
}

fn queue(url: &str) -> Queue {
    Queue::connect(&url.parse::<Address>().unwrap()).unwrap()
}

fn join(url: &str, host: &str) -> Worker {
    let report = WorkerReport { host: host.to_owned(), pid: 1, ..WorkerReport::default() };
    queue(url).join("a-plan", "count", report, Arc::default()).unwrap()
}

/// Joins with a flag that ends waits.
fn join_until(url: &str, stop: &Arc<AtomicBool>) -> Worker {
    queue(url).join("a-plan", "count", WorkerReport::default(), stop.clone()).unwrap()
}

/// Publishes a message without the client.
fn publish(server: &Nats, subject: &str, payload: &str) {
    exchange(server, &format!("PUB {subject} {}\r\n{payload}\r\nPING\r\n", payload.len()), "PONG");
}

/// Publishes a message and waits until `JetStream` has stored or done it.
fn publish_and_wait(server: &Nats, subject: &str, payload: &str) {
    let words = format!(
        "SUB _INBOX.test 1\r\nPUB {subject} _INBOX.test {}\r\n{payload}\r\n",
        payload.len()
    );
    exchange(server, &words, "MSG _INBOX.test");
}

/// Sends words of the protocol and waits for an answer.
fn exchange(server: &Nats, words: &str, answer: &str) {
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
fn take(worker: &mut Worker) -> u64 {
    match worker.next_shard().unwrap() {
        Next::Shard(shard) => shard,
        other => panic!("no shard: {other:?}"),
    }
}

fn finish(worker: &mut Worker) -> (u64, u64) {
    match worker.next_shard().unwrap() {
        Next::Finished(counts) => (counts.done, counts.parked),
        other => panic!("not finished: {other:?}"),
    }
}

fn commit(worker: &mut Worker) -> Committed {
    worker.commit(&json!({"files": 1}), 0).unwrap()
}

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

/// A link between a worker and the server that a test can cut.
struct Cut {
    port: u16,
    down: Arc<AtomicBool>,
}

impl Cut {
    fn before(server: &Nats) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let down = Arc::new(AtomicBool::new(false));
        let (to, is_down) = (server.port(), down.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(there) = TcpStream::connect(("127.0.0.1", to)) else { return };
                for (from, to) in [(&client, &there), (&there, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let down = is_down.clone();
                    std::thread::spawn(move || forward(from, to, &down));
                }
            }
        });
        Self { port, down }
    }

    fn queue(&self, name: &str) -> String {
        format!("nats://127.0.0.1:{}/{name}", self.port)
    }

    fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }
}

/// Forwards bytes, and holds them while the link is down.
fn forward(mut from: TcpStream, mut to: TcpStream, down: &AtomicBool) {
    let mut buffer = [0; 4096];
    loop {
        let count = match io::Read::read(&mut from, &mut buffer) {
            Ok(count) if count > 0 => count,
            _ => break,
        };
        while down.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if io::Write::write_all(&mut to, &buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_worker_that_was_cut_off_is_refused_if_another_one_was_first() {
    let Some(server) = Nats::start("") else { return };
    let (cut, name) = (Cut::before(&server), "cut");
    queue(&server.queue(name)).submit(&short_terms(1, 9), false).unwrap();
    let mut away = join(&cut.queue(name), "away");
    assert_eq!(take(&mut away), 1);
    cut.set_down(true);
    let mut here = join(&server.queue(name), "here");
    assert_eq!(take(&mut here), 1);
    assert_eq!(commit(&mut here), Committed::Counted);
    cut.set_down(false);
    assert_eq!(commit(&mut away), Committed::Late);
    assert_eq!((finish(&mut here), finish(&mut away)), ((1, 0), (1, 0)));
}

#[test]
fn a_worker_that_was_cut_off_counts_if_it_is_first() {
    let Some(server) = Nats::start("") else { return };
    let (cut, name) = (Cut::before(&server), "cut");
    queue(&server.queue(name)).submit(&short_terms(1, 9), false).unwrap();
    let mut away = join(&cut.queue(name), "away");
    assert_eq!(take(&mut away), 1);
    cut.set_down(true);
    let mut here = join(&server.queue(name), "here");
    assert_eq!(take(&mut here), 1);
    cut.set_down(false);
    assert_eq!(commit(&mut away), Committed::Counted);
    assert_eq!(commit(&mut here), Committed::Late);
    assert_eq!((finish(&mut here), finish(&mut away)), ((1, 0), (1, 0)));
}

#[test]
fn a_commit_whose_answer_is_lost_counts_once() {
    let Some(server) = Nats::start("") else { return };
    let (cut, name) = (Cut::before(&server), "answer");
    queue(&server.queue(name)).submit(&short_terms(1, 9), false).unwrap();
    let mut away = join(&cut.queue(name), "away");
    assert_eq!(take(&mut away), 1);
    // The message is stored and its acknowledgement held until the request has timed out.
    let committing = std::thread::spawn(move || {
        let committed = commit(&mut away);
        (committed, away)
    });
    std::thread::sleep(Duration::from_millis(1));
    cut.set_down(true);
    std::thread::sleep(Duration::from_secs(6));
    cut.set_down(false);
    let (committed, mut away) = committing.join().unwrap();
    assert_eq!(committed, Committed::Counted);
    assert_eq!(finish(&mut away), (1, 0));
}

#[test]
fn a_server_that_is_killed_and_started_again_loses_nothing() {
    let Some(mut server) = Nats::start("") else { return };
    if !server.survives_kills() {
        return;
    }
    let url = server.queue("killed");
    queue(&url).submit(&short_terms(6, 9), false).unwrap();
    let mut worker = join(&url, "host");
    let (mut counted, mut late) = (0, 0);
    for round in 0.. {
        // A lease whose acknowledgement was lost comes again, and its shard is then late.
        let next = worker.next_shard().unwrap();
        let Next::Shard(_) = next else { break };
        if round == 0 || round == 3 {
            server.kill();
            server.start_again();
        }
        match commit(&mut worker) {
            Committed::Counted => counted += 1,
            Committed::Late => late += 1,
        }
    }
    assert_eq!((finish(&mut worker), counted), ((6, 0), 6));
    assert!(late <= 6, "{late} late");
}

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

/// Begins to commit the current shard.
fn begin(worker: &mut Worker) {
    worker.begin_commit(&json!({}), 0, |report| report.files += 1).unwrap();
}

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
