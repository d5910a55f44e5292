//! Failing system calls inside storage engines, injected by strace into the unmodified program.
//!
//! Engines bypass the seam `ioloom_sys::fault`, so only failures below them show whether disk errors
//! reach the clients. After any failure the server must refuse to start, stop with an error, or
//! continue, and no acknowledged order may be lost. A sync that fails while serving must stop the
//! server.

use crate::bench::{Client, Served, add_args, is_possible, place_for, serve_in};
use ioloom_testbed::Workspace;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// System calls with which a store reads, writes and syncs files.
const CALLS: [&str; 8] =
    ["openat", "pread64", "pwrite64", "write", "ftruncate", "fsync", "fdatasync", "mmap"];
/// Positions of failing syncs in a thread. There are more of them, because the first syncs happen
/// during startup.
const PLACES: [u32; 7] = [1, 2, 5, 3, 8, 13, 10];
/// How many of them are tested for other calls.
const PLACES_OTHER: usize = 3;
/// Injected errors: I/O error and no space.
const ERRORS: [&str; 2] = ["EIO", "ENOSPC"];
/// Total number of orders. The last eight encounter the failing call; two positions are closer than
/// that.
const ORDERS: usize = 12;

fn order(number: usize) -> String {
    format!("{number} BUY 1 {number}")
}

/// Returns whether the success of this call makes a commit durable.
fn syncs(store: &str, call: &str) -> bool {
    call.contains("sync") || (store.starts_with("log-d") && call == "pwrite64")
}

/// Returns whether strace works here.
fn can_trace() -> bool {
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=EIO", "true"]);
    let can = command.output().is_ok_and(|output| output.status.success());
    if !can {
        println!("skipped: strace is missing or not permitted");
    }
    can
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Creates a store by running a server for a few orders. Returns their answers.
fn begin(place: &Workspace, store: &str) -> Vec<String> {
    let server = Served::in_dir(place.path(), &["--store", store]);
    talk(&server, 1, 4)
}

/// Sends orders until one is not answered.
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

/// Runs a server with a failing call. Returns whether a sync failed while it was serving.
fn fails(case: &Case<'_>) -> bool {
    let place = place_for(case.store);
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
                // A call can also fail after the last answer, as one of the next batch.
                stopped_by_sync = heard.len() < ORDERS;
            }
        }
    }
    let mut server = Served::start(&mut serve_in(place.path(), &["--store", store]));
    let again = talk(&server, 1, ORDERS);
    assert_eq!(again.len(), ORDERS, "{name}: the server did not restart");
    assert_eq!(again[..heard.len()], heard[..], "{name}: an acknowledged order changed");
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
        if !is_possible(store, place_for(store).path()) {
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
        assert!(stopped > 0, "{store}: no sync failed while serving");
    }
}
