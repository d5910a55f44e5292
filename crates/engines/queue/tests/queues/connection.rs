//! Workers whose connection is cut, and servers that are killed.

use crate::setup::{commit, finish, join, queue, short_terms, take};
use ioloom_queue::{Committed, Next};
use ioloom_testbed::Nats;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
