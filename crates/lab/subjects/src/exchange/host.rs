//! Starts, observes and stops the server of a run.
//!
//! A server process is this program with the same arguments that a user would type. It listens on a
//! port chosen by the system and prints it to standard error. It belongs to the run's process
//! group, so it is killed with the run at the deadline. The kernel reports its usage: CPU time from
//! the process clock, memory while connections are open, and context switches after it exits. In
//! tests, the server runs in threads; its usage cannot be separated from the load's, so these
//! metrics are missing.
//!
//! A server with a database gets a new PostgreSQL server. Its data directory is next to the stock
//! file or, if PostgreSQL has no access there, elsewhere on the same file system and therefore on
//! the same disk as other stores. It is removed afterwards. The usage of the database server is not
//! counted.

use super::plan::{Answers, Placement, ServerSpec};
use crate::stage::cannot;
use ioloom_exchange::{ClassicForm, Settings};
use ioloom_failure::{Operation, PathError};
use ioloom_load::{NullServer, Protocol};
use ioloom_model::units::spell_ns;
use ioloom_postgres::{Programs, Server as DatabaseServer};
use ioloom_serve::{
    DatabaseChoice, Durability, Limits, OrderStore, ServeOptions, ServeSummary, Server,
    ServerHandle,
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
/// Initial number of items of each stock.
pub(super) const LEFT: u32 = 1_000_000;
/// Prefix of the line with the address.
const LISTENING: &str = "ioloom: listening on ";
/// Time limit in ns for a server to exit; it promises five seconds.
const END_NS: u64 = 10_000_000_000;
/// Interval for checking whether it has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of bytes of its output to report.
const OUTPUT_MAX: u64 = 2048;
/// Default connection limit of every server.
const ROOM_DEFAULT: usize = 10_000;
/// Connections accepted in addition to those of a scenario.
const ROOM_EXTRA: usize = 16;

/// Resource usage of a server.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServerUsage {
    /// CPU time in ns.
    pub(super) cpu_ns: Option<u64>,
    /// Proportional set size in bytes.
    pub(super) pss_bytes: Option<u64>,
    /// Peak resident set size in bytes.
    pub(super) peak_bytes: Option<u64>,
    /// Threads.
    pub(super) threads: Option<u64>,
    /// Bytes read from and written to devices.
    pub(super) moved: Option<(u64, u64)>,
}

/// A running server.
pub(super) struct TestServer {
    kind: Kind,
    address: SocketAddr,
    /// Its database.
    database: Option<DatabaseServer>,
}

enum Kind {
    Process { child: Child, stderr: BufReader<ChildStderr>, is_null: bool, switches_before: u64 },
    Inside { stop: ServerHandle, thread: Option<JoinHandle<Result<ServeSummary, String>>> },
    Null { stop: Arc<AtomicBool>, thread: Option<JoinHandle<Result<(), String>>> },
}

/// Writes the stock file of a server to `dir`.
pub(super) fn stock_file(spec: &ServerSpec, dir: &Path) -> Result<(), String> {
    let path = dir.join(STOCK_FILE);
    let text: String = (1..=spec.stocks).map(|id| format!("{id} {LEFT} 100\n")).collect();
    std::fs::write(&path, text).map_err(|e| PathError::new(Operation::Write, &path, e).to_string())
}

/// Returns the context switches of reaped children.
fn switches() -> u64 {
    let used = proc::usage(UsageOf::Children).unwrap_or_default();
    used.voluntary_switches + used.involuntary_switches
}

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Padded => "padded",
        Protocol::Line => "line",
        Protocol::V2 => "v2",
        Protocol::Resp => "resp",
    }
}

/// Returns the server's arguments as a user would type them.
fn arguments(spec: &ServerSpec, dir: &Path) -> Vec<String> {
    let Answers::Exchange(model) = spec.answers else {
        let protocol = protocol_name(spec.protocol);
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
        ("--dialect", dialect),
        ("--threads", &spec.threads.to_string()),
        // Spinning for requests would hide the cost of the model.
        ("--spin", "0s"),
        ("--service-time", &spell_ns(spec.service.as_nanos() as u64)),
        // All clients may have to wait for a pool thread, as in the published server's backlog.
        ("--waiting", &u16::MAX.to_string()),
    ] {
        words.extend([flag.to_owned(), value.to_owned()]);
    }
    if spec.durability != Durability::None || spec.store == OrderStore::Postgres {
        words.extend(["--store".to_owned(), spec.store.name().to_owned()]);
    }
    if spec.in_lock {
        words.push("--service-in-lock".to_owned());
    }
    if spec.room > ROOM_DEFAULT {
        words.extend(["--connections".to_owned(), (spec.room + ROOM_EXTRA).to_string()]);
    }
    words
}

/// Starts a database server with its data directory in or near `dir`. Returns the server and the
/// connection string of an empty database.
fn database(dir: &Path) -> Result<(DatabaseServer, String), String> {
    // PostgreSQL may run as a different user, who needs access.
    std::fs::set_permissions(dir, Permissions::from_mode(0o755))
        .map_err(|e| PathError::new(Operation::ChangeMode, dir, e).to_string())?;
    let mut server = DatabaseServer::below(Programs::find()?, dir, &[])?;
    server.create()?;
    server.start()?;
    let words = server.database("stocks")?;
    Ok((server, words))
}

