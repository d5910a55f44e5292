//! A PostgreSQL server of a test: one of our own that is killed as its machine would be, all of its
//! processes at once, without a word; and it can be stopped, so that it is there and does not answer.

#![allow(clippy::print_stdout, reason = "a test that needs PostgreSQL says that it skips")]

use crate::process::open_to_all;
use ioloom_postgres::{Programs, Server};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// How often an ended or stopped process is looked for.
const TRIES: u32 = 2400;
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(25);

/// A running server; it ends with this.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    dir: Arc<TempDir>,
}

impl Postgres {
    /// Makes a database server with settings such as `fsync=off` and starts it. None, with a word,
    /// where PostgreSQL is not installed.
    pub fn start(settings: &[&str]) -> Option<Self> {
        Self::make(None, settings)
    }

    /// The same with its data in a directory, which is made: on a disk whose power can be cut, perhaps.
    pub fn start_in(data: &Path) -> Option<Self> {
        Self::make(Some(data), &[])
    }

    fn make(data: Option<&Path>, settings: &[&str]) -> Option<Self> {
        let programs = Programs::find().inspect_err(|reason| println!("skipped: {reason}")).ok()?;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let socket = dir.path().join("socket");
        open_way_to(&socket);
        let server = match data {
            // The directory for temporary files may itself lie where nobody else gets.
            None => Server::below(programs, dir.path(), settings),
            Some(data) => {
                open_way_to(data);
                Ok(Server::new(programs, data, &socket, settings))
            }
        };
        let server = server.inspect_err(|reason| println!("skipped: {reason}")).ok()?;
        server.make().unwrap_or_else(|reason| panic!("{reason}"));
        let mut made = Self { server, dir: Arc::new(dir) };
        made.start_again();
        Some(made)
    }

    /// A server on a copy of its data, started; the same words reach it, so this one must have been
    /// killed.
    pub fn on(&self, data: &Path) -> Self {
        assert!(self.server.process().is_none(), "two servers cannot have one socket");
        open_way_to(data);
        let mut made = Self { server: self.server.on(data), dir: Arc::clone(&self.dir) };
        made.start_again();
        made
    }

    /// Starts a server that was killed, on what it had left.
    pub fn start_again(&mut self) {
        self.server.start().unwrap_or_else(|reason| panic!("{reason}"));
    }

    /// What a statement gives, as text.
    pub fn sql(&self, database: &str, statement: &str) -> String {
        let asked = self.server.ask(database, statement);
        asked.unwrap_or_else(|reason| panic!("{database}: {statement}: {reason}"))
    }

    /// Makes an empty database, and gives the words by which it is reached.
    pub fn database(&self, name: &str) -> String {
        self.server.database(name).unwrap_or_else(|reason| panic!("{name}: {reason}"))
    }

    /// Stops all of its processes, and returns when none of them does anything.
    pub fn pause(&self) {
        // Without the first one there are no new ones.
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

    /// Lets them go on.
    pub fn resume(&self) {
        self.send("-CONT", &|all| all);
    }

    /// Sends a signal to some of its processes, the first of which is the one that was started; gives
    /// all of them.
    fn send(&self, signal: &str, some: &dyn Fn(&[String]) -> &[String]) -> Vec<String> {
        let Some(first) = self.server.process() else { return Vec::new() };
        let mut all = vec![first.to_string()];
        all.extend(children(first));
        let _ = Command::new("kill").arg(signal).args(some(&all)).output();
        all
    }

    /// Kills all of its processes at once, and returns when they are gone.
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

/// Lets everybody through to a path in the directory for temporary files.
fn open_way_to(path: &Path) {
    let temp = std::env::temp_dir();
    for dir in path.ancestors().skip(1).filter(|dir| dir.starts_with(&temp) && *dir != temp) {
        let told = fs::metadata(dir).expect("a directory above it");
        if told.permissions().mode() & 0o001 == 0 {
            open_to_all(&[dir]);
        }
    }
}

/// A line of what the kernel tells of a process.
fn told(process: &str, key: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    Some(line[key.len()..].trim().to_owned())
}

fn children(parent: u32) -> Vec<String> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let names = all.filter_map(|entry| entry.file_name().into_string().ok());
    let is_child = |name: &String| told(name, "PPid:") == Some(parent.to_string());
    names.filter(is_child).collect()
}

fn is_stopped(process: &str) -> bool {
    told(process, "State:").is_some_and(|state| state.starts_with('T'))
}

/// Whether nothing is left of a process but perhaps its number.
fn is_gone(process: &str) -> bool {
    told(process, "State:").is_none_or(|state| state.starts_with('Z'))
}
