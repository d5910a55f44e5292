//! Runs the program as a server, sends orders under load, and checks that none is lost.

use ioloom_serve::{StoreKind, probe_store};
use ioloom_testbed::Workspace;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// Number of concurrent clients.
pub(crate) const CLIENTS: usize = 3;
/// Orders per client name, fewer than the server remembers.
const ORDERS: usize = 100;
/// Names used by each client, one after another.
const NAMES: usize = 40;
/// Initial shares per stock, sufficient for all orders.
const LEFT: i64 = 100_000;
pub(crate) const STOCKS: &str = "1 100000 10\n2 100000 20\n";
/// Timeout for an answer. At level `each` it waits for the syncs of all orders sent with it, and on a
/// busy disk a sync can take half a second: 64 of them, the most that a server executes together, took
/// longer than an earlier limit of 20 s.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of orders that a client sends before it reads their answers.
const AT_ONCE: usize = 10;
/// Maximum number of retries per order.
const TRIES: usize = 12_000;
/// Delay before each retry.
const PAUSE: Duration = Duration::from_millis(10);

/// Creates a workspace with a stock file.
pub(crate) fn place() -> Workspace {
    let place = Workspace::new(env!("CARGO_BIN_EXE_ioloom"));
    place.write("stock.txt", STOCKS);
    place
}

/// Creates a workspace in memory, or on a disk if the store does not work in memory. For tests in which
/// the machine does not fail.
pub(crate) fn place_for(store: &str) -> Workspace {
    let place = Workspace::in_memory_or_on_disk(env!("CARGO_BIN_EXE_ioloom"));
    let kind: StoreKind = store.parse().expect("a store name");
    let place = if probe_store(kind, place.path()).is_ok() { place } else { self::place() };
    place.write("stock.txt", STOCKS);
    place
}

/// Creates a workspace for the image of a disk whose power is cut: what counts is what the file
/// system has passed to the device, and not where the device keeps it.
pub(crate) fn place_for_image() -> Workspace {
    Workspace::in_memory_or_on_disk(env!("CARGO_BIN_EXE_ioloom"))
}

/// Returns whether a store can be created below a directory, and prints the reason if not.
pub(crate) fn is_possible(store: &str, dir: &Path) -> bool {
    let kind: StoreKind = store.parse().expect("a store name");
    let probed = probe_store(kind, dir);
    probed.inspect_err(|reason| println!("skipped: {reason}")).is_ok()
}

/// Returns a command that runs a server on a free port in a directory with a stock file.
pub(crate) fn serve_in(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ioloom"));
    add_args(&mut command, dir, args);
    command
}

/// Adds the server arguments to the command of another program.
pub(crate) fn add_args(command: &mut Command, dir: &Path, args: &[&str]) {
    command.current_dir(dir).stdin(Stdio::null()).env("NO_COLOR", "1").env("COLUMNS", "80");
    command.args(["serve", "--listen", "127.0.0.1:0", "--dialect", "line"]).args(args);
}

/// A server process, killed on drop.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) said: BufReader<ChildStderr>,
}

impl Served {
    /// Starts the server.
    ///
    /// # Errors
    /// Returns the output if the server does not start.
    pub(crate) fn try_start(command: &mut Command) -> Result<Self, String> {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program starts");
        let mut said = BufReader::new(child.stderr.take().expect("stderr was requested"));
        let mut line = String::new();
        said.read_line(&mut line).expect("text");
        let Some(address) = line.trim().strip_prefix("ioloom: listening on ") else {
            let _ = said.read_to_string(&mut line);
            let _ = child.wait();
            return Err(line);
        };
        let address = address.to_owned();
        Ok(Self { child, address, said })
    }

    pub(crate) fn start(command: &mut Command) -> Self {
        Self::try_start(command).unwrap_or_else(|said| panic!("the server did not start: {said}"))
    }

    pub(crate) fn in_dir(dir: &Path, args: &[&str]) -> Self {
        Self::start(&mut serve_in(dir, args))
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
    }

