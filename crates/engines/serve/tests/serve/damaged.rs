//! Stores with truncated files or flipped bits. Opening one yields either a state that the server
//! once had or a single clear error; never another state.
//!
//! Each case is a copy of the same store with one fault. A server that starts on it must list the
//! stocks as they were after the number of orders that it reports. Its client sends everything
//! again and must get the original answers: surviving orders are answered from memory, lost ones
//! are executed again.

use crate::bench::{Bench, Client, config, dir_for, is_store_possible, used_bytes};
use ioloom_serve::{Durability, Model, ServeOptions, Server, StoreKind};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Number of orders: enough for several pages, but fewer than the server remembers per client.
const ORDERS: usize = 60;
/// Truncations per file; `IOLOOM_DAMAGES` overrides this and the next number.
const CUTS: usize = 12;
/// Flipped bits per file.
const BITS: usize = 30;

const RAW_LOGS: [StoreKind; 4] =
    [StoreKind::Log, StoreKind::LogDsync, StoreKind::LogDirect, StoreKind::LogUring];

fn damages(usual: usize) -> usize {
    std::env::var("IOLOOM_DAMAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Seeded pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % most.max(1)
    }
}

fn order(number: usize) -> String {
    let side = if number.is_multiple_of(3) { "SELL" } else { "BUY" };
    format!("{number} {side} {} {}\n", number % 3 + 1, number % 5 + 1)
}

/// A client's answers, and the stocks after each order.
struct Trades {
    answers: Vec<String>,
    lists: Vec<[String; 3]>,
}

fn list(client: &mut Client) -> (usize, [String; 3]) {
    client.send("1000 SHOW\n");
    let head = client.line();
    let seq = head.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
    (seq, [client.line(), client.line(), client.line()])
}

/// Sends the orders one at a time, each followed by a list.
fn trade(bench: &Bench) -> (Trades, Client) {
    let mut client = Client::new(bench.address);
    client.send("HELLO stock/2 client=a\n");
    client.line();
    let mut trades = Trades { answers: Vec::new(), lists: vec![list(&mut client).1] };
    for number in 1..=ORDERS {
        client.send(order(number));
        trades.answers.push(client.line());
        let (seq, stocks) = list(&mut client);
        assert_eq!(seq, number);
        trades.lists.push(stocks);
    }
    (trades, client)
}

/// Copies a store and its stock file, preserving holes.
fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.args(["-rT", "--sparse=auto"]).arg(from).arg(to);
    assert!(command.status().unwrap().success());
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the files of the store in a directory, and how much of each is nonzero.
fn store_files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let own = |path: &PathBuf| path.file_name().is_some_and(|name| name != "stock.txt");
    let all = files(dir).into_iter().filter(own);
    all.map(|path| (path.strip_prefix(dir).unwrap().to_owned(), used_bytes(&path))).collect()
}

enum Damage {
    Cut(u64),
    Flipped(u64),
}

fn damage(path: &Path, damage: &Damage) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    match damage {
        Damage::Cut(bytes) => file.set_len(*bytes).unwrap(),
        Damage::Flipped(bit) => {
            let mut byte = [0];
            file.read_exact_at(&mut byte, bit / 8).unwrap();
            file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], bit / 8).unwrap();
        }
    }
}

/// Starts a server on a damaged store and checks it; returns true if it started.
fn check(dir: TempDir, change: &dyn Fn(&mut ServeOptions), trades: &Trades, case: &str) -> bool {
    let mut config = config(&dir, Model::Epoll);
    change(&mut config);
    // A storage engine panic is not a valid refusal.
    let started = std::thread::scope(|scope| {
        let start = scope.spawn(|| Server::start(&config).map(drop).map_err(|e| e.to_string()));
        start.join().unwrap_or_else(|_| panic!("{case}: the thread panicked"))
    });
    if let Err(error) = started {
        // A file whose head is damaged may be another file of the user.
        let has_advice = error.contains("remove") || error.contains("--store-path");
        let refused = error.contains("store") && has_advice;
        assert!(refused && error.lines().count() == 1, "{case}: {error}");
        return false;
    }
    let bench = Bench::in_dir(dir, Model::Epoll, change);
    let mut client = Client::new(bench.address);
    client.send("HELLO stock/2 client=a\n");
    client.line();
    let (seq, stocks) = list(&mut client);
    assert!(seq <= ORDERS, "{case}: order {seq} was never sent");
    assert_eq!(stocks, trades.lists[seq], "{case}: the stocks after {seq} orders");
    client.send((1..=ORDERS).map(order).collect::<String>());
    for answer in &trades.answers {
        assert_eq!(client.line(), *answer, "{case}, {seq} orders");
    }
    true
}

