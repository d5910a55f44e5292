//! System calls that fail. Each call that passes the seam fails once, under every model: no
//! acknowledged order is lost, nothing panics and nothing hangs; what cannot go on ends with an error.
//!
//! Alone in its process, because the rules hold for all of it. Calls that an engine makes by itself
//! are those of `ioloom serve` under a tracer, in the tests of the program.

use crate::bench::{config, is_possible};
use ioloom_serve::{Durability, Ended, Model, ServeError, Server};
use ioloom_sys::fault;
use ioloom_testbed::alone;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;

/// Every operation that a server and its store pass through the seam. The calls of a waker are none of
/// them: the kernel has no error for a counter that is not full, and who waits must be told.
const OPERATIONS: &[&str] = &[
    "accept",
    "bind",
    "commit",
    "epoll_create",
    "epoll_ctl",
    "epoll_wait",
    "eventfd",
    "getsockname",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioctl",
    "listen",
    "place-store",
    "poll",
    "recv",
    "select",
    "send",
    "set-stock-hashes",
    "setsockopt",
    "shutdown",
    "socket",
    "stat",
    "stock-hashes",
    "uring_accept",
    "uring_recv",
    "uring_send",
    "write-stock",
];
/// Input/output error, no memory, no descriptor.
const ERRORS: [i32; 3] = [5, 12, 24];
/// What takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(20);
const ORDERS: usize = 5;

fn order(number: usize) -> String {
    format!("{number} {} 1 {number}\n", if number == 3 { "SELL" } else { "BUY" })
}

/// What stock 1 has left after so many orders.
fn left_after(orders: usize) -> i64 {
    let change = |number| if number == 3 { 3 } else { -(number as i64) };
    1000 + (1..=orders).map(change).sum::<i64>()
}

type Heard = BTreeMap<usize, String>;

/// Gives the orders that were not answered yet, one after the other, until the server closes.
fn talk(address: SocketAddr, heard: &mut Heard, case: &str) -> Option<()> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut lines = BufReader::new(stream);
    let mut ask = |text: &str| {
        lines.get_mut().write_all(text.as_bytes()).ok()?;
        let mut line = String::new();
        match lines.read_line(&mut line) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => panic!("{case}: no answer to {text}"),
            read => read.ok().filter(|_| line.ends_with('\n'))?,
        };
        Some(line)
    };
    ask("HELLO stock/2 client=a\n").filter(|line| line.starts_with("HELLO"))?;
    for number in 1..=ORDERS {
        if let Entry::Vacant(answer) = heard.entry(number) {
            answer.insert(ask(&order(number)).filter(|line| line.contains(" OK "))?);
        }
    }
    Some(())
}

/// Runs a server until its client has all its answers, or it ends; what was heard, and how it ended.
fn serve(dir: &TempDir, model: Model, case: &str) -> (Heard, Result<Ended, ServeError>) {
    let mut config = config(dir, model);
    (config.durability, config.listen_line) = (Durability::Os, None);
    let mut heard = Heard::new();
    let server = match Server::start(&config) {
        Ok(server) => server,
        Err(error) => return (heard, Err(error)),
    };
    let (address, stop) = (server.addresses()[0], server.stop_handle());
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || tell.send(server.run()));
    for _ in 0..4 {
        if talk(address, &mut heard, case).is_some() {
            break;
        }
    }
    stop.stop();
    let ended = told.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{case}: the end: {e}"));
    thread.join().unwrap_or_else(|_| panic!("{case}: a panic")).unwrap();
    (heard, ended)
}

/// What is there after a start without failures: every order that was heard of, and nothing else.
fn look(dir: &TempDir, model: Model, heard: &Heard, case: &str) {
    let (again, ended) = serve(dir, model, case);
    assert_eq!(again.len(), ORDERS, "{case}: {ended:?}");
    for (number, answer) in heard {
        assert_eq!(again[number], *answer, "{case}: order {number} was acknowledged");
    }
    for (number, answer) in &again {
        let expected = format!("{number} OK {} {number}\n", left_after(*number));
        assert_eq!(*answer, expected, "{case}");
    }
    let ended = ended.unwrap_or_else(|e| panic!("{case}: {e}"));
    assert_eq!(ended.seq, ORDERS as u64, "{case}: an order counted twice");
    let stocks = std::fs::read_to_string(dir.path().join("stock.txt")).unwrap();
    assert!(stocks.starts_with(&format!("1 {} 10\n", left_after(ORDERS))), "{case}: {stocks}");
}

fn fail_once(model: Model, operation: &str, n: u64, errno: i32) {
    let case = format!("{model}, {operation} {n} fails with {errno}");
    let dir = TempDir::new().unwrap();
    fault::set(&format!("{operation}:{n}:{errno}"));
    let (heard, ended) = serve(&dir, model, &case);
    fault::set("");
    if let Err(error) = &ended {
        let text = error.to_string();
        assert!(text.lines().count() == 1 && text.len() > 20, "{case}: {text}");
    }
    if operation == "commit" {
        assert!(matches!(ended, Err(ServeError::Store(_))), "{case}: a failed commit stops it");
        assert!((heard.len() as u64) < n, "{case}: {heard:?} was acknowledged");
    }
    look(&dir, model, &heard, &case);
}

#[test]
fn each_call_fails_once_and_no_acknowledged_order_is_lost() {
    if !alone("failing::each_call_fails_once_and_no_acknowledged_order_is_lost") {
        return;
    }
    let _beside = crate::bench::without_crowds();
    for model in Model::ALL.iter().copied().filter(|model| is_possible(*model)) {
        let dir = TempDir::new().unwrap();
        fault::set("");
        let (heard, ended) = serve(&dir, model, "undisturbed");
        assert!(heard.len() == ORDERS && ended.is_ok(), "{model}: {ended:?}");
        let calls: Vec<_> = OPERATIONS.iter().map(|op| (*op, fault::calls_of(op))).collect();
        let mut rounds = 0;
        for (operation, count) in calls {
            let mut places = vec![1, 2, count.div_ceil(2), count];
            places.sort_unstable();
            places.dedup();
            for n in places.into_iter().filter(|n| (1..=count).contains(n)) {
                fail_once(model, operation, n, ERRORS[rounds % ERRORS.len()]);
                rounds += 1;
            }
        }
        println!("{model}: {rounds} calls failed");
    }
}
