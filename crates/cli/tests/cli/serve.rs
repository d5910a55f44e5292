//! `serve` as a process: killed at any moment, stopped politely, started wrongly.

use crate::home::Home;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

const CLIENTS: usize = 3;
/// Fewer than the server remembers of a client.
const ORDERS: usize = 100;
const STOCKS: &str = "1 100000 10\n2 100000 20\n";

struct Served {
    child: Child,
    address: String,
    said: BufReader<ChildStderr>,
}

fn serve(home: &Home, args: &[&str]) -> Served {
    let stock = home.path("stock.txt");
    if !stock.exists() {
        std::fs::write(stock, STOCKS).unwrap();
    }
    let all = [&["serve", "--listen", "127.0.0.1:0", "--dialect", "line"], args].concat();
    let mut child =
        home.command(&all).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let Some(address) = line.trim().strip_prefix("ioloom: listening on ") else {
        panic!("{line}");
    };
    Served { child, address: address.to_owned(), said }
}

struct Client {
    lines: BufReader<TcpStream>,
}

impl Client {
    fn new(address: &str, name: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).ok()?;
        let mut client = Self { lines: BufReader::new(stream) };
        client.ask(&format!("HELLO stock/2 client={name}"))?;
        Some(client)
    }

    /// The answer to a line, or nothing if the server has gone.
    fn ask(&mut self, text: &str) -> Option<String> {
        self.lines.get_mut().write_all(format!("{text}\n").as_bytes()).ok()?;
        self.line()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line).ok()?;
        line.ends_with('\n').then(|| line.trim_end().to_owned())
    }
}

fn order(client: usize, id: usize) -> String {
    let side = if (client + id).is_multiple_of(3) { "SELL" } else { "BUY" };
    format!("{id} {side} {} {}", id % 2 + 1, client + 1)
}

/// Orders of several clients until the server is killed after some time; gives the answers that
/// arrived.
fn killed_under_load(server: &mut Served, after: Duration) -> Vec<BTreeMap<usize, String>> {
    let heard = Mutex::new(vec![BTreeMap::new(); CLIENTS]);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (heard, address) = (&heard, server.address.clone());
            scope.spawn(move || {
                let Some(mut connection) = Client::new(&address, &format!("c{client}")) else {
                    return;
                };
                for id in 1..=ORDERS {
                    let Some(answer) = connection.ask(&order(client, id)) else { return };
                    heard.lock().unwrap()[client].insert(id, answer);
                }
            });
        }
        std::thread::sleep(after);
        server.child.kill().unwrap();
    });
    server.child.wait().unwrap();
    heard.into_inner().unwrap()
}

fn log_number(answer: &str) -> u64 {
    answer.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Kills a server at a moment, starts it again, and compares what is there with what was promised.
fn lose_nothing(args: &[&str], after: Duration) -> usize {
    let home = Home::new();
    let mut server = serve(&home, args);
    let heard = killed_under_load(&mut server, after);
    let mut server = serve(&home, args);
    let mut watcher = Client::new(&server.address, "watcher").unwrap();
    let shown = watcher.ask("1 SHOW").unwrap();
    let recovered = log_number(&shown);
    let mut left: Vec<i64> = (0..2)
        .map(|_| watcher.line().unwrap().split(' ').nth(1).unwrap().parse().unwrap())
        .collect();
    // Every client sends everything again: what was answered before gets the same answer, and what
    // the log holds is not carried out again.
    let mut numbers = Vec::new();
    for (client, heard) in heard.iter().enumerate() {
        let mut connection = Client::new(&server.address, &format!("c{client}")).unwrap();
        let orders: String = (1..=ORDERS).map(|id| order(client, id) + "\n").collect();
        connection.lines.get_mut().write_all(orders.as_bytes()).unwrap();
        for id in 1..=ORDERS {
            let order = order(client, id);
            let answer = connection.line().unwrap();
            if let Some(before) = heard.get(&id) {
                assert_eq!(answer, *before, "{args:?}: an acknowledged order");
                assert!(log_number(&answer) <= recovered, "{args:?}: {answer}");
            }
            if log_number(&answer) <= recovered {
                numbers.push(log_number(&answer));
                let count = i64::try_from(client + 1).unwrap();
                left[id % 2] += if order.contains("BUY") { count } else { -count };
            }
        }
    }
    // The log before the crash is 1, 2, 3, … without a gap, and the stocks are what it leads to.
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=recovered).collect::<Vec<_>>(), "{args:?}");
    assert_eq!(left, [100_000, 100_000], "{args:?}");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    heard.iter().map(BTreeMap::len).sum()
}

#[test]
fn a_killed_server_has_kept_every_acknowledged_order() {
    let mut acknowledged = 0;
    let arms = [
        ("os", "epoll", "global"),
        ("group", "epoll", "global"),
        ("each", "epoll-et", "global"),
        ("group", "thread", "stock"),
        ("group", "pool", "rw"),
        ("os", "request-pool", "writer"),
        ("group", "io-threads", "writer"),
        ("group", "reuseport", "stock"),
    ];
    for (at, (durability, model, sharing)) in arms.iter().enumerate() {
        for round in 0..3 {
            let args = ["--durability", durability, "--model", model, "--sharing", sharing];
            let after = Duration::from_millis(5 + 37 * round + 3 * at as u64);
            acknowledged += lose_nothing(&args, after);
        }
    }
    assert!(acknowledged > 0, "no round got as far as an answer");
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn a_stopped_server_writes_the_stock_file_and_says_what_it_did() {
    for name in ["-TERM", "-INT"] {
        let home = Home::new();
        let mut server = serve(&home, &["--json"]);
        let mut client = Client::new(&server.address, "a").unwrap();
        assert_eq!(client.ask("1 BUY 1 10").unwrap(), "1 OK 99990 1");
        signal(&server.child, name);
        assert_eq!(client.line(), None);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut server.said, &mut rest).unwrap();
        let out = server.child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{rest}");
        let document: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!((&document["orders_done"], &document["log_number"]), (&1.into(), &1.into()));
        let stocks = std::fs::read_to_string(home.path("stock.txt")).unwrap();
        assert_eq!(stocks, "1 99990 10\n2 100000 20\n");
    }
}

#[test]
fn wrong_starts_are_refused_with_one_clear_error() {
    let home = Home::new();
    home.run(&["serve"]).one_error(1, &["stock.txt", "--stock"]);
    std::fs::write(home.path("stock.txt"), "1 2 three\n").unwrap();
    home.run(&["serve"]).one_error(2, &["line 1", "NUMBER LEFT PRICE"]);
    std::fs::write(home.path("stock.txt"), STOCKS).unwrap();
    home.run(&["serve", "--model", "io-threads", "--sharing", "global"]).one_error(3, &["writer"]);
    let atomic = ["serve", "--sharing", "atomic", "--durability", "group"];
    home.run(&atomic).one_error(3, &["durability none"]);
    home.run(&["serve", "--connections", "1000000"]).one_error(3, &["ulimit"]);
    let mut first = serve(&home, &[]);
    let taken = ["serve", "--listen", &first.address];
    home.run(&taken).one_error(1, &["--listen"]);
    home.run(&["serve", "--listen", "127.0.0.1:0"]).one_error(1, &["stock.txt.store", "locked"]);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
}
