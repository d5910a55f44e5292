//! Servers that send an answer byte by byte and never complete it.

use crate::liar::one_of;
use ioloom_load::{LoadError, LoadPlan, Mix, Multiclient, Protocol, multiclient};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two bytes.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of bytes before the server closes the connection.
const BYTES: u32 = 300;

fn trickle(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    for _ in 0..BYTES {
        if stream.write_all(b"1").is_err() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Answers lists until the connection is closed.
fn answer(stream: TcpStream, protocol: Protocol) {
    stream.set_nodelay(true).unwrap();
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while matches!(lines.read_line(&mut line), Ok(1..)) {
        let mut answer = match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            ["HELLO", ..] => "HELLO stock/2 window=128\n".to_owned(),
            [id, "SHOW"] => format!("{id} STOCKS 1 9\n4 100 9\n"),
            _ => "4 100 9\n".to_owned(),
        }
        .into_bytes();
        if protocol == Protocol::Padded {
            answer.resize(8192, 0);
        }
        if lines.get_mut().write_all(&answer).is_err() {
            return;
        }
        line.clear();
    }
}

/// Starts a server that answers on this number of connections; on later ones, no answer ends.
fn server(protocol: Protocol, answered: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.unwrap();
            std::thread::spawn(move || {
                if number < answered { answer(stream, protocol) } else { trickle(stream) }
            });
        }
    });
    address
}

fn plan(protocol: Protocol, answered: usize) -> LoadPlan {
    LoadPlan {
        protocol,
        mix: Mix { show: 1.0, buy: 0.0, sell: 0.0 },
        connections: 1,
        requests_max: 3,
        timeout: TIMEOUT,
        ..LoadPlan::new(server(protocol, answered))
    }
}

#[test]
fn the_timeout_limits_the_first_list_however_it_arrives() {
    for protocol in [Protocol::Padded, Protocol::Line, Protocol::V2, Protocol::Resp] {
        let ran = ioloom_load::run(&plan(protocol, 0), &AtomicBool::new(false), &mut |_| {});
        let error = ran.unwrap_err().to_string();
        assert!(error.contains("no answer within 1 s"), "{protocol:?}: {error}");
    }
}

#[test]
fn the_timeout_limits_the_last_list_however_it_arrives() {
    for protocol in [Protocol::Padded, Protocol::V2] {
        let reason = || {
            // The first list and the load.
            let plan = plan(protocol, 2);
            let ran = ioloom_load::run(&plan, &AtomicBool::new(false), &mut |_| {});
            ran.map(|(run, _)| run.conservation.reason)
        };
        one_of(
            "no timeout of the last list",
            reason,
            |reason| matches!(reason, Ok(Some(text)) if text.contains("no answer within 1 s")),
        )
        .unwrap();
    }
}

#[test]
fn the_timeout_limits_the_answer_to_an_original_client_however_it_arrives() {
    let multi = Multiclient { clients: 1, orders: 1, sleep: Duration::ZERO, pool: None };
    let outcomes = || {
        let plan = LoadPlan { conserve: false, ..plan(Protocol::V2, 1) };
        let run = multiclient(&plan, &multi, &AtomicBool::new(false), &mut |_| {});
        run.map(|run| run.outcomes)
    };
    one_of(
        "no timeout of the client",
        outcomes,
        |outcomes| matches!(outcomes, Ok(of) if (of.timed_out, of.lost) == (1, 0)),
    )
    .unwrap();
}

#[test]
fn a_stop_request_interrupts_the_first_list() {
    let plan = LoadPlan { timeout: Duration::from_secs(600), ..plan(Protocol::V2, 0) };
    let stop = AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(PAUSE * 3);
            stop.store(true, Ordering::SeqCst);
        });
        ioloom_load::run(&plan, &stop, &mut |_| {})
    });
    assert!(matches!(ran, Err(LoadError::Interrupted { .. })));
}
