//! Servers with a PostgreSQL database: the answers of every model, two servers receiving the same
//! orders, unsupported options, and a database that is killed or suspended while orders are sent.
//!
//! If PostgreSQL is not installed, each test prints that it is skipped.

use crate::bench::{Bench, Client, STOCKS, config, every_model, is_possible, without_crowds};
use crate::conversation::{every_protocol, pipelined};
use ioloom_load::check::{Lists, STATES_MAX, Verdict, check};
use ioloom_load::{Event, History, Op, Outcome};
use ioloom_serve::{DatabaseChoice, Durability, Model, ServeError, ServeOptions, Server};
use ioloom_serve::{Sharing, ShowMode};
use ioloom_sys::clock;
use ioloom_testbed::Postgres;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Sets the options for a database.
pub(crate) fn with_database(words: &str, durability: Durability) -> impl Fn(&mut ServeOptions) {
    move |config: &mut ServeOptions| {
        (config.sharing, config.durability) = (Sharing::Database, durability);
        let one = config.model == Model::IoThreads || durability == Durability::Each;
        let connections = if one { 1 } else { 3 };
        config.database = Some(DatabaseChoice { connection_string: words.to_owned(), connections });
    }
}

fn bench(model: Model, words: &str) -> Bench {
    Bench::with(model, with_database(words, Durability::Group))
}

fn name_of(model: Model) -> String {
    format!("of_{}", model.name().replace('-', "_"))
}

#[test]
fn every_protocol_works_with_a_database() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let health = ["ok\n", "durability group", "store postgres, synchronous_commit on"];
    every_model(|model| {
        let words = postgres.database(&name_of(model));
        every_protocol(bench(model, &words), model, &health);
    });
}

#[test]
fn pipelined_orders_keep_their_order() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    every_model(|model| {
        let words = postgres.database(&name_of(model));
        pipelined(&bench(model, &words), model, 300);
    });
}

/// Clients of two servers send orders at the same time. All answers, with their timestamps, must be
/// explainable by one exchange that executes orders one after another.
#[test]
fn two_servers_answer_as_one_exchange() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    for durability in [Durability::Os, Durability::Group, Durability::Each] {
        let words = postgres.database(&format!("two_{durability}"));
        let stocks = "1 6 10\n2 8 20\n3 5 30\n";
        let change = |config: &mut ServeOptions| {
            std::fs::write(&config.stock, stocks).unwrap();
            with_database(&words, durability)(config);
        };
        let servers = [Bench::with(Model::Epoll, change), Bench::with(Model::Thread, change)];
        let events = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (server, events) = (&servers[number % 2], &events);
                scope.spawn(move || {
                    let mut client = Client::new(server.address);
                    client.request(&format!("HELLO stock/2 client=h{number}"));
                    for at in 1..=50 {
                        let event = one_event(&mut client, number, at);
                        events.lock().unwrap().push(event);
                    }
                });
            }
        });
        let initial = ioloom_exchange::Exchange::from_text(stocks).unwrap();
        let events = events.into_inner().unwrap();
        let history = History { initial: initial.lines().collect(), events };
        assert_eq!(check(&history, Lists::Atomic, STATES_MAX), Verdict::Explained, "{durability}");
    }
}

fn one_event(client: &mut Client, number: usize, at: usize) -> Event {
    use ioloom_exchange::{Order, Side};
    let mixed = number * 31 + at * 17;
    let (stock, count) = (mixed % 3 + 1, mixed / 3 % 4 + 1);
    let (side, word) =
        if mixed.is_multiple_of(2) { (Side::Buy, "BUY") } else { (Side::Sell, "SELL") };
    let is_list = mixed.is_multiple_of(7);
    let call_ns = clock::monotonic_ns();
    let request = if is_list { "SHOW".to_owned() } else { format!("{word} {stock} {count}") };
    let said = until_known(client, &format!("{at} {request}"), &AtomicUsize::new(0));
    let words: Vec<&str> = said.split_whitespace().collect();
    let outcome = match words[1..] {
        ["OK", left, _] => Outcome::Done(left.parse().ok()),
        ["ERR", "not-enough"] => Outcome::NotEnough,
        ["STOCKS", count, _] => {
            let left = |line: String| line.split(' ').nth(1).unwrap().parse().unwrap();
            Outcome::Shown((0..count.parse().unwrap()).map(|_| left(client.line())).collect())
        }
        _ => panic!("{said}"),
    };
    let order = Order::new(side, stock as u32, count as u32).unwrap();
    let op = if is_list { Op::Show } else { Op::Trade(order) };
    let ret_ns = Some(clock::monotonic_ns());
    Event { client: number as u32, op, call_ns, ret_ns, outcome }
}

