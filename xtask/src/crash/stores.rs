//! A server that is killed under load, with each of its stores.
//!
//! After each kill, the orders in the log must be numbered without gaps, the stocks must be the sum
//! of those orders, and every acknowledged order must be among them with its answer. After a
//! restart, the clients repeat all orders, which reveals the rest: a stored order is answered as a
//! repeat, and a lost order is executed.

use super::home::{Home, Random};
use crate::guard::Kept;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Combinations of model and durability. Their number is coprime to the number of stores, which
/// makes all combinations occur.
pub(super) const MODELS: [[&str; 2]; 7] = [
    ["epoll", "global"],
    ["thread", "stock"],
    ["io-threads", "writer"],
    ["reuseport", "shards"],
    ["pool", "rw"],
    ["request-pool", "global"],
    ["tokio", "stock"],
];
/// Maximum time before a server is killed, from when it starts listening.
pub(super) const KILL_MAX: Duration = Duration::from_millis(120);
/// Part of the server's message if the system does not support its store.
const ANOTHER_STORE: &str = "; use store log";
/// Time limit for a server to listen and to answer.
const PATIENCE: Duration = Duration::from_secs(30);
const CLIENTS: usize = 2;
/// Number of orders per client, fewer than the server remembers per client.
pub(super) const ORDERS: u64 = 100;
/// Initial amount of each stock, which exceeds the orders of a round.
const LEFT: i64 = 1_000_000;

/// Answers by order number.
pub(super) type Answers = BTreeMap<u64, String>;

/// A home for all servers, and the count of acknowledged orders.
pub(super) struct Stores {
    home: Home,
    rounds: usize,
    /// Number of orders acknowledged before a kill.
    pub(super) acknowledged: usize,
}

impl Stores {
    pub(super) fn new(home: Home) -> Self {
        Self { home, rounds: 0, acknowledged: 0 }
    }

    /// Kills a server up to three times with the same store. Returns the number of kills, or 0 if
    /// the system does not support the store.
    pub(super) fn crash(&mut self, random: &mut Random) -> anyhow::Result<u32> {
        let (store, durability) = self.store_of_the_round()?;
        let [model, sharing] = MODELS[self.rounds % MODELS.len()];
        self.rounds += 1;
        let dir = self.home.0.join("store");
        make_stocks(&dir)?;
        let args = [
            ["--stock", "store/stock.txt"],
            ["--listen", "127.0.0.1:0"],
            ["--store", store],
            ["--durability", durability],
            ["--model", model],
            ["--sharing", sharing],
        ];
        let args = [&["serve", "--dialect", "line"][..], args.as_flattened()].concat();
        let mut log = Log::default();
        let mut kills = 1 + random.next() % 3;
        for life in 0..kills {
            let of = || format!("life {life} with {store}, {durability}, {model}, {sharing}");
            let (running, address) = match serve(&self.home, &args) {
                Err(e) if e.to_string().contains(ANOTHER_STORE) => {
                    kills = 0;
                    break;
                }
                served => served.with_context(of)?,
            };
            let names = names(life);
            let crash = || drop(running);
            let heard = ordered(&address, &names, random.moment(KILL_MAX), crash);
            self.acknowledged += heard.iter().map(BTreeMap::len).sum::<usize>();
            let (running, address) = serve(&self.home, &args).with_context(of)?;
            log.take(&address, &names, &heard).with_context(of)?;
            drop(running);
        }
        std::fs::remove_dir_all(&dir).context("remove a store")?;
        Ok(u32::try_from(kills).unwrap_or(u32::MAX))
    }

    fn store_of_the_round(&self) -> anyhow::Result<(&'static str, &'static str)> {
        ioloom_testbed::stores().cycle().nth(self.rounds).context("the list of stores is empty")
    }
}

/// Creates a directory with a stock file.
pub(super) fn make_stocks(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(dir).context("create a directory for stocks")?;
    let text = format!("1 {LEFT} 10\n2 {LEFT} 20\n");
    std::fs::write(dir.join("stock.txt"), text).context("write a stock file")
}

/// The names of all clients of one server process.
pub(super) fn names(life: u64) -> Vec<String> {
    (0..CLIENTS).map(|client| format!("l{life}c{client}")).collect()
}

/// Starts a server and reads its address from its first line of output.
pub(super) fn serve(home: &Home, args: &[&str]) -> anyhow::Result<(Kept, String)> {
    let mut running = home.start(args)?;
    let since = Instant::now();
    loop {
        let said = std::fs::read_to_string(home.0.join("said")).unwrap_or_default();
        let address = said.strip_prefix("ioloom: listening on ");
        if let Some((address, _)) = address.and_then(|rest| rest.split_once('\n')) {
            return Ok((running, address.to_owned()));
        }
        if let Some(code) = running.wait(Duration::from_millis(2))? {
            bail!("the server exited with {code}: {}", said.trim());
        }
        ensure!(since.elapsed() < PATIENCE, "the server does not listen: {}", said.trim());
    }
}

