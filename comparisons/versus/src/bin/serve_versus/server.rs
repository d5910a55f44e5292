//! The server of a run: started on a dedicated CPU, measured, and always stopped.

use crate::arms::{Arm, Level, Server};
use crate::client::{Client, Reply, left_of_list, number_of_text};
use anyhow::{Context, Result, bail, ensure};
use ioloom_sys::affinity::PinnedThread;
use ioloom_sys::clock::process_cpu_ns;
use ioloom_sys::proc;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// Initial stock.
pub(crate) const STOCK: i64 = 2_000_000_000;
/// The key of the stock in redis.
const KEY: &str = "stock:1";
/// The redis script: refuses to take more than is left, like the exchange.
const SCRIPT: &str = "local left = tonumber(redis.call('GET', KEYS[1])) \
     local count = tonumber(ARGV[1]) \
     if left == nil or left < count then return redis.error_reply('REFUSED not-enough') end \
     return redis.call('DECRBY', KEYS[1], ARGV[1])";
/// Time limit for starting and stopping a server.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);
/// Maximum size in bytes of an excerpt of a server's last output.
const WORDS_MAX: u64 = 2048;
/// Prefix of the exchange's line with the address.
const LISTENS: &str = "ioloom: listening on ";
/// SIGTERM.
const ASK: i32 = 15;

/// A running server.
pub(crate) struct Running {
    child: Child,
    said: BufReader<ChildStderr>,
    pub(crate) address: SocketAddr,
    /// The request that the load repeats.
    pub(crate) request: Vec<String>,
    client: Option<Client>,
    is_ours: bool,
}

impl Running {
    /// Starts the server of an arm in an empty directory and returns when it answers.
    pub(crate) fn start(arm: &Arm, dir: &Path, core: u32, redis: &str) -> Result<Self> {
        let mut running = match &arm.server {
            Server::Ours(words) => ours(words, arm, dir, core)?,
            Server::Decrby | Server::Evalsha => peer(redis, arm.level, dir, core)?,
        };
        let mut client = running.connect()?;
        let words: &[&str] = match arm.server {
            Server::Ours(_) => &["BUY", "1", "1"],
            Server::Decrby => {
                client.ask(&["SET", KEY, &STOCK.to_string()])?;
                &["DECRBY", KEY, "1"]
            }
            Server::Evalsha => {
                client.ask(&["SET", KEY, &STOCK.to_string()])?;
                let Reply::Text(sha) = client.ask(&["SCRIPT", "LOAD", SCRIPT])? else {
                    bail!("redis has no name for the script")
                };
                &["EVALSHA", &sha.clone(), "1", KEY, "1"]
            }
        };
        running.request = words.iter().map(|word| (*word).to_owned()).collect();
        running.client = Some(client);
        Ok(running)
    }

    fn connect(&mut self) -> Result<Client> {
        let start = Instant::now();
        loop {
            let asked = Client::connect(self.address)
                .and_then(|mut client| client.ask(&["PING"]).map(|_| client));
            match asked {
                Ok(client) => return Ok(client),
                Err(error) if start.elapsed() > PATIENCE => return Err(error),
                Err(_) => {}
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the server exited with {status}: {}", self.last_words());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn last_words(&mut self) -> String {
        let mut words = Vec::new();
        let _ = (&mut self.said).take(WORDS_MAX).read_to_end(&mut words);
        String::from_utf8_lossy(&words).trim().to_owned()
    }

    /// Returns the remaining stock.
    pub(crate) fn left(&mut self) -> Result<i64> {
        let client = self.client.as_mut().context("not connected")?;
        if self.is_ours {
            left_of_list(&client.ask(&["SHOW"])?)
        } else {
            number_of_text(&client.ask(&["GET", KEY])?)
        }
    }

    /// Returns its CPU time so far in ns.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        process_cpu_ns(self.child.id()).context("cannot read the server's processor time")
    }

    /// Returns its proportional set size in bytes.
    pub(crate) fn pss_bytes(&self) -> Result<u64> {
        let rollup = proc::smaps_rollup_of(self.child.id())?;
        rollup.pss_bytes.context("the kernel does not report the server's memory")
    }

    /// Stops it and waits until it has exited.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.client = None;
        proc::signal_child(&self.child, ASK)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the server exited with {status}: {}", self.last_words());
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        bail!("the server did not exit within 10 s and was killed")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a normal stop, both are expected to fail.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a program pinned to one CPU.
fn spawn(command: &mut Command, core: u32) -> Result<(Child, BufReader<ChildStderr>)> {
    let program = command.get_program().to_owned();
    let pinned = PinnedThread::pin(core).with_context(|| format!("cannot use processor {core}"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let spawned = command.spawn();
    drop(pinned);
    let mut child = spawned.with_context(|| format!("cannot start {}", program.display()))?;
    let said = child.stderr.take().context("a server without standard error")?;
    Ok((child, BufReader::new(said)))
}

fn running((child, said): (Child, BufReader<ChildStderr>), is_ours: bool) -> Running {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    Running { child, said, address, request: Vec::new(), client: None, is_ours }
}

fn ours(words: &[String], arm: &Arm, dir: &Path, core: u32) -> Result<Running> {
    let stock = dir.join("stock.txt");
    std::fs::write(&stock, format!("1 {STOCK} 100\n")).context("cannot write the stock file")?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg("--stock").arg(&stock);
    command.args(["--listen", "127.0.0.1:0", "--durability", arm.level.word()]);
    if arm.idle > 0 {
        command.args(["--connections", &(arm.idle + arm.connections + 64).to_string()]);
    }
    let mut running = running(spawn(&mut command, core)?, true);
    let (mut line, mut all) = (String::new(), String::new());
    while all.len() < WORDS_MAX as usize && running.said.read_line(&mut line)? > 0 {
        if let Some(address) = line.strip_prefix(LISTENS) {
            let word = address.split_whitespace().next().unwrap_or_default();
            running.address = word.parse().with_context(|| format!("listens on '{word}'"))?;
            return Ok(running);
        }
        all.push_str(&std::mem::take(&mut line));
    }
    bail!("{} did not print its address: {}", words[0], all.trim())
}

fn peer(redis: &str, level: Level, dir: &Path, core: u32) -> Result<Running> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let (append, sync) = level.of_redis();
    let mut command = Command::new(redis);
    command.current_dir(dir).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    // Disable snapshots and log rewriting, which would interfere.
    command.args(["--save", "", "--auto-aof-rewrite-percentage", "0", "--loglevel", "warning"]);
    command.args(["--appendonly", append, "--appendfsync", sync]);
    let mut running = running(spawn(&mut command, core)?, false);
    running.address = (Ipv4Addr::LOCALHOST, port).into();
    Ok(running)
}
