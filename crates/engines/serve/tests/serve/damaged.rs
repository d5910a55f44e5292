//! Stores whose files were cut or had a bit turned. Opening one gives a state that the server was
//! once in, or a refusal with one clear error; never another state.
//!
//! Each case is a copy of the same store with one damage. A server that starts on it must list the
//! stocks as they were after the number of orders that it tells, and its client, who sends everything
//! again, must hear what it heard at first: orders that are there are repeated, orders that are lost
//! are carried out as before.

use crate::bench::{Bench, Client, config, is_store_possible};
use ioloom_serve::{Durability, Model, ServeOptions, Server, StoreKind};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Orders of the client: enough for several pages, and fewer than are remembered of it.
const ORDERS: usize = 60;
/// Cuts of each file; `IOLOOM_DAMAGES` sets another number of these and of the next.
const CUTS: usize = 12;
/// Bits that are turned in each file.
const BITS: usize = 30;

const RAW_LOGS: [StoreKind; 4] =
    [StoreKind::Log, StoreKind::LogDsync, StoreKind::LogDirect, StoreKind::LogUring];

fn damages(usual: usize) -> usize {
    std::env::var("IOLOOM_DAMAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Numbers that look random and come from a seed.
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

/// What a client heard, and the stocks after each number of orders.
struct Told {
    answers: Vec<String>,
    lists: Vec<[String; 3]>,
}

fn list(client: &mut Client) -> (usize, [String; 3]) {
    client.say("1000 SHOW\n");
    let head = client.line();
    let seq = head.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
    (seq, [client.line(), client.line(), client.line()])
}

/// Gives a server its orders, one after the other, each with the list after it.
fn trade(bench: &Bench) -> (Told, Client) {
    let mut client = Client::new(bench.address);
    client.say("HELLO stock/2 client=a\n");
    client.line();
    let mut told = Told { answers: Vec::new(), lists: vec![list(&mut client).1] };
    for number in 1..=ORDERS {
        client.say(order(number));
        told.answers.push(client.line());
        let (seq, stocks) = list(&mut client);
        assert_eq!(seq, number);
        told.lists.push(stocks);
    }
    (told, client)
}

/// Copies a store and its stock file, holes and all.
fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.args(["-rT", "--sparse=auto"]).arg(from).arg(to);
    assert!(command.status().unwrap().success());
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The files of the store in a directory, with how much of each is more than zeros.
fn store_files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let own = |path: &PathBuf| path.file_name().is_some_and(|name| name != "stock.txt");
    let used = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at as u64 + 1)
    };
    let all = files(dir).into_iter().filter(own);
    all.map(|path| (path.strip_prefix(dir).unwrap().to_owned(), used(&path))).collect()
}

enum Damage {
    Cut(u64),
    Turned(u64),
}

fn damage(path: &Path, damage: &Damage) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    match damage {
        Damage::Cut(bytes) => file.set_len(*bytes).unwrap(),
        Damage::Turned(bit) => {
            let mut byte = [0];
            file.read_exact_at(&mut byte, bit / 8).unwrap();
            file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], bit / 8).unwrap();
        }
    }
}

/// Starts a server on a damaged store; whether it did.
fn look(dir: TempDir, change: &dyn Fn(&mut ServeOptions), told: &Told, case: &str) -> bool {
    let mut config = config(&dir, Model::Epoll);
    change(&mut config);
    // A panic of an engine would be no refusal.
    let started = std::thread::scope(|scope| {
        let start = scope.spawn(|| Server::start(&config).map(drop).map_err(|e| e.to_string()));
        start.join().unwrap_or_else(|_| panic!("{case}: a panic"))
    });
    if let Err(error) = started {
        let refused = error.contains("store") && error.contains("remove");
        assert!(refused && error.lines().count() == 1, "{case}: {error}");
        return false;
    }
    let bench = Bench::in_dir(dir, Model::Epoll, change);
    let mut client = Client::new(bench.address);
    client.say("HELLO stock/2 client=a\n");
    client.line();
    let (seq, stocks) = list(&mut client);
    assert!(seq <= ORDERS, "{case}: order {seq} was never given");
    assert_eq!(stocks, told.lists[seq], "{case}: the stocks after {seq} orders");
    client.say((1..=ORDERS).map(order).collect::<String>());
    for answer in &told.answers {
        assert_eq!(client.line(), *answer, "{case}, {seq} orders");
    }
    true
}

