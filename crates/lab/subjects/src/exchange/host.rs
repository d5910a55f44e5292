//! The server of a run: started, looked at, ended, whatever happens.
//!
//! As a process it is this very program with the words that a user would type, listening on a port
//! of the system's choice, which it tells on standard error. It belongs to the process group of the
//! run, so it goes with the run when that is killed at its deadline. What it used is asked of the
//! kernel: processor time by the clock of the process, memory while its connections are open,
//! switches when it has ended. In a run that is no program of ours (a test) the same server runs in
//! threads; then nothing tells its time from that of the load, and these numbers are missing.
//!
//! A server before a database gets one that is made for it, beside its stock file, or where PostgreSQL
//! cannot get there in another place of the same file system, and so on the same disk as other stores;
//! it is thrown away after it. What the database server uses is not counted.

use super::plan::{Answers, Placement, ServerSpec};
use ioloom_exchange::{ClassicForm, Settings};
use ioloom_load::{NullServer, Protocol};
use ioloom_model::units::spell_ns;
use ioloom_postgres::{Programs, Server as DatabaseServer};
use ioloom_serve::{
    DatabaseChoice, Limits, OrderStore, ServeOptions, ServeSummary, Server, StopHandle,
};
use ioloom_serve::{StoreChoice, StoreKind};
use ioloom_sys::clock::{monotonic_ns, process_cpu_ns};
use ioloom_sys::proc::{self, UsageOf};
use rustix::process::Signal;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Name of the stock file.
pub(super) const STOCK_FILE: &str = "stock.txt";
/// What is left of each stock at the start.
pub(super) const LEFT: u32 = 1_000_000;
/// How the line with the address begins.
const LISTENS: &str = "ioloom: listening on ";
/// How long a server may take to end; it promises five seconds.
const END_NS: u64 = 10_000_000_000;
/// Between two looks whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes of its last words that are told.
const WORDS_MAX: u64 = 2048;
/// So many connections every server has room for without being told.
const ROOM_USUAL: usize = 10_000;
/// Room beside those of a play.
const ROOM_MORE: usize = 16;

/// What a server used so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServerUsage {
    /// Processor time, ns.
    pub(super) cpu_ns: Option<u64>,
    /// Memory with shared pages divided, bytes.
    pub(super) pss_bytes: Option<u64>,
    /// Largest resident size, bytes.
    pub(super) peak_bytes: Option<u64>,
    /// Threads.
    pub(super) threads: Option<u64>,
}

/// A server that runs.
pub(super) struct TestServer {
    kind: Kind,
    address: SocketAddr,
    /// What it stands before.
    database: Option<DatabaseServer>,
}

enum Kind {
    Process { child: Child, said: BufReader<ChildStderr>, is_null: bool, switches_before: u64 },
    Inside { stop: StopHandle, thread: Option<JoinHandle<Result<ServeSummary, String>>> },
    Null { stop: Arc<AtomicBool>, thread: Option<JoinHandle<Result<(), String>>> },
}

/// Writes the stock file of a shape into `dir`.
pub(super) fn stock_file(spec: &ServerSpec, dir: &Path) -> Result<(), String> {
    let path = dir.join(STOCK_FILE);
    let text: String = (1..=spec.stocks).map(|id| format!("{id} {LEFT} 100\n")).collect();
    std::fs::write(&path, text).map_err(|e| format!("write {}: {e}", path.display()))
}

/// Switches of children that ended and were waited for.
fn switches() -> u64 {
    let used = proc::usage(UsageOf::Children).unwrap_or_default();
    used.voluntary_switches + used.involuntary_switches
}

fn protocol_word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Padded => "padded",
        Protocol::Line => "line",
        Protocol::V2 => "v2",
        Protocol::Resp => "resp",
    }
}

/// The words that start the server, as a user would type them.
fn words(spec: &ServerSpec, dir: &Path) -> Vec<String> {
    let Answers::Exchange(model) = spec.answers else {
        let protocol = protocol_word(spec.protocol);
        let words = ["load", "127.0.0.1:0", "--null-server", "--protocol", protocol];
        return words.map(str::to_owned).to_vec();
    };
    let dialect = if spec.protocol == Protocol::Line { "line" } else { "padded" };
    let stock = dir.join(STOCK_FILE);
    let mut words = vec!["serve".to_owned(), "--stock".to_owned(), stock.display().to_string()];
    for (flag, value) in [
        ("--listen", "127.0.0.1:0"),
        ("--model", model.name()),
        ("--sharing", spec.sharing.name()),
        ("--show", spec.show.name()),
        ("--durability", spec.durability.name()),
        ("--store", spec.store.name()),
        ("--dialect", dialect),
        ("--threads", &spec.threads.to_string()),
        // What a model costs is asked for, and looking for requests would hide it.
        ("--spin", "0s"),
        ("--service-time", &spell_ns(spec.service.as_nanos() as u64)),
        // As many clients as there are may wait for a thread of the pool, as in the backlog of the
        // published server.
        ("--waiting", &u16::MAX.to_string()),
    ] {
        words.extend([flag.to_owned(), value.to_owned()]);
    }
    if spec.in_lock {
        words.push("--service-in-lock".to_owned());
    }
    if spec.room > ROOM_USUAL {
        words.extend(["--connections".to_owned(), (spec.room + ROOM_MORE).to_string()]);
    }
    words
}