    /// Waits for the server to exit. Returns its status and the rest of its output.
    pub(crate) fn ended(&mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("text");
        (self.child.wait().expect("it is a child process"), rest)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A client of the numbered protocol.
pub(crate) struct Client {
    lines: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn new(address: &str, name: &str) -> Option<Self> {
        let mut client = Self::plain(address)?;
        client.ask(&format!("HELLO stock/2 client={name}"))?;
        Some(client)
    }

    /// Connects with the original protocol, with unpadded lines.
    pub(crate) fn plain(address: &str) -> Option<Self> {
        Self::over(TcpStream::connect(address).ok()?)
    }

    /// Uses a connection.
    pub(crate) fn over(stream: TcpStream) -> Option<Self> {
        stream.set_read_timeout(Some(PATIENCE)).expect("a nonzero timeout");
        stream.set_nodelay(true).ok()?;
        Some(Self { lines: BufReader::new(stream) })
    }

    pub(crate) fn set_patience(&self, patience: Duration) {
        self.lines.get_ref().set_read_timeout(Some(patience)).expect("a nonzero timeout");
    }

    pub(crate) fn say(&mut self, text: &str) -> Option<()> {
        self.lines.get_mut().write_all(text.as_bytes()).ok()
    }

    /// Sends a line and returns its answer, or `None` if the server has exited.
    pub(crate) fn ask(&mut self, text: &str) -> Option<String> {
        self.say(&format!("{text}\n"))?;
        self.line()
    }

    /// Returns the final answer to a request, repeating it while the database is down or the outcome is
    /// unknown.
    pub(crate) fn settled(&mut self, request: &str) -> Option<String> {
        for _ in 0..TRIES {
            let answer = self.ask(request)?;
            if is_settled(&answer) {
                return Some(answer);
            }
            std::thread::sleep(PAUSE);
        }
        None
    }

    pub(crate) fn line(&mut self) -> Option<String> {
        self.try_line().ok()
    }

    /// Reads lines without returning them.
    pub(crate) fn skip(&mut self, lines: usize) {
        let mut line = Vec::new();
        for _ in 0..lines {
            line.clear();
            self.lines.read_until(b'\n', &mut line).expect("it serves");
            assert!(line.ends_with(b"\n"), "the server has closed the connection");
        }
    }

    /// Returns the next line, or why there is none.
    fn try_line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line);
        match read {
            Ok(_) if line.ends_with('\n') => Ok(line.trim_end().to_owned()),
            Ok(_) => Err(format!("the connection was closed after {line:?}")),
            Err(error) => Err(format!("{error} after {line:?}")),
        }
    }
}

fn is_settled(answer: &str) -> bool {
    !answer.ends_with(" ERR busy") && !answer.ends_with(" ERR unknown-outcome")
}

/// A seeded pseudo-random number generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % most.max(1)
    }

    /// Returns a random delay before killing a server under load.
    pub(crate) fn moment(&mut self) -> Duration {
        Duration::from_micros(2_000 + self.below(110_000))
    }
}

fn name(client: usize, lap: usize) -> String {
    format!("c{client}-{lap}")
}

fn order(client: usize, id: usize) -> String {
    let side = if (client + id).is_multiple_of(3) { "SELL" } else { "BUY" };
    format!("{id} {side} {} {}", id % 2 + 1, client + 1)
}

/// Answers for one client name, by request number.
type Answers = BTreeMap<usize, String>;
/// Answers for all names of all clients.
pub(crate) type Heard = Vec<Vec<Answers>>;

pub(crate) fn count(heard: &Heard) -> usize {
    heard.iter().flatten().map(BTreeMap::len).sum()
}

/// Sends the orders of one client name, `at_once` at a time. Returns `None` if the server exits.
fn lap(
    address: &str,
    (client, lap): (usize, usize),
    at_once: usize,
    heard: &Mutex<Heard>,
) -> Option<()> {
    heard.lock().expect("no panic")[client].push(Answers::new());
    let mut connection = Client::new(address, &name(client, lap))?;
    let ids: Vec<usize> = (1..=ORDERS).collect();
    for ids in ids.chunks(at_once) {
        connection.say(&ids.iter().map(|id| order(client, *id) + "\n").collect::<String>())?;
        for id in ids {
            let answer = connection.line()?;
            if !is_settled(&answer) {
                continue;
            }
            heard.lock().expect("no panic")[client][lap].insert(*id, answer);
        }
    }
    Some(())
}