/// The same orders under the same name are sent to two servers at once, with conflicting orders
/// under some of the numbers: each number is executed once, and both servers give the same answer.
#[test]
fn an_order_sent_to_two_servers_executes_once() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let words = postgres.database("twice");
    let servers = [bench(Model::Epoll, &words), bench(Model::Thread, &words)];
    let answers: Vec<String> = std::thread::scope(|scope| {
        let ask = |(at, server): (usize, &Bench)| {
            let address = server.address;
            scope.spawn(move || {
                let mut client = Client::new(address);
                // Every fifth number is an order for another stock on the other server.
                let stock = |id: usize| if id.is_multiple_of(5) { at + 1 } else { 1 };
                let orders: String =
                    (1..=60).map(|id| format!("{id} BUY {} 1\n", stock(id))).collect();
                client.send(format!("HELLO stock/2 client=same\n{orders}"));
                client.end_writing();
                client.rest()
            })
        };
        let both: Vec<_> = servers.iter().enumerate().map(ask).collect();
        both.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let (one, other) = (answers[0].lines(), answers[1].lines());
    for (id, (one, other)) in one.zip(other).enumerate() {
        if id > 0 && id.is_multiple_of(5) {
            // The number belongs to the order that was executed first.
            let reused = format!("{id} ERR number-reused");
            assert!((one == reused) != (other == reused), "{one} {other}");
        } else {
            assert_eq!(one, other);
        }
    }
    let left = "SELECT 2000 - sum(remaining) FROM ioloom_exchange.stock WHERE id < 3";
    assert_eq!(postgres.sql("twice", left), "60");
    assert_eq!(postgres.sql("twice", "SELECT count(*) FROM ioloom_exchange.orders"), "60");
}

/// Orders that are no longer retained are forgotten and not executed again.
#[test]
fn forgotten_orders_are_not_executed_again() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let words = postgres.database("old");
    let bench = bench(Model::Epoll, &words);
    let mut client = Client::new(bench.address);
    client.send("HELLO stock/2 client=a\n1 BUY 1 1\n18446744073709551615 BUY 1 1\n");
    for line in ["HELLO stock/2 window=128\n", "1 OK 999 1\n", "18446744073709551615 OK 998 2\n"] {
        assert_eq!(client.line(), line);
    }
    // Simulate a million orders in between.
    postgres.sql("old", "SELECT setval('ioloom_exchange.number', 1004999)");
    assert_eq!(client.request("2 BUY 1 1"), "2 OK 997 1005000\n");
    // Old orders are deleted after the answers are sent.
    let old = "SELECT count(*) FROM ioloom_exchange.orders WHERE seq < 3";
    while postgres.sql("old", old) != "0" {
        std::thread::sleep(Duration::from_millis(10));
    }
    for (request, expected) in [
        ("1 BUY 1 1", "1 ERR too-old\n"),
        ("3 BUY 1 1", "3 ERR too-old\n"),
        ("2 BUY 1 1", "2 OK 997 1005000\n"),
    ] {
        assert_eq!(client.request(request), expected);
    }
    let mut other = Client::new(bench.address);
    other.send("HELLO stock/2 client=b\n1 BUY 1 1\n");
    assert_eq!(other.line() + &other.line(), "HELLO stock/2 window=128\n1 OK 996 1005001\n");
}