/// Starts a database server with its data in `dir`, or near it; the words by which an empty database in
/// it is reached.
fn database(dir: &Path) -> Result<(DatabaseServer, String), String> {
    // PostgreSQL may run as another user, who has to get there.
    std::fs::set_permissions(dir, Permissions::from_mode(0o755))
        .map_err(|e| format!("open {} for PostgreSQL: {e}", dir.display()))?;
    let mut server = DatabaseServer::below(Programs::find()?, dir, &[])?;
    server.create()?;
    server.start()?;
    let words = server.database("stocks")?;
    Ok((server, words))
}

impl TestServer {
    /// Starts a server on what lies in `dir`, and returns when it listens.
    pub(super) fn start(spec: &ServerSpec, dir: &Path) -> Result<Self, String> {
        match (spec.placement, spec.answers) {
            (Placement::Process, _) => Self::process(spec, dir),
            (Placement::Inside, Answers::Exchange(_)) => Self::inside(spec, dir),
            (Placement::Inside, Answers::Null) => Self::null(spec),
        }
    }

    fn process(spec: &ServerSpec, dir: &Path) -> Result<Self, String> {
        let fail = |e: &dyn std::fmt::Display| format!("start the server: {e}");
        let program = std::env::current_exe().map_err(|e| fail(&e))?;
        let mut command = Command::new(program);
        let mut of_database = None;
        if spec.store == OrderStore::Postgres {
            let (server, words) = database(dir)?;
            command.env(ioloom_serve::DATABASE_VARIABLE, words);
            of_database = Some(server);
        }
        let switches_before = switches();
        let mut child = command
            .args(words(spec, dir))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| fail(&e))?;
        let Some(said) = child.stderr.take() else {
            let _ = child.kill();
            return Err(fail(&"it has no standard error"));
        };
        let is_null = spec.answers == Answers::Null;
        let kind = Kind::Process { child, said: BufReader::new(said), is_null, switches_before };
        // From here on the drop ends it.
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut host = Self { kind, address, database: of_database };
        host.address = host.read_address().map_err(|e| fail(&e))?;
        Ok(host)
    }

    /// The address that the process tells on its first lines.
    fn read_address(&mut self) -> Result<SocketAddr, String> {
        let Kind::Process { said, .. } = &mut self.kind else { return Ok(self.address) };
        let mut words = String::new();
        let mut line = String::new();
        while words.len() < WORDS_MAX as usize {
            line.clear();
            if said.read_line(&mut line).map_err(|e| e.to_string())? == 0 {
                break;
            }
            words.push_str(&line);
            if let Some(address) = line.strip_prefix(LISTENS) {
                let first = address.split_whitespace().next().unwrap_or_default();
                return first.parse().map_err(|_| format!("it listens on {first:?}"));
            }
        }
        Err(format!("it did not tell where it listens, but: {}", words.trim()))
    }

    fn inside(spec: &ServerSpec, dir: &Path) -> Result<Self, String> {
        let Answers::Exchange(model) = spec.answers else {
            return Err("start the server: the null server has no model".to_owned());
        };
        let (mut kind, mut choice, mut of_database) = (StoreKind::Sqlite, None, None);
        match spec.store {
            OrderStore::Own(asked) => kind = asked,
            OrderStore::Postgres => {
                let (server, words) = database(dir)?;
                let connections = DatabaseChoice::usual_connections(spec.durability, model);
                choice = Some(DatabaseChoice { connection_string: words, connections });
                of_database = Some(server);
            }
        }
        let classic = match spec.protocol {
            Protocol::Line => ClassicForm::Line,
            _ => ClassicForm::Padded,
        };
        let threads = usize::from(spec.threads);
        let config = ServeOptions {
            model,
            sharing: spec.sharing,
            show: spec.show,
            durability: spec.durability,
            store: StoreChoice { kind, path: dir.join("store") },
            database: choice,
            stock: dir.join(STOCK_FILE),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            listen_line: None,
            settings: Settings { classic, ..Settings::default() },
            limits: Limits {
                threads,
                waiting: usize::from(u16::MAX),
                spin: Duration::ZERO,
                ..Limits::default()
            },
            cores: proc::affinity_cpus().unwrap_or(1) as usize,
            token: None,
            tls: None,
            warn: None,
            service_time: spec.service,
            service_in_lock: spec.in_lock,
        };
        let server = Server::start(&config).map_err(|e| format!("start the server: {e}"))?;
        let address = server.addresses().first().copied();
        let address = address.ok_or("start the server: it has no address")?;
        let stop = server.stop_handle();
        let thread = std::thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || server.run().map_err(|e| format!("the server: {e}")))
            .map_err(|e| format!("start a thread: {e}"))?;
        let kind = Kind::Inside { stop, thread: Some(thread) };
        Ok(Self { kind, address, database: of_database })
    }

    fn null(spec: &ServerSpec) -> Result<Self, String> {
        let fail = |e: &dyn std::fmt::Display| format!("start the null server: {e}");
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = NullServer::bind(at, spec.protocol).map_err(|e| fail(&e))?;
        let address = server.address().map_err(|e| fail(&e))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("null-server".to_owned())
            .spawn(move || server.run(&stopped).map_err(|e| format!("the null server: {e}")))
            .map_err(|e| fail(&e))?;
        Ok(Self { kind: Kind::Null { stop, thread: Some(thread) }, address, database: None })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it used so far; nothing is known of one inside.
    pub(super) fn seen(&self) -> ServerUsage {
        let Kind::Process { child, .. } = &self.kind else { return ServerUsage::default() };
        let status = proc::status_of(child.id()).unwrap_or_default();
        ServerUsage {
            cpu_ns: process_cpu_ns(child.id()).ok(),
            pss_bytes: proc::smaps_rollup_of(child.id()).ok().and_then(|rollup| rollup.pss_bytes),
            peak_bytes: status.peak_rss_bytes,
            threads: status.threads,
        }
    }

    /// Asks it to end, and waits until it has. Tells how often it was switched, where that is known.
    pub(super) fn stop(mut self) -> Result<Option<u64>, String> {
        match &mut self.kind {
            Kind::Process { child, said, is_null, switches_before } => {
                // The null server has no end of its own: it holds nothing that could be lost.
                let signal = if *is_null { Signal::KILL } else { Signal::TERM };
                let status = end(child, signal)?;
                if !*is_null && !status.success() {
                    let mut words = Vec::new();
                    let _ = said.take(WORDS_MAX).read_to_end(&mut words);
                    let words = String::from_utf8_lossy(&words);
                    return Err(format!("the server ended with {status}: {}", words.trim()));
                }
                Ok(Some(switches().saturating_sub(*switches_before)))
            }
            Kind::Inside { stop, thread } => {
                stop.stop();
                joined(thread).map(|_| None)
            }
            Kind::Null { stop, thread } => {
                stop.store(true, Ordering::Relaxed);
                joined(thread).map(|_| None)
            }
        }
    }

    /// Kills it, as a crash would.
    pub(super) fn kill(mut self) -> Result<(), String> {
        match &mut self.kind {
            Kind::Process { child, .. } => end(child, Signal::KILL).map(drop),
            _ => Err("a server in this process cannot be killed".to_owned()),
        }
    }
}