fn damaged(
    kind: StoreKind,
    whole: &Path,
    change: &dyn Fn(&mut ServeOptions),
    trades: &Trades,
    how: &str,
) {
    let mut random = Random(kind as u64 + 1);
    let (mut opened, mut refused) = (0, 0);
    let mut try_one = |name: &Path, this: Damage| {
        let dir = dir_for(kind);
        copy(whole, dir.path());
        damage(&dir.path().join(name), &this);
        let what = match this {
            Damage::Cut(bytes) => format!("cut at {bytes}"),
            Damage::Flipped(bit) => format!("bit {bit} flipped"),
        };
        let case = format!("{kind}, {how}, {}: {what}", name.display());
        match check(dir, change, trades, &case) {
            true => opened += 1,
            false => refused += 1,
        }
    };
    for (name, used) in store_files(whole) {
        try_one(&name, Damage::Cut(0));
        for _ in 0..damages(CUTS) {
            try_one(&name, Damage::Cut(random.below(used)));
        }
        for at in 0..damages(BITS) as u64 {
            // Half of them are near the beginning, which contains the file structure.
            let within = if at % 2 == 0 { used.min(512) } else { used };
            if used > 0 {
                try_one(&name, Damage::Flipped(random.below(within * 8)));
            }
        }
    }
    println!("{kind}, {how}: {opened} opened, {refused} refused");
    assert!(refused > 0, "{kind}, {how}: no damage was detected");
}

fn truncated_and_flipped(kind: StoreKind) {
    let change = |config: &mut ServeOptions| {
        (config.durability, config.store.kind) = (Durability::Group, kind);
    };
    let bench = Bench::in_dir(dir_for(kind), Model::Epoll, change);
    let (trades, client) = trade(&bench);
    // As left by a killed program, and by a clean stop.
    let killed = dir_for(kind);
    copy(bench.dir.path(), killed.path());
    drop(client);
    let (stopped, _) = bench.end();
    let (trades, change) = (&trades, &change);
    std::thread::scope(|scope| {
        for (whole, how) in [(&killed, "killed"), (&stopped, "stopped")] {
            scope.spawn(move || {
                let dir = dir_for(kind);
                copy(whole.path(), dir.path());
                assert!(check(dir, change, trades, &format!("{kind}, {how}, undamaged")));
                damaged(kind, whole.path(), change, trades, how);
            });
        }
    });
}

#[test]
fn a_damaged_store_of_sqlite_gives_a_prefix_or_is_refused() {
    truncated_and_flipped(StoreKind::Sqlite);
}

#[test]
fn a_damaged_store_of_redb_gives_a_prefix_or_is_refused() {
    truncated_and_flipped(StoreKind::Redb);
}

#[test]
fn a_damaged_store_of_fjall_gives_a_prefix_or_is_refused() {
    truncated_and_flipped(StoreKind::Fjall);
}

/// Some offsets in each file; the unit tests of the logs cover every byte and bit of small ones.
#[test]
fn a_damaged_raw_log_gives_a_prefix_or_is_refused() {
    let is_possible = |kind: &StoreKind| is_store_possible(*kind, &dir_for(*kind));
    std::thread::scope(|scope| {
        for kind in RAW_LOGS.into_iter().filter(is_possible) {
            scope.spawn(move || truncated_and_flipped(kind));
        }
    });
}

/// An empty store file must have been truncated: starting over would execute orders again that
/// clients merely repeat.
#[test]
fn an_empty_file_is_not_a_new_store() {
    for kind in [StoreKind::Sqlite, StoreKind::Redb].into_iter().chain(RAW_LOGS) {
        let dir = dir_for(kind);
        File::create(dir.path().join("store")).unwrap();
        let mut config = config(&dir, Model::Epoll);
        (config.durability, config.store.kind) = (Durability::Group, kind);
        let error = Server::start(&config).err().expect("the store must be refused").to_string();
        assert!(error.contains("--store-path"), "{kind}: {error}");
    }
}