pub(crate) fn refused(dir: &TempDir, change: impl FnOnce(&mut ServeOptions), words: &[&str]) {
    let mut config = config(dir, Model::Epoll);
    change(&mut config);
    let error = Server::start(&config).err().expect("opening must be refused").to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
    assert!(!error.contains("hush") && !error.contains('\n'), "{error}");
}

#[test]
fn unsupported_options_are_refused() {
    let dir = TempDir::new().unwrap();
    let words = "host=/nowhere dbname=x user=x password=hush";
    let group = with_database(words, Durability::Group);
    refused(&dir, &group, &["connect to", "x at /nowhere:5432", "--database"]);
    refused(&dir, with_database(words, Durability::None), &["durability none", "group"]);
    let with = |change: &dyn Fn(&mut ServeOptions), expected: &[&str]| {
        refused(
            &dir,
            |config| {
                group(config);
                change(config);
            },
            expected,
        );
    };
    with(&|config| config.sharing = Sharing::Writer, &["database shares", "--sharing writer"]);
    with(&|config| config.show = ShowMode::PerStock, &["per-stock"]);
    with(&|config| config.durability = Durability::Each, &["--database-connections 1"]);
    with(&|config| config.model = Model::IoThreads, &["--database-connections 1"]);
    with(&|config| config.database.as_mut().unwrap().connections = 65, &["1 to 64"]);
    with(&|config| config.database = None, &["sharing database", "--store postgres"]);
    let tls = "hostaddr=127.0.0.1 user=x password=hush sslmode=verify-full";
    refused(&dir, with_database(tls, Durability::Group), &["host=NAME"]);
    for (mode, expected) in [("verify", "sslmode"), ("verify-full sslrootcert=/none", "/none")] {
        let tls = format!("host=localhost user=x password=hush sslmode={mode}");
        refused(&dir, with_database(&tls, Durability::Group), &["--database", expected]);
    }
    refused(&dir, with_database("password=hush hush", Durability::Group), &["--database", "host="]);
}

#[test]
fn a_filled_database_is_not_overwritten() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let words = postgres.database("filled");
    let change = with_database(&words, Durability::Group);
    let dir = TempDir::new().unwrap();
    let empty = |config: &mut ServeOptions| {
        change(config);
        config.stock = dir.path().join("none.txt");
    };
    refused(&dir, empty, &["none.txt", "--stock"]);
    let bench = Bench::with(Model::Epoll, &change);
    assert_eq!(bench.client().request("buy 1 10"), "[buy] success\n");
    bench.end();
    // The share counts in the file no longer matter, but its stocks and prices do.
    let bench = Bench::with(Model::Epoll, &change);
    let mut client = bench.client();
    client.send("show\n");
    assert_eq!(client.line(), "1 990 10\n");
    bench.end();
    let other = |config: &mut ServeOptions| {
        std::fs::write(&config.stock, STOCKS.replace(" 30", " 31")).unwrap();
        change(config);
    };
    refused(&dir, other, &["stock.txt", "stocks or prices differ", "--database"]);
    // Without a stock file, a matching one is written at the end.
    let server = Server::start(&{
        let mut config = config(&dir, Model::Epoll);
        empty(&mut config);
        config
    });
    let server = server.unwrap();
    server.handle().stop();
    server.run().unwrap();
    let made = std::fs::read_to_string(dir.path().join("none.txt")).unwrap();
    assert_eq!(made, STOCKS.replace("1 1000", "1 990"));
    postgres.sql("filled", "UPDATE ioloom_exchange.version SET version = 9");
    refused(&dir, empty, &["a different version"]);
}

#[test]
fn a_database_without_fsync_is_refused() {
    let Some(postgres) = Postgres::start(&["fsync=off"]) else { return };
    let words = postgres.database("unsynced");
    let dir = TempDir::new().unwrap();
    for durability in [Durability::Group, Durability::Each] {
        refused(&dir, with_database(&words, durability), &["fsync = off", "durability os"]);
    }
    let bench = Bench::with(Model::Epoll, with_database(&words, Durability::Os));
    assert_eq!(bench.client().request("buy 1 10"), "[buy] success\n");
}

