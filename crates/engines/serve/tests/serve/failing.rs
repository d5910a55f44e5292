//! Failing system calls. Each call that supports fault injection fails once, under every model: no
//! acknowledged order is lost, nothing panics and nothing hangs; fatal failures stop the server
//! with an error.
//!
//! These tests run in a separate process because faults are injected process-wide. System calls
//! made by storage engines are tested with `ioloom serve` under a tracer, in the tests of the
//! program.

use crate::bench::{config, dir_for, is_possible, is_store_possible};
use ioloom_serve::{Durability, Model, ServeError, ServeSummary, Server, StoreKind};
use ioloom_sys::fault;
use ioloom_testbed::alone;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;

/// Every operation for which a server and its store support fault injection. Waker calls are
/// excluded: the kernel has no error for a counter that is not full, and waiting threads must be
/// woken.
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
    "sync-stock-name",
    "uring_accept",
    "uring_recv",
    "uring_send",
    "write-stock",
];
/// Operations of a raw log.
const OPERATIONS_LOG: &[&str] = &[
    "commit",
    "fcntl",
    "fdatasync",
    "flock",
    "fstat",
    "fsync",
    "io_uring_enter",
    "io_uring_setup",
    "open",
    "place-store",
    "pread",
    "pwrite",
    "stat",
    "statx",
    "stock-hashes",
    "set-stock-hashes",
    "uring_fsync",
    "uring_write",
];
/// `EIO`, `ENOMEM`, `EMFILE`.
const ERRORS: [i32; 3] = [5, 12, 24];
/// Anything slower than this counts as a hang.
const TIMEOUT: Duration = Duration::from_secs(60);
const ORDERS: usize = 5;

fn order(number: usize) -> String {
    format!("{number} {} 1 {number}\n", if number == 3 { "SELL" } else { "BUY" })
}

/// Returns the remaining shares of stock 1 after this many orders.
fn left_after(orders: usize) -> i64 {
    let change = |number| if number == 3 { 3 } else { -(number as i64) };
    1000 + (1..=orders).map(change).sum::<i64>()
}

type Heard = BTreeMap<usize, String>;

/// Sends the unanswered orders one at a time until the server closes the connection.
fn talk(address: SocketAddr, received: &mut Heard, case: &str) -> Option<()> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
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
        if let Entry::Vacant(answer) = received.entry(number) {
            answer.insert(ask(&order(number)).filter(|line| line.contains(" OK "))?);
        }
    }
    Some(())
}

/// A model, store and durability.
type Shape = (Model, StoreKind, Durability);

/// Runs a server until its client has all answers or the server stops; returns the answers and how
/// the server stopped.
fn serve(dir: &TempDir, shape: Shape, case: &str) -> (Heard, Result<ServeSummary, ServeError>) {
    let (model, store, durability) = shape;
    let mut config = config(dir, model);
    (config.durability, config.store.kind, config.listen_line) = (durability, store, None);
    let mut received = Heard::new();
    let server = match Server::start(&config) {
        Ok(server) => server,
        Err(error) => return (received, Err(error)),
    };
    let (address, stop) = (server.addresses()[0], server.handle());
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || sender.send(server.run()));
    for _ in 0..4 {
        if talk(address, &mut received, case).is_some() {
            break;
        }
    }
    stop.stop();
    let ended = receiver
        .recv_timeout(TIMEOUT)
        .unwrap_or_else(|e| panic!("{case}: the server did not stop: {e}"));
    thread.join().unwrap_or_else(|_| panic!("{case}: the thread panicked")).unwrap();
    (received, ended)
}

/// Checks a restart without failures: all acknowledged orders are present, and no others.
fn check(dir: &TempDir, shape: Shape, received: &Heard, case: &str) {
    let (again, ended) = serve(dir, shape, case);
    assert_eq!(again.len(), ORDERS, "{case}: {ended:?}");
    for (number, answer) in received {
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

fn fail_once(shape: Shape, operation: &str, n: u64, errno: i32) {
    let (model, store, durability) = shape;
    let case = format!("{model}, {store}, {durability}: {operation} {n} fails with {errno}");
    let dir = dir_for(store);
    fault::set(&format!("{operation}:{n}:{errno}"));
    let (received, ended) = serve(&dir, shape, &case);
    fault::set("");
    if let Err(error) = &ended {
        let text = error.to_string();
        assert!(text.lines().count() == 1 && text.len() > 20, "{case}: {text}");
    }
    if operation == "commit" {
        assert!(
            matches!(ended, Err(ServeError::Store(_))),
            "{case}: a failed commit must stop the server"
        );
        assert!((received.len() as u64) < n, "{case}: {received:?} was acknowledged");
    }
    if ["fdatasync", "fsync", "pwrite", "uring_fsync", "uring_write"].contains(&operation) {
        assert!(
            matches!(ended, Err(ServeError::Store(_))),
            "{case}: the server continues: {ended:?}"
        );
    }
    check(&dir, shape, &received, &case);
}

/// Injects failures into each operation; returns the number of failed calls.
fn fail_each(shape: Shape, operations: &[&'static str], places: fn(u64) -> Vec<u64>) -> usize {
    let dir = dir_for(shape.1);
    fault::set("");
    let (received, ended) = serve(&dir, shape, "undisturbed");
    assert!(received.len() == ORDERS && ended.is_ok(), "{shape:?}: {ended:?}");
    let calls: Vec<_> = operations.iter().map(|op| (*op, fault::calls_of(op))).collect();
    let mut rounds = 0;
    for (operation, count) in calls {
        let mut places = places(count);
        places.sort_unstable();
        places.dedup();
        for n in places.into_iter().filter(|n| (1..=count).contains(n)) {
            fail_once(shape, operation, n, ERRORS[rounds % ERRORS.len()]);
            rounds += 1;
        }
    }
    rounds
}

#[test]
fn each_call_fails_once_and_no_acknowledged_order_is_lost() {
    if !alone("failing::each_call_fails_once_and_no_acknowledged_order_is_lost") {
        return;
    }
    let _beside = crate::bench::without_crowds();
    for model in Model::ALL.iter().copied().filter(|model| is_possible(*model)) {
        let shape = (model, StoreKind::Sqlite, Durability::Os);
        let rounds = fail_each(shape, OPERATIONS, |count| vec![1, 2, count.div_ceil(2), count]);
        println!("{model}: {rounds} calls failed");
    }
}

/// A raw log makes its system calls through the fault injection layer, so each of them can fail.
#[test]
fn each_call_of_a_raw_log_fails_once_and_no_acknowledged_order_is_lost() {
    if !alone("failing::each_call_of_a_raw_log_fails_once_and_no_acknowledged_order_is_lost") {
        return;
    }
    for (store, durability) in [
        (StoreKind::Log, Durability::Os),
        (StoreKind::Log, Durability::Group),
        (StoreKind::LogDsync, Durability::Group),
        (StoreKind::LogDirect, Durability::Os),
        (StoreKind::LogDirect, Durability::Each),
        (StoreKind::LogUring, Durability::Os),
        (StoreKind::LogUring, Durability::Each),
    ] {
        if !is_store_possible(store, &dir_for(store)) {
            continue;
        }
        let shape = (Model::Epoll, store, durability);
        let rounds = fail_each(shape, OPERATIONS_LOG, |count| (1..=count).collect());
        println!("{store} {durability}: {rounds} calls failed");
        assert!(rounds > 20, "{store} {durability}: fault injection is not reached");
    }
}