/// Sends orders from several clients, one of them pipelined, and kills the server after a delay.
/// Returns the received answers.
pub(crate) fn killed_under_load(server: &mut Served, after: Duration) -> Heard {
    let heard = Mutex::new(vec![Vec::new(); CLIENTS]);
    let address = server.address.clone();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (heard, address) = (&heard, &address);
            let at_once = if client == 0 { AT_ONCE } else { 1 };
            let laps =
                move || (0..NAMES).try_for_each(|at| lap(address, (client, at), at_once, heard));
            scope.spawn(laps);
        }
        std::thread::sleep(after);
        server.kill();
    });
    heard.into_inner().expect("no panic")
}

pub(crate) fn log_number(answer: &str) -> u64 {
    let word = answer.rsplit(' ').next().expect("a word");
    word.parse().unwrap_or_else(|_| panic!("no number in {answer:?}"))
}

/// The log of a restarted server.
pub(crate) struct Recovered {
    /// Number of orders in the log.
    pub(crate) orders: u64,
    /// Number of acknowledged orders missing from the log.
    pub(crate) lost: usize,
}

/// Numbering of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Consecutive: if an order is present, so are all earlier ones.
    Dense,
    /// Those of a database, which can commit transactions in a different order.
    WithGaps,
}

/// Compares the state of a restarted server with the answers received before: the log must be a prefix
/// of the sent orders, and the stocks must match the log.
pub(crate) fn recovered(
    server: &Served,
    heard: &Heard,
    numbers_are: Numbers,
    case: &str,
) -> Recovered {
    let mut watcher = Client::new(&server.address, "watcher").expect("it serves");
    let orders = log_number(&watcher.settled("1 SHOW").expect("a list"));
    let left = |line: String| line.split(' ').nth(1).and_then(|word| word.parse().ok());
    let mut stock = || watcher.line().and_then(left).expect("a stock");
    let mut left: [i64; 2] = [stock(), stock()];
    // Every client repeats all orders. Recovered orders must get the same answers without being
    // executed again.
    let (mut numbers, mut lost) = (Vec::new(), 0);
    for (client, lap, heard) in heard.iter().enumerate().flat_map(|(client, laps)| {
        laps.iter().enumerate().map(move |(lap, heard)| (client, lap, heard))
    }) {
        let mut again = Client::new(&server.address, &name(client, lap)).expect("it serves");
        let mut answers = Vec::new();
        let ids: Vec<_> = (1..=ORDERS).collect();
        for ids in ids.chunks(AT_ONCE) {
            again.say(&ids.iter().map(|id| order(client, *id) + "\n").collect::<String>());
            for id in ids {
                let answer = again.try_line();
                answers.push(answer.unwrap_or_else(|why| panic!("{case}: order {id}: {why}")));
            }
        }
        for (id, answer) in (1..=ORDERS).zip(answers) {
            let order = order(client, id);
            let settled = is_settled(&answer).then_some(answer);
            let answer = settled.or_else(|| again.settled(&order)).expect("an answer");
            let number = log_number(&answer);
            match heard.get(&id) {
                Some(before) if number <= orders => {
                    assert_eq!(answer, *before, "{case}: different answer to a recovered order");
                }
                Some(before) => {
                    let is_behind = numbers_are == Numbers::WithGaps || log_number(before) > orders;
                    assert!(is_behind, "{case}: {before} is missing, the log has {orders}");
                    lost += 1;
                }
                None => {}
            }
            if number <= orders {
                numbers.push(number);
                let count = i64::try_from(client + 1).expect("small");
                left[id % 2] += if order.contains("BUY") { count } else { -count };
            }
        }
    }
    numbers.sort_unstable();
    if numbers_are == Numbers::Dense {
        assert_eq!(numbers, (1..=orders).collect::<Vec<_>>(), "{case}: the log has gaps");
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "{case}: two orders have the same number");
    let orders = numbers.len() as u64;
    assert_eq!(left, [LEFT; 2], "{case}: the stocks do not match the log");
    Recovered { orders, lost }
}
