//! Handover to a new program: SIGUSR2 under load, programs that cannot take over, and the lock in
//! between.

use crate::bench::{Client, Served, add_args, place, place_for};
use ioloom_testbed::Workspace;
use std::io::BufRead;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const IOLOOM: &str = env!("CARGO_BIN_EXE_ioloom");
const CLIENTS: usize = 3;
/// Number of handovers per model.
const HANDOVERS: usize = 3;

/// Starts a server by the name `program` in the workspace, which can be replaced.
fn start(place: &Workspace, args: &[&str]) -> Served {
    symlink(IOLOOM, place.at("program")).unwrap();
    let mut command = Command::new(place.at("program"));
    add_args(&mut command, place.path(), args);
    Served::start(&mut command)
}

/// Reads the server's messages until one contains these words.
fn wait_for(server: &mut Served, words: &str) -> String {
    let mut line = String::new();
    while server.said.read_line(&mut line).unwrap() > 0 {
        if line.contains(words) {
            return line;
        }
        line.clear();
    }
    panic!("the server ended without {words:?}");
}

/// Installs a script as the program.
fn install(place: &Workspace, script: &str) {
    place.write("new", script);
    std::fs::set_permissions(place.at("new"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(place.at("new"), place.at("program")).unwrap();
}

/// What the clients of one server saw.
#[derive(Default)]
struct Seen {
    refused: AtomicUsize,
    /// Orders that were repeated because their connection closed.
    repeated: AtomicUsize,
    done: AtomicUsize,
    longest: Mutex<Duration>,
    is_over: AtomicBool,
}

/// Sends each order over a new connection until it is answered.
fn orders(address: &str, client: usize, seen: &Seen) -> usize {
    let mut id = 0;
    while !seen.is_over.load(Ordering::Relaxed) {
        id += 1;
        let since = Instant::now();
        loop {
            let Ok(stream) = TcpStream::connect(address) else {
                seen.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let answer = Client::over(stream).and_then(|mut connection| {
                connection.ask(&format!("HELLO stock/2 client=c{client}"))?;
                connection.ask(&format!("{id} BUY 1 1"))
            });
            if let Some(answer) = answer {
                assert!(answer.starts_with(&format!("{id} OK ")), "{answer}");
                break;
            }
            seen.repeated.fetch_add(1, Ordering::Relaxed);
        }
        seen.done.fetch_add(1, Ordering::Relaxed);
        let mut longest = seen.longest.lock().unwrap();
        *longest = since.elapsed().max(*longest);
    }
    id
}

fn hands_over(model: &str) {
    let place = place();
    let mut server = start(&place, &["--model", model, "--store", "log", "--durability", "os"]);
    let (address, seen) = (server.address.clone(), Seen::default());
    let total: usize = std::thread::scope(|scope| {
        let (address, seen) = (&address, &seen);
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || orders(address, client, seen))).collect();
        for _ in 0..HANDOVERS {
            let before = seen.done.load(Ordering::Relaxed);
            while seen.done.load(Ordering::Relaxed) < before + 10 {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.signal("-USR2");
            wait_for(&mut server, "handing over to ");
            wait_for(&mut server, &format!("listening on {address}"));
        }
        seen.is_over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    println!(
        "{model}: {total} orders, {} repeated, longest wait {:?}",
        seen.repeated.load(Ordering::Relaxed),
        seen.longest.lock().unwrap()
    );
    assert_eq!(seen.refused.load(Ordering::Relaxed), 0, "{model}: refused connections");
    server.signal("-TERM");
    assert_eq!(server.ended().0.code(), Some(0), "{model}");
    let stocks = std::fs::read_to_string(place.at("stock.txt")).unwrap();
    assert_eq!(stocks, format!("1 {} 10\n2 100000 20\n", 100_000 - total), "{model}");
}

#[test]
fn no_connection_is_refused_and_no_order_lost_by_a_handover() {
    let models = [
        ["iterative", "thread", "pool", "request-pool", "select"].as_slice(),
        &["poll", "epoll", "epoll-et", "reuseport", "io-threads"],
        &["uring", "uring-multishot", "uring-per-core", "tokio"],
    ];
    std::thread::scope(|scope| {
        for some in models {
            scope.spawn(move || some.iter().for_each(|model| hands_over(model)));
        }
    });
}

#[test]
fn open_connections_are_answered_and_closed() {
    // In memory: a stop waits for a limited time, and a sync of a busy disk can take longer.
    let place = place_for("sqlite");
    let mut server = start(&place, &[]);
    let mut idle = Client::new(&server.address, "idle").unwrap();
    let mut busy = Client::new(&server.address, "busy").unwrap();
    assert_eq!(idle.ask("1 BUY 1 1").as_deref(), Some("1 OK 99999 1"));
    busy.say("1 BUY 1 1\n2 BUY 1 1\n").unwrap();
    server.signal("-USR2");
    assert_eq!(busy.line().as_deref(), Some("1 OK 99998 2"));
    assert_eq!(busy.line().as_deref(), Some("2 OK 99997 3"));
    assert_eq!((idle.line(), busy.line()), (None, None));
    wait_for(&mut server, "3 orders");
    // The same names and numbers get the same answers.
    let mut idle = Client::new(&server.address, "idle").unwrap();
    assert_eq!(idle.ask("1 BUY 1 1").as_deref(), Some("1 OK 99999 1"));
    assert_eq!(idle.ask("2 BUY 1 1").as_deref(), Some("2 OK 99996 4"));
    server.signal("-TERM");
    assert_eq!(server.ended().0.code(), Some(0));
}

#[test]
fn a_program_that_cannot_take_over_is_rejected() {
    let place = place();
    let mut server = start(&place, &["--durability", "none"]);
    let mut client = Client::new(&server.address, "a").unwrap();
    assert_eq!(client.ask("1 BUY 1 10").as_deref(), Some("1 OK 99990 1"));
    install(&place, "#!/bin/sh\necho 'unknown option --stock' >&2\nexit 2\n");
    server.signal("-USR2");
    let said = wait_for(&mut server, "cannot take over");
    assert!(said.contains("unknown option --stock"), "{said}");
    install(&place, "not a program");
    server.signal("-USR2");
    wait_for(&mut server, "cannot take over");
    assert_eq!(client.ask("2 BUY 1 10").as_deref(), Some("2 OK 99980 2"));
    // It disappears after it was checked: this program continues with the same socket.
    install(&place, "#!/bin/sh\nrm -f \"$0\"\n");
    server.signal("-USR2");
    wait_for(&mut server, "this program continues");
    wait_for(&mut server, "listening on");
    assert_eq!(client.ask("3 BUY 1 10"), None);
    let mut client = Client::new(&server.address, "a").unwrap();
    assert_eq!(client.ask("3 BUY 1 10").as_deref(), Some("3 OK 99970 1"));
    server.signal("-TERM");
    assert_eq!(server.ended().0.code(), Some(0));
    let stocks = std::fs::read_to_string(place.at("stock.txt")).unwrap();
    assert_eq!(stocks, "1 99970 10\n2 100000 20\n");
}

/// This program continues with the settings that it reloaded, not with those of its start.
#[test]
fn reloaded_settings_survive_a_handover_that_fails() {
    let place = place();
    place.write("limits", "connections 100\n");
    let mut server = start(&place, &["--durability", "none", "--limits-file", "limits"]);
    place.write("limits", "connections 1\n");
    server.signal("-HUP");
    wait_for(&mut server, "reloaded");
    install(&place, "#!/bin/sh\nrm -f \"$0\"\n");
    server.signal("-USR2");
    wait_for(&mut server, "this program continues");
    wait_for(&mut server, "listening on");
    let mut client = Client::new(&server.address, "a").unwrap();
    assert_eq!(client.ask("1 BUY 1 10").as_deref(), Some("1 OK 99990 1"));
    assert_eq!(Client::plain(&server.address).unwrap().line().as_deref(), Some("BUSY"));
    server.signal("-TERM");
    assert_eq!(server.ended().0.code(), Some(0));
}

/// While neither program has the store open, it stays locked, and connections wait.
#[test]
fn the_store_stays_locked_between_the_programs() {
    let place = place();
    let mut server = start(&place, &["--store", "log"]);
    let mut client = Client::new(&server.address, "a").unwrap();
    assert_eq!(client.ask("1 BUY 1 10").as_deref(), Some("1 OK 99990 1"));
    // The next program starts a second server before it continues.
    let script = format!(
        "#!/bin/sh\n[ \"$IOLOOM_HANDOVER\" = check ] && exit 0\n\
         for stock in stock.txt other.txt; do\n\
         env -u IOLOOM_HANDOVER {IOLOOM} serve --listen 127.0.0.1:0 --stock $stock \\\n\
         --store-path stock.txt.store 2>> second\ndone\n\
         exec {IOLOOM} \"$@\"\n"
    );
    place.write("other.txt", std::fs::read_to_string(place.at("stock.txt")).unwrap());
    install(&place, &script);
    server.signal("-USR2");
    wait_for(&mut server, "handing over to ");
    while !place.at("second").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut client = Client::new(&server.address, "b").unwrap();
    assert_eq!(client.ask("1 BUY 1 10").as_deref(), Some("1 OK 99980 2"));
    let second = std::fs::read_to_string(place.at("second")).unwrap();
    let pid = format!("(process {})", server.child.id());
    assert_eq!(second.matches(&pid).count(), 2, "{second}");
    server.signal("-TERM");
    assert_eq!(server.ended().0.code(), Some(0));
}