impl TestServer {
    /// Starts a server with the files in `dir`. Returns when it is listening.
    pub(super) fn start(spec: &ServerSpec, dir: &Path) -> Result<Self, String> {
        match (spec.placement, spec.answers) {
            (Placement::Process, _) => Self::process(spec, dir),
            (Placement::Inside, Answers::Exchange(_)) => Self::inside(spec, dir),
            (Placement::Inside, Answers::Null) => Self::null(spec),
        }
    }

    fn process(spec: &ServerSpec, dir: &Path) -> Result<Self, String> {
        let fail = |e: &dyn std::fmt::Display| format!("cannot start the server: {e}");
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
            .args(arguments(spec, dir))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| fail(&e))?;
        let Some(stderr) = child.stderr.take() else {
            let _ = child.kill();
            return Err(fail(&"no pipe for standard error"));
        };
        let is_null = spec.answers == Answers::Null;
        let kind =
            Kind::Process { child, stderr: BufReader::new(stderr), is_null, switches_before };
        // From now on, dropping the value kills the process.
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut host = Self { kind, address, database: of_database };
        host.address = host.read_address().map_err(|e| fail(&e))?;
        Ok(host)
    }

    /// Reads the address from the first lines printed by the process.
    fn read_address(&mut self) -> Result<SocketAddr, String> {
        let Kind::Process { stderr, .. } = &mut self.kind else { return Ok(self.address) };
        let mut words = String::new();
        let mut line = String::new();
        while words.len() < OUTPUT_MAX as usize {
            line.clear();
            if stderr.read_line(&mut line).map_err(|e| e.to_string())? == 0 {
                break;
            }
            words.push_str(&line);
            if let Some(address) = line.strip_prefix(LISTENING) {
                let first = address.split_whitespace().next().unwrap_or_default();
                return first.parse().map_err(|_| format!("invalid address {first:?}"));
            }
        }
        Err(format!("it did not print its address, but: {}", words.trim()))
    }

    fn inside(spec: &ServerSpec, dir: &Path) -> Result<Self, String> {
        let Answers::Exchange(model) = spec.answers else {
            return Err("cannot start the server: the null server has no model".to_owned());
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
            store: StoreChoice { kind, path: dir.join("store"), accept_loss: false },
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
            access: None,
            tls: None,
            service_time: spec.service,
            service_in_lock: spec.in_lock,
        };
        let server = Server::start(&config).map_err(|e| format!("cannot start the server: {e}"))?;
        let address = server.addresses().first().copied();
        let address = address.ok_or("cannot start the server: it has no address")?;
        let stop = server.handle();
        let thread = std::thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || server.run().map_err(|e| format!("the server: {e}")))
            .map_err(|e| cannot("start a thread", &e))?;
        let kind = Kind::Inside { stop, thread: Some(thread) };
        Ok(Self { kind, address, database: of_database })
    }

    fn null(spec: &ServerSpec) -> Result<Self, String> {
        let fail = |e: &dyn std::fmt::Display| format!("cannot start the null server: {e}");
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

    /// Returns the address of the server.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's usage so far; empty if it runs in this process.
    pub(super) fn seen(&self) -> ServerUsage {
        let Kind::Process { child, .. } = &self.kind else { return ServerUsage::default() };
        let status = proc::status_of(child.id()).unwrap_or_default();
        ServerUsage {
            cpu_ns: process_cpu_ns(child.id()).ok(),
            pss_bytes: proc::smaps_rollup_of(child.id()).ok().and_then(|rollup| rollup.pss_bytes),
            peak_bytes: status.peak_rss_bytes,
            threads: status.threads,
            moved: proc::process_io_of(child.id()).ok().map(|io| (io.read_bytes, io.written_bytes)),
        }
    }

    /// Terminates the server and waits for it to exit. Returns its context switches, if known.
    pub(super) fn stop(mut self) -> Result<Option<u64>, String> {
        match &mut self.kind {
            Kind::Process { child, stderr, is_null, switches_before } => {
                // The null server has no state, so it needs no graceful shutdown.
                let signal = if *is_null { Signal::KILL } else { Signal::TERM };
                let status = end(child, signal)?;
                if !*is_null && !status.success() {
                    let mut words = Vec::new();
                    let _ = stderr.take(OUTPUT_MAX).read_to_end(&mut words);
                    let words = String::from_utf8_lossy(&words);
                    return Err(format!("the server exited with {status}: {}", words.trim()));
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

    /// Kills the server, as a crash would.
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

/// Sends a signal and waits for the process to exit. Kills it if it does not exit in time.
fn end(child: &mut Child, signal: Signal) -> Result<ExitStatus, String> {
    let fail = |e: std::io::Error| cannot("stop the server", &e);
    proc::signal_child(child, signal.as_raw()).map_err(fail)?;
    let until_ns = monotonic_ns() + END_NS;
    loop {
        if let Some(status) = child.try_wait().map_err(fail)? {
            return Ok(status);
        }
        if monotonic_ns() > until_ns {
            let _ = child.kill();
            let _ = child.wait();
            return Err("the server did not exit within 10 s and was killed".to_owned());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::Process { child, .. } => {
                // Both fail if the process has already exited.
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