fn damaged(
    kind: StoreKind,
    whole: &Path,
    change: &dyn Fn(&mut ServeOptions),
    told: &Told,
    how: &str,
) {
    let mut random = Random(kind as u64 + 1);
    let (mut opened, mut refused) = (0, 0);
    let mut try_one = |name: &Path, this: Damage| {
        let dir = TempDir::new().unwrap();
        copy(whole, dir.path());
        damage(&dir.path().join(name), &this);
        let what = match this {
            Damage::Cut(bytes) => format!("cut at {bytes}"),
            Damage::Turned(bit) => format!("bit {bit} turned"),
        };
        let case = format!("{kind}, {how}, {}: {what}", name.display());
        match look(dir, change, told, &case) {
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
            // Half of them in the head, where the structure of a file stands.
            let within = if at % 2 == 0 { used.min(512) } else { used };
            if used > 0 {
                try_one(&name, Damage::Turned(random.below(within * 8)));
            }
        }
    }
    println!("{kind}, {how}: {opened} opened, {refused} refused");
    assert!(refused > 0, "{kind}, {how}: no damage was noticed");
}

fn cut_and_turned(kind: StoreKind) {
    let change = |config: &mut ServeOptions| {
        (config.durability, config.store.kind) = (Durability::Group, kind);
    };
    let bench = Bench::with(Model::Epoll, change);
    let (told, client) = trade(&bench);
    // As it lies there when the program is killed, and as it is left by a stop.
    let killed = TempDir::new().unwrap();
    copy(bench.dir.path(), killed.path());
    drop(client);
    let (stopped, _) = bench.end();
    for (whole, how) in [(&killed, "killed"), (&stopped, "stopped")] {
        let dir = TempDir::new().unwrap();
        copy(whole.path(), dir.path());
        assert!(look(dir, &change, &told, &format!("{kind}, {how}, undamaged")));
        damaged(kind, whole.path(), &change, &told, how);
    }
}

#[test]
fn a_damaged_store_of_sqlite_gives_a_prefix_or_is_refused() {
    cut_and_turned(StoreKind::Sqlite);
}

#[test]
fn a_damaged_store_of_redb_gives_a_prefix_or_is_refused() {
    cut_and_turned(StoreKind::Redb);
}

#[test]
fn a_damaged_store_of_fjall_gives_a_prefix_or_is_refused() {
    cut_and_turned(StoreKind::Fjall);
}

/// Some places of each; every byte and every bit of small ones are tests of the logs themselves.
#[test]
fn a_damaged_raw_log_gives_a_prefix_or_is_refused() {
    let dir = TempDir::new().unwrap();
    for kind in RAW_LOGS.into_iter().filter(|kind| is_store_possible(*kind, &dir)) {
        cut_and_turned(kind);
    }
}

/// A store that is there and holds nothing was cut: to begin anew would carry out orders again that
/// clients only repeat.
#[test]
fn an_empty_file_is_no_new_store() {
    for kind in [StoreKind::Sqlite, StoreKind::Redb].into_iter().chain(RAW_LOGS) {
        let dir = TempDir::new().unwrap();
        File::create(dir.path().join("store")).unwrap();
        let mut config = config(&dir, Model::Epoll);
        (config.durability, config.store.kind) = (Durability::Group, kind);
        let error = Server::start(&config).err().expect("it must be refused").to_string();
        assert!(error.contains("--store-path"), "{kind}: {error}");
    }
}