/// Repeats an order until its answer is final; a server may report that the database is away or
/// that the outcome is unknown.
pub(crate) fn until_known(client: &mut Client, order: &str, doubts: &AtomicUsize) -> String {
    for _ in 0..12_000 {
        let said = client.request(order);
        if !said.ends_with("ERR busy\n") && !said.ends_with("ERR unknown-outcome\n") {
            return said;
        }
        doubts.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{order} was never answered");
}

/// The database is killed repeatedly while clients of two servers send orders. Acknowledged orders
/// survive, unknown ones are executed once, and the servers recover by themselves.
#[test]
fn a_killed_database_keeps_what_was_acknowledged() {
    let Some(mut postgres) = Postgres::start(&[]) else { return };
    for durability in [Durability::Group, Durability::Each] {
        let words = postgres.database(&format!("killed_{durability}"));
        let change = |config: &mut ServeOptions| {
            std::fs::write(&config.stock, "1 1000000 10\n2 1000000 20\n").unwrap();
            with_database(&words, durability)(config);
        };
        let servers = [Bench::with(Model::Epoll, change), Bench::with(Model::RequestPool, change)];
        let (received, doubts) = (Mutex::new(BTreeMap::new()), AtomicUsize::new(0));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (server, received, doubts) = (&servers[number % 2], &received, &doubts);
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut client = Client::new(server.address);
                    client.request(&format!("HELLO stock/2 client=c{number}"));
                    for id in 1.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let order = format!("{id} BUY {} {}", id % 2 + 1, number + 1);
                        let said = until_known(&mut client, &order, doubts);
                        assert!(said.contains(" OK "), "{said}");
                        received.lock().unwrap().insert((number, id), (order, said));
                    }
                });
            }
            for _ in 0..3 {
                let count = || received.lock().unwrap().len();
                let before = count();
                for _ in 0..30_000 {
                    if count() >= before + 40 {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                postgres.kill();
                postgres.start_again();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let received = received.into_inner().unwrap();
        println!("{durability}: {} orders, {} doubts", received.len(), doubts.into_inner());
        let mut taken = [0, 0];
        for ((number, id), (order, said)) in &received {
            // The other server knows the order too.
            let mut client = Client::new(servers[(number + 1) % 2].address);
            client.request(&format!("HELLO stock/2 client=c{number}"));
            assert_eq!(client.request(order), *said, "{durability}");
            taken[id % 2] += number + 1;
        }
        let mut client = servers[0].client();
        client.send("show\n");
        for (at, taken) in taken.into_iter().enumerate() {
            let expected = format!("{} {} {}\n", at + 1, 1_000_000 - taken, (at + 1) * 10);
            assert_eq!(client.line(), expected, "{durability}");
        }
    }
}

/// Number of consecutive orders refused while the database does not respond.
const REFUSED: usize = 100;

fn health(bench: &Bench) -> String {
    let mut http = Client::new(bench.address);
    http.send("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    http.rest()
}

fn named(bench: &Bench) -> Client {
    let mut client = Client::new(bench.address);
    client.request("HELLO stock/2 client=a");
    client
}

/// Checks a server whose database does not respond: one order waits for a limited time; all others
/// are refused immediately.
fn refuses(bench: &Bench, model: Model) {
    let mut client = named(bench);
    client.send("2 BUY 1 1\n");
    if model != Model::Iterative {
        assert!(health(bench).contains(" 200 OK"), "{model}");
    }
    let said = client.line();
    assert!(["2 ERR busy\n", "2 ERR unknown-outcome\n"].contains(&said.as_str()), "{said}");
    for id in 3..3 + REFUSED {
        assert_eq!(client.request(&format!("{id} BUY 1 1")), format!("{id} ERR busy\n"), "{model}");
    }
    assert_eq!(client.request("1 SHOW"), "1 ERR busy\n", "{model}");
    drop(client);
    let text = health(bench);
    assert!(text.contains("\r\n\r\ntrouble\n") && text.contains("\ntrouble no answer"), "{text}");
}

/// The database is suspended and resumed. A waiting thread blocks all connections of its loop, so
/// every model must refuse rather than wait; when the database responds again, the servers recover
/// by themselves.
#[test]
fn an_unresponsive_database_blocks_no_clients() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let _beside = without_crowds();
    let models = Model::ALL.iter().copied().filter(|model| is_possible(*model));
    let start = |model| (model, bench(model, &postgres.database(&name_of(model))));
    let all: Vec<(Model, Bench)> = models.map(start).collect();
    let each = |test: &(dyn Fn(&Bench, Model) + Sync)| {
        std::thread::scope(|scope| {
            for (model, bench) in &all {
                scope.spawn(move || test(bench, *model));
            }
        });
    };
    each(&|bench, model| assert_eq!(named(bench).request("1 BUY 1 1"), "1 OK 999 1\n", "{model}"));
    postgres.pause();
    each(&refuses);
    postgres.resume();
    each(&|bench, model| {
        let mut client = named(bench);
        let doubts = AtomicUsize::new(0);
        for id in 1..3 + REFUSED {
            let said = until_known(&mut client, &format!("{id} BUY 1 1"), &doubts);
            assert!(said.starts_with(&format!("{id} OK ")), "{model}: {said}");
        }
        assert!(health(bench).contains("\r\n\r\nok\n"), "{model}");
    });
    for (model, _) in &all {
        let left = "SELECT 1000 - remaining FROM ioloom_exchange.stock WHERE id = 1";
        assert_eq!(postgres.sql(&name_of(*model), left), (2 + REFUSED).to_string(), "{model}");
    }
}

/// If two servers start at the same time, the second waits for the first, for longer than an order
/// would.
#[test]
fn a_start_waits_for_another_server_opening_the_database() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let _beside = without_crowds();
    let words = postgres.database("held");
    std::thread::scope(|scope| {
        let holds = "SELECT pg_advisory_xact_lock(7310314285311648875), pg_sleep(2)";
        let holder = scope.spawn(|| postgres.sql("held", holds));
        let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
        while postgres.sql("held", locks) == "0" && !holder.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let bench = bench(Model::Epoll, &words);
        assert_eq!(named(&bench).request("1 BUY 1 1"), "1 OK 999 1\n");
        holder.join().unwrap();
    });
}