/// Sends the clients' orders and kills the server after some time. Returns the acknowledged orders
/// per client.
pub(super) fn ordered(
    address: &str,
    names: &[String],
    after: Duration,
    crash: impl FnOnce(),
) -> Vec<Answers> {
    let heard = Mutex::new(vec![Answers::new(); names.len()]);
    std::thread::scope(|scope| {
        for (at, name) in names.iter().enumerate() {
            let heard = &heard;
            scope.spawn(move || {
                let mut client = Client::new(address, name).ok()?;
                for number in 1..=ORDERS {
                    let answer = client.ask(&order(number)).ok()?;
                    if answer.contains(" OK ") {
                        heard.lock().expect("no panic under this lock")[at].insert(number, answer);
                    }
                }
                Some(())
            });
        }
        std::thread::sleep(after);
        crash();
    });
    heard.into_inner().expect("no panic under this lock")
}

pub(super) fn order(number: u64) -> String {
    let side = if number.is_multiple_of(3) { "SELL" } else { "BUY" };
    format!("{number} {side} {} {}\n", number % 2 + 1, number % 7 + 1)
}

/// Returns the change an order makes to its stock.
fn change(number: u64) -> i64 {
    let count = i64::try_from(number % 7 + 1).unwrap_or_default();
    if number.is_multiple_of(3) { count } else { -count }
}

/// Every order of a round by log number, with its stock and change.
#[derive(Default)]
pub(super) struct Log(BTreeMap<u64, (u64, i64)>);

impl Log {
    /// Records the log number of an order.
    pub(super) fn note(&mut self, seq: u64, number: u64) -> anyhow::Result<()> {
        let is_new = self.0.insert(seq, (number % 2, change(number))).is_none();
        ensure!(is_new, "two orders have number {seq}");
        Ok(())
    }

    /// Compares the stocks with the sum of the orders. Returns the latest number.
    pub(super) fn lead_to(&self, left: [i64; 2]) -> anyhow::Result<u64> {
        let mut expected = [LEFT; 2];
        for (stock, change) in self.0.values() {
            expected[usize::try_from(*stock)?] += change;
        }
        ensure!(left == expected, "the stocks are {left:?}, the log adds up to {expected:?}");
        Ok(self.0.keys().next_back().copied().unwrap_or_default())
    }

    /// Sends the orders of the clients, which had received `heard`, to a restarted server.
    fn take(&mut self, address: &str, names: &[String], heard: &[Answers]) -> anyhow::Result<()> {
        let mut watcher = Client::new(address, "watcher")?;
        let (there, _) = watcher.list()?;
        for (name, heard) in names.iter().zip(heard) {
            let mut client = Client::new(address, name)?;
            client.say(&(1..=ORDERS).map(order).collect::<String>())?;
            for number in 1..=ORDERS {
                let answer = client.line()?;
                let seq = last_number(&answer)?;
                if let Some(before) = heard.get(&number) {
                    ensure!(answer == *before, "{before:?} was acknowledged, now it is {answer:?}");
                    ensure!(seq <= there, "order {seq} was acknowledged, only {there} exist");
                }
                self.note(seq, number)?;
            }
        }
        let (latest, left) = watcher.list()?;
        ensure!(self.0.keys().copied().eq(1..=latest), "the log has gaps before {latest}");
        self.lead_to(left).map(drop)
    }
}

pub(super) fn last_number(line: &str) -> anyhow::Result<u64> {
    let word = line.rsplit(' ').next().unwrap_or_default();
    word.parse().with_context(|| format!("{line:?} has no number"))
}

pub(super) struct Client(BufReader<TcpStream>);

impl Client {
    pub(super) fn new(address: &str, name: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).context("connect")?;
        stream.set_read_timeout(Some(PATIENCE)).context("limit the time to read")?;
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        let mut client = Self(BufReader::new(stream));
        client.say(&format!("HELLO stock/2 client={name}\n"))?;
        client.line()?;
        Ok(client)
    }

    fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.0.get_mut().write_all(text.as_bytes()).context("send")
    }

    /// Sends a request of one line and returns the answer.
    pub(super) fn ask(&mut self, request: &str) -> anyhow::Result<String> {
        self.say(request)?;
        self.line()
    }

    /// Returns the next line without its line end.
    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).context("read an answer")?;
        ensure!(line.ends_with('\n'), "the server closed the connection");
        Ok(line.trim_end().to_owned())
    }

    /// Returns the number of the latest order and the remaining amounts of the two stocks.
    pub(super) fn list(&mut self) -> anyhow::Result<(u64, [i64; 2])> {
        self.say("1 SHOW\n")?;
        let latest = last_number(&self.line()?)?;
        let mut left = [0; 2];
        for left in &mut left {
            let line = self.line()?;
            let word = line.split(' ').nth(1).unwrap_or_default();
            *left = word.parse().with_context(|| format!("{line:?} is not a stock"))?;
        }
        Ok((latest, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_their_number_last() {
        assert_eq!(last_number("7 OK 90 17").unwrap(), 17);
        assert_eq!(last_number("3 STOCKS 2 5").unwrap(), 5);
        assert!(last_number("7 ERR late").is_err());
    }

    #[test]
    fn orders_change_stocks_as_they_say() {
        assert_eq!((order(3), change(3)), ("3 SELL 2 4\n".to_owned(), 4));
        assert_eq!((order(8), change(8)), ("8 BUY 1 2\n".to_owned(), -2));
        let most: i64 = (1..=ORDERS).map(|number| change(number).abs()).sum();
        assert!(most * 3 * i64::try_from(CLIENTS).unwrap() < LEFT);
    }
}
