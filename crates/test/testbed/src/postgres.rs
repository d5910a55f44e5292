//! A PostgreSQL server for tests. A test can kill all its processes at once, as a machine crash
//! would, or stop them, which leaves a server that does not answer.

#![allow(clippy::print_stdout, reason = "a test that needs PostgreSQL reports that it is skipped")]

use crate::memory::{MEMORY, in_memory};
use crate::process::open_to_all;
use ioloom_postgres::{Programs, Server};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Number of checks for a stopped or exited process.
const TRIES: u32 = 2400;
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(25);

/// A running server. Killed on drop.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    dir: Arc<TempDir>,
}

impl Postgres {
    /// Creates and starts a server in memory, with settings such as `fsync=off`. Prints a message and
    /// returns `None` if PostgreSQL is not installed.
    pub fn start(settings: &[&str]) -> Option<Self> {
        Self::make(None, settings)
    }

    /// Like [`start`](Self::start) with the data in `data`, which is created; for example on a disk
    /// whose power can be cut.
    pub fn start_in(data: &Path) -> Option<Self> {
        Self::make(Some(data), &[])
    }

    fn make(data: Option<&Path>, settings: &[&str]) -> Option<Self> {
        let programs = Programs::find().inspect_err(|reason| println!("skipped: {reason}")).ok()?;
        let dir = in_memory();
        let socket = dir.path().join("socket");
        open_way_to(&socket);
        let server = match data {
            // The temporary directory itself may be inaccessible to other users.
            None => Server::below(programs, dir.path(), settings),
            Some(data) => {
                open_way_to(data);
                Ok(Server::new(programs, data, &socket, settings))
            }
        };
        let server = server.inspect_err(|reason| println!("skipped: {reason}")).ok()?;
        server.create().unwrap_or_else(|reason| panic!("{reason}"));
        let mut made = Self { server, dir: Arc::new(dir) };
        made.start_again();
        Some(made)
    }

    /// Starts a server on a copy of the data with the same connection string. This server must have
    /// been killed.
    pub fn on(&self, data: &Path) -> Self {
        assert!(self.server.process().is_none(), "two servers cannot have one socket");
        open_way_to(data);
        let mut made = Self { server: self.server.on(data), dir: Arc::clone(&self.dir) };
        made.start_again();
        made
    }

    /// Restarts a killed server on its data.
    pub fn start_again(&mut self) {
        self.server.start().unwrap_or_else(|reason| panic!("{reason}"));
    }

    /// Executes a statement and returns its result as text.
    pub fn sql(&self, database: &str, statement: &str) -> String {
        self.server
            .query(database, statement)
            .unwrap_or_else(|reason| panic!("{database}: {statement}: {reason}"))
    }

    /// Creates an empty database and returns its connection string.
    pub fn database(&self, name: &str) -> String {
        self.server.database(name).unwrap_or_else(|reason| panic!("{name}: {reason}"))
    }

    /// Creates and starts a synchronous replica of this server.
    pub fn replica(&self) -> Self {
        let dir = in_memory();
        let (data, socket) = (dir.path().join("replica"), dir.path().join("socket"));
        open_way_to(&socket);
        // The user that PostgreSQL runs as creates the data directory in it.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
        let replica = self.server.replica(&data, &socket);
        Self { server: replica.unwrap_or_else(|reason| panic!("{reason}")), dir: Arc::new(dir) }
    }

    /// Makes a replica the primary server.
    pub fn promote(&self) {
        self.server.promote().unwrap_or_else(|reason| panic!("{reason}"));
    }

    /// Returns a connection string for two servers, of which one is the primary.
    pub fn with_replica(&self, replica: &Self, name: &str) -> String {
        let (first, second) = (self.server.socket(), replica.server.socket());
        format!("host={},{} user=tester dbname={name}", first.display(), second.display())
    }

    /// Stops all its processes and returns when none of them is running.
    pub fn pause(&self) {
        // Once the main process is stopped, no new ones appear.
        self.send("-STOP", &|all| &all[..1]);
        let all = self.send("-STOP", &|all| all);
        for _ in 0..TRIES {
            if all.iter().all(|process| is_gone(process) || is_stopped(process)) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        panic!("postgres does not stop");
    }

    /// Continues all its processes.
    pub fn resume(&self) {
        self.send("-CONT", &|all| all);
    }

    /// Sends a signal to some of its processes and returns all of them, the main process first.
    fn send(&self, signal: &str, some: &dyn Fn(&[String]) -> &[String]) -> Vec<String> {
        let Some(first) = self.server.process() else { return Vec::new() };
        let mut all = vec![first.to_string()];
        all.extend(children(first));
        let _ = Command::new("kill").arg(signal).args(some(&all)).output();
        all
    }

    /// Kills all its processes at once and returns when they have exited.
    pub fn kill(&mut self) {
        let all = self.send("-KILL", &|all| all);
        self.server.kill();
        for _ in 0..TRIES {
            if all.iter().skip(1).all(|process| is_gone(process)) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes a path in a temporary directory accessible to all users.
fn open_way_to(path: &Path) {
    let temp = [std::env::temp_dir(), MEMORY.into()];
    let is_below = |dir: &&Path| temp.iter().any(|temp| dir.starts_with(temp) && dir != temp);
    for dir in path.ancestors().skip(1).filter(is_below) {
        let meta = fs::metadata(dir).expect("a directory above it");
        if meta.permissions().mode() & 0o001 == 0 {
            open_to_all(&[dir]);
        }
    }
}

/// Returns a field of `/proc/PID/status`.
fn status_field(process: &str, key: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    Some(line[key.len()..].trim().to_owned())
}

fn children(parent: u32) -> Vec<String> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let names = all.filter_map(|entry| entry.file_name().into_string().ok());
    let is_child = |name: &String| status_field(name, "PPid:") == Some(parent.to_string());
    names.filter(is_child).collect()
}

fn is_stopped(process: &str) -> bool {
    status_field(process, "State:").is_some_and(|state| state.starts_with('T'))
}

/// Returns whether a process has exited; it may still be a zombie.
fn is_gone(process: &str) -> bool {
    status_field(process, "State:").is_none_or(|state| state.starts_with('Z'))
}