/// Without its database, a server reports this, answers busy, and exits with its own error.
#[test]
fn a_server_without_its_database_reports_it() {
    let Some(mut postgres) = Postgres::start(&[]) else { return };
    let words = postgres.database("gone");
    let dir = TempDir::new().unwrap();
    let mut config = config(&dir, Model::Epoll);
    with_database(&words, Durability::Group)(&mut config);
    let server = Server::start(&config).unwrap();
    let [address, lines] = *server.addresses() else { panic!("expected two addresses") };
    let stop = server.handle();
    let thread = std::thread::spawn(move || server.run());
    let mut client = Client::new(lines);
    assert_eq!(client.request("buy 1 1"), "[buy] success\n");
    postgres.kill();
    // The first order discovers that the connection is lost; whether it was executed may be
    // unknown.
    let said = client.request("buy 1 1");
    assert!(["BUSY\n", "Unknown outcome\n"].contains(&said.as_str()), "{said}");
    assert_eq!(client.request("buy 1 1"), "BUSY\n");
    assert_eq!(client.request("show"), "BUSY\n");
    let mut http = Client::new(address);
    http.send("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let text = http.rest();
    assert!(text.contains("\r\n\r\ntrouble\n") && text.contains("\ntrouble "), "{text}");
    stop.stop();
    let ended = thread.join().unwrap();
    assert!(matches!(ended, Err(ServeError::Database { .. })), "{ended:?}");
    assert!(ended.unwrap_err().to_string().contains("every acknowledged order"));
}
