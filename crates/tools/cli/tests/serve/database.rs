//! Several server processes on one PostgreSQL database: kills, repeated orders, and sold-out stocks.
//!
//! Without PostgreSQL each test prints a message and passes.

use crate::bench::{Client, STOCKS, Served, log_number, place, serve_in};
use ioloom_testbed::{Postgres, ProcessOutput, Workspace};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Clients per server.
const CLIENTS: usize = 3;

/// Starts a server with its own stock file on a database.
fn serve(place: &Workspace, words: &str, args: &[&str]) -> Served {
    let mut command = serve_in(place.path(), &["--store", "postgres"]);
    command.args(args).env("IOLOOM_DATABASE", words);
    Served::start(&mut command)
}

/// Answers by client and order number.
type Heard = BTreeMap<(String, usize), String>;

fn order(id: usize) -> String {
    let side = if id.is_multiple_of(4) { "SELL" } else { "BUY" };
    format!("{id} {side} {} 1", id % 2 + 1)
}

/// Sends a number of orders per client, or fewer if the server exits.
fn orders(server: &Served, names: &str, most: usize, heard: &Mutex<Heard>) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let name = format!("{names}{client}");
            scope.spawn(move || -> Option<()> {
                let mut client = Client::new(&server.address, &name)?;
                for id in 1..=most {
                    let said = client.settled(&order(id))?;
                    heard.lock().expect("no panic").insert((name.clone(), id), said);
                }
                Some(())
            });
        }
    });
}

/// Repeats every order: earlier answers are repeated, and the stocks are the sum of all orders.
fn check(server: &Served, heard: &Heard, most: usize, case: &str) {
    // Also of clients that heard no answer: their first orders may have been stored.
    let clients = |names| (0..CLIENTS).map(move |client| format!("{names}{client}"));
    let names: Vec<String> = ["killed", "other"].into_iter().flat_map(clients).collect();
    assert!(heard.keys().all(|(name, _)| names.contains(name)), "{case}");
    let (mut left, mut numbers) = ([100_000_i64; 2], Vec::new());
    for name in &names {
        let mut client = Client::new(&server.address, name).expect("it serves");
        for id in 1..=most {
            let said = client.settled(&order(id)).expect("an answer");
            if let Some(before) = heard.get(&(name.clone(), id)) {
                assert_eq!(said, *before, "{case}: {name}");
            }
            left[id % 2] += if order(id).contains("BUY") { -1 } else { 1 };
            numbers.push(log_number(&said));
        }
    }
    let orders = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), orders, "{case}: two orders have the same number");
    let mut client = Client::plain(&server.address).expect("it serves");
    for (at, left) in left.into_iter().enumerate() {
        let said = if at == 0 { client.ask("show") } else { client.line() };
        assert_eq!(said, Some(format!("{} {left} {}", at + 1, (at + 1) * 10)), "{case}");
    }
}

#[test]
fn a_killed_server_loses_nothing_and_the_other_one_goes_on() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    for durability in ["os", "group", "each"] {
        let words = postgres.database(&format!("servers_{durability}"));
        let (one, two) = (place(), place());
        let args = ["--durability", durability, "--model", "thread"];
        let mut killed = serve(&one, &words, &args);
        let other = serve(&two, &words, &args[..2]);
        let heard = Mutex::new(Heard::new());
        std::thread::scope(|scope| {
            let (heard, other) = (&heard, &other);
            scope.spawn(move || orders(other, "other", 200, heard));
            let pid = killed.child.id().to_string();
            scope.spawn(move || {
                // Kill the server at an arbitrary moment after a few answers.
                for _ in 0..60_000 {
                    if heard.lock().expect("no panic").len() >= 60 {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                let sent = std::process::Command::new("kill").args(["-KILL", &pid]).status();
                assert!(sent.expect("kill starts").success());
            });
            orders(&killed, "killed", 10_000, heard);
        });
        killed.kill();
        let heard = heard.into_inner().expect("no panic");
        let of_killed = heard.keys().filter(|(name, _)| name.starts_with("killed")).count();
        println!("{durability}: {} answers, {of_killed} of the killed server", heard.len());
        let most = heard.keys().map(|(_, id)| *id).max().expect("answers").max(200);
        check(&other, &heard, most, durability);
        // Replace it with another server.
        let again = serve(&one, &words, &args);
        check(&again, &heard, most, durability);
    }
}

#[test]
fn two_servers_never_sell_what_is_not_there() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let words = postgres.database("hot");
    let places = [place(), place()];
    for place in &places {
        place.write("stock.txt", "1 100 10\n");
    }
    let servers = places.each_ref().map(|place| serve(place, &words, &[]));
    let bought: usize = std::thread::scope(|scope| {
        let clients = servers.iter().flat_map(|server| std::iter::repeat_n(server, CLIENTS));
        let buy = |server: &Served| {
            let mut client = Client::plain(&server.address).expect("it serves");
            (0..50).filter(|_| client.ask("buy 1 1").as_deref() == Some("[buy] success")).count()
        };
        let all: Vec<_> = clients.map(|server| scope.spawn(move || buy(server))).collect();
        all.into_iter().map(|client| client.join().expect("no panic")).sum()
    });
    assert_eq!(bought, 100);
    let mut client = Client::plain(&servers[1].address).unwrap();
    assert_eq!(client.ask("show").as_deref(), Some("1 0 10"));
    // Each server writes its own stock file on exit.
    for (place, mut server) in places.iter().zip(servers) {
        server.signal("-TERM");
        let (status, said) = server.ended();
        assert_eq!(status.code(), Some(0), "{said}");
        assert_eq!(std::fs::read_to_string(place.at("stock.txt")).unwrap(), "1 0 10\n");
    }
}

/// Unusable databases are refused, and a password appears neither in messages nor in anything that
/// other users can see of the process.
#[test]
fn wrong_databases_are_refused_with_one_clear_error() {
    let place = place();
    let refused = |args: &[&str], code: i32, words: &[&str]| {
        let command = &mut place.ours(&["serve", "--listen", "127.0.0.1:0"]);
        let ran = ProcessOutput::from(command.args(args).output().unwrap()).ended(code);
        ran.one_error(words);
        assert!(!ran.err.contains("hush"), "{}", ran.err);
    };
    let postgres = ["--store", "postgres"];
    let with = |more: &[&'static str]| [&postgres[..], more].concat();
    refused(&postgres, 2, &["--database", "IOLOOM_DATABASE"]);
    refused(&["--database", "host=x"], 2, &["--store postgres"]);
    refused(
        &with(&["--database", "host=/x password=hush", "--store-path", "x"]),
        2,
        &["--store-path"],
    );
    refused(&with(&["--database", "host=/nowhere password=hush"]), 1, &["/nowhere", "--database"]);
    refused(
        &with(&["--database", "postgresql://a:hush@b:c/d"]),
        3,
        &["--database", "postgresql://"],
    );
    refused(&with(&["--database", "x=hush"]), 3, &["--database"]);
    let none = ["--database", "host=/nowhere", "--durability", "none"];
    refused(&with(&none), 3, &["durability none", "os, group or each"]);
    refused(&["--sharing", "database"], 3, &["--store postgres"]);
    assert_eq!(std::fs::read_to_string(place.at("stock.txt")).unwrap(), STOCKS);
}
