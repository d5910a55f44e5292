//! Calls that a store makes by itself and that fail: strace makes the n-th one fail in the program
//! as it is.
//!
//! Engines do not pass the seam of `ioloom_sys::fault`, and a call that fails below them is what shows
//! whether an error of the disk reaches the clients. Whatever fails, the server refuses to start, stops
//! with an error, or goes on; no acknowledged order is lost. A sync that fails while it serves stops
//! it.

use crate::bench::{Client, Served, add_args, is_possible, place, serve_in};
use ioloom_testbed::Workspace;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Calls by which a store reads, writes and syncs its files.
const CALLS: [&str; 8] =
    ["openat", "pread64", "pwrite64", "write", "ftruncate", "fsync", "fdatasync", "mmap"];
/// Which of the calls of a thread fails: of syncs more, because the first ones are of the start.
const PLACES: [u32; 7] = [1, 2, 5, 3, 8, 13, 10];
/// How many of these for other calls.
const PLACES_OTHER: usize = 3;
/// Input/output error, and no space.
const ERRORS: [&str; 2] = ["EIO", "ENOSPC"];
/// Orders in all; the last eight, more than lie between two places, meet the failing call.
const ORDERS: usize = 12;

fn order(number: usize) -> String {
    format!("{number} BUY 1 {number}")
}

/// Whether a commit of a store is safe when this call returns.
fn syncs(store: &str, call: &str) -> bool {
    call.contains("sync") || (store.starts_with("log-d") && call == "pwrite64")
}

/// Whether strace may trace here.
fn can_trace() -> bool {
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=EIO", "true"]);
    let can = command.output().is_ok_and(|output| output.status.success());
    if !can {
        println!("skipped: strace is missing, or may not trace");
    }
    can
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The store of a server in a place, after some orders; the answers to them.
fn begin(place: &Workspace, store: &str) -> Vec<String> {
    let server = Served::in_dir(place.path(), &["--store", store]);
    talk(&server, 1, 4)
}

/// Gives orders until one is not answered.
fn talk(server: &Served, from: usize, to: usize) -> Vec<String> {
    let Some(mut client) = Client::new(&server.address, "a") else { return Vec::new() };
    (from..=to).map_while(|number| client.ask(&order(number))).collect()
}

struct Case<'a> {
    store: &'a str,
    call: &'a str,
    n: u32,
    error: &'a str,
}

/// Runs a server in which a call fails; whether it was a sync that failed while it served.
fn fails(case: &Case<'_>) -> bool {
    let place = place();
    let Case { store, call, n, error } = *case;
    let name = format!("{store}: {call} {n} fails with {error}");
    let mut heard = begin(&place, store);
    let log = place.at("calls");
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-qq", "-o"]).arg(&log).args(["-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={call}:error={error}:when={n}")]);
    let beside = ["stock.txt.store", "stock.txt.store-wal"].map(|name| place.at(name));
    let of_store = beside.iter().filter(|path| path.is_file()).cloned();
    let below = place.at("stock.txt.store");
    let below = if below.is_dir() { files(&below) } else { Vec::new() };
    for path in of_store.chain(below) {
        command.arg("-P").arg(path);
    }
    command.arg(env!("CARGO_BIN_EXE_ioloom"));
    add_args(&mut command, place.path(), &["--store", store]);
    let mut stopped_by_sync = false;
    match Served::try_start(&mut command) {
        Err(said) => assert!(said.contains("store"), "{name}: {said}"),
        Ok(mut server) => {
            let before = injected(&log);
            heard.extend(talk(&server, 5, ORDERS));
            let while_serving = before == 0 && injected(&log) > 0;
            server.signal("-TERM");
            let (status, said) = server.ended();
            assert!(matches!(status.code(), Some(0 | 1)), "{name}: {status} {said}");
            if syncs(store, call) && while_serving {
                let told = said.contains("the server stopped");
                assert!(status.code() == Some(1) && told, "{name}: {status} {said}");
                assert!(heard.len() < ORDERS, "{name}: every order was acknowledged");
                stopped_by_sync = true;
            }
        }
    }
    let mut server = Served::start(&mut serve_in(place.path(), &["--store", store]));
    let again = talk(&server, 1, ORDERS);
    assert_eq!(again.len(), ORDERS, "{name}: it does not serve again");
    assert_eq!(again[..heard.len()], heard[..], "{name}: an acknowledged order");
    server.kill();
    stopped_by_sync
}

fn injected(log: &Path) -> usize {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().filter(|line| line.contains("(INJECTED)")).count()
}

#[test]
fn calls_of_a_store_that_fail_lose_no_acknowledged_order() {
    if !can_trace() {
        return;
    }
    for store in ["sqlite", "redb", "fjall", "log", "log-dsync", "log-direct"] {
        if !is_possible(store, place().path()) {
            continue;
        }
        let (mut rounds, mut stopped) = (0, 0);
        for (at, call) in CALLS.into_iter().enumerate() {
            let places = if syncs(store, call) { PLACES.len() } else { PLACES_OTHER };
            for (place, n) in PLACES.into_iter().take(places).enumerate() {
                let error = ERRORS[(at + place) % ERRORS.len()];
                stopped += usize::from(fails(&Case { store, call, n, error }));
                rounds += 1;
            }
        }
        println!("{store}: {rounds} calls, {stopped} failed syncs stopped the server");
        assert!(stopped > 0, "{store}: no sync failed while it served");
    }
}