fn joined<T>(thread: &mut Option<JoinHandle<Result<T, String>>>) -> Result<Option<T>, String> {
    let Some(thread) = thread.take() else { return Ok(None) };
    thread.join().map_err(|_| "the server panicked".to_owned())?.map(Some)
}

/// Sends a signal and waits for the end; kills what does not end in time.
fn end(child: &mut Child, signal: Signal) -> Result<ExitStatus, String> {
    let fail = |e: std::io::Error| format!("end the server: {e}");
    proc::signal_child(child, signal.as_raw()).map_err(fail)?;
    let until_ns = monotonic_ns() + END_NS;
    loop {
        if let Some(status) = child.try_wait().map_err(fail)? {
            return Ok(status);
        }
        if monotonic_ns() > until_ns {
            let _ = child.kill();
            let _ = child.wait();
            return Err("end the server: it did not end within 10 s, so it was killed".to_owned());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::Process { child, .. } => {
                // After a proper end both fail, and that is right.
                let _ = child.kill();
                let _ = child.wait();
            }
            Kind::Inside { stop, thread } => {
                stop.stop();
                let _ = joined(thread);
            }
            Kind::Null { stop, thread } => {
                stop.store(true, Ordering::Relaxed);
                let _ = joined(thread);
            }
        }
        if let Some(database) = &mut self.database {
            database.discard();
        }
    }
}
