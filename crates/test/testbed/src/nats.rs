//! A NATS server for tests, which can be killed and started again on the same data.

#![allow(clippy::print_stdout, reason = "a test that needs the server reports that it is skipped")]

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Number of checks for a server that starts.
const TRIES: u32 = 2400;
/// Number of ports to try: another program may take a free one before the server does.
const PORTS: u32 = 5;
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(25);

/// A running server on this machine. Killed on drop.
#[derive(Debug)]
pub struct Nats {
    program: PathBuf,
    dir: TempDir,
    port: u16,
    child: Child,
}

impl Nats {
    /// Starts a server that syncs every message if it can, with more lines of its configuration. Prints a message and
    /// returns `None` if no server is installed.
    pub fn start(more: &str) -> Option<Self> {
        Self::start_with(|program, store| format!("{}\n{more}", jetstream(store, syncs(program))))
    }

    /// Starts a server that is faster, for tests that kill none.
    pub fn start_without_sync() -> Option<Self> {
        Self::start_with(|_, store| jetstream(store, false))
    }

    /// Starts a server that has no `JetStream`.
    pub fn start_without_jetstream() -> Option<Self> {
        Self::start_with(|_, _| String::new())
    }

    /// Starts a server with the lines of its configuration for a program and a directory of data.
    fn start_with(lines: impl Fn(&Path, &Path) -> String) -> Option<Self> {
        let Some(program) = find() else {
            println!("skipped: nats-server is not installed");
            return None;
        };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let lines = lines(&program, &dir.path().join("store"));
        for _ in 0..PORTS {
            let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = free.local_addr().expect("an address").port();
            drop(free);
            let config = format!("listen: 127.0.0.1:{port}\n{lines}\n");
            fs::write(dir.path().join("nats.conf"), config).expect("a configuration");
            let mut child = spawn(&program, dir.path());
            if gets_ready(&mut child, dir.path()) {
                return Some(Self { program, dir, port, child });
            }
            // A server whose port was taken exits.
            let is_stuck = child.try_wait().is_ok_and(|ended| ended.is_none());
            let _ = child.kill();
            let _ = child.wait();
            if is_stuck {
                break;
            }
        }
        panic!("the server does not start: {}", log(dir.path()));
    }

    /// Reports whether the server continues after it was killed. Prints a message if not: version 2.9.10 comes back
    /// with its streams and does not answer its consumers.
    pub fn survives_kills(&self) -> bool {
        let survives = syncs(&self.program);
        if !survives {
            println!("skipped: nats-server is older than 2.10");
        }
        survives
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a queue.
    pub fn queue(&self, name: &str) -> String {
        format!("nats://127.0.0.1:{}/{name}", self.port)
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the server on the data of the one that was killed.
    pub fn start_again(&mut self) {
        self.child = spawn(&self.program, self.dir.path());
        let is_ready = gets_ready(&mut self.child, self.dir.path());
        assert!(is_ready, "the server does not start: {}", log(self.dir.path()));
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the line that configures `JetStream`.
fn jetstream(store: &Path, syncs: bool) -> String {
    let sync = if syncs { ", sync_interval: always" } else { "" };
    format!("jetstream {{ store_dir: \"{}\"{sync} }}", store.display())
}

fn spawn(program: &Path, dir: &Path) -> Child {
    let log = fs::File::create(dir.join("log"));
    let mut command = Command::new(program);
    command.arg("-c").arg(dir.join("nats.conf")).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log.expect("a log")).spawn().expect("the server starts")
}

/// Waits until the server in a directory listens for clients. Returns false if it exits or takes too long.
fn gets_ready(server: &mut Child, dir: &Path) -> bool {
    for _ in 0..TRIES {
        // A connection would not show which program has the port.
        if log(dir).contains("Listening for client connections on ") {
            return true;
        }
        if !server.try_wait().is_ok_and(|ended| ended.is_none()) {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// Returns what the last server in a directory has printed.
fn log(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// Returns whether a server knows how to sync every message: since 2.10.
fn syncs(program: &Path) -> bool {
    let said = Command::new(program).arg("--version").output().expect("the server starts");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = said.rsplit('v').next().unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.trim().parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(2), Some(10))
}

/// Returns the server: of the search path, or where the system has services.
fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    dirs.map(|dir| dir.join("nats-server")).find(|program| program.is_file())
}
