//! A PostgreSQL server of a test: a directory of its own, a Unix socket in it, no port.
//!
//! It refuses to run as root, so root runs it as nobody. It syncs as usual, so that what a killed one
//! holds afterwards tells something. It is killed as its machine would be: all of its processes at
//! once, without a word.

#![allow(clippy::print_stdout, reason = "a test that needs PostgreSQL says that it skips")]

use crate::process::{NOBODY, is_root, open_to_all};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How often a server that starts is asked whether it is there, and how often an ended process is
/// looked for.
const TRIES: u32 = 2400;
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(25);

/// A running server; it ends with this.
#[derive(Debug)]
pub struct Postgres {
    dir: TempDir,
    programs: PathBuf,
    settings: Vec<String>,
    child: Option<Child>,
}

/// Where the programs of the newest PostgreSQL lie, as Debian installs them.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| version(path))?;
    Some(newest.join("bin")).filter(|programs| programs.join("initdb").exists())
}

impl Postgres {
    /// Makes a database server with settings such as `fsync=off` and starts it. None, with a word,
    /// where PostgreSQL is not installed.
    pub fn start(settings: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            println!("skipped: PostgreSQL is not installed (Debian: apt install postgresql)");
            return None;
        };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut made = Self { dir, programs, settings, child: None };
        open_to_all(&[made.dir.path()]);
        for name in ["data", "socket"] {
            let path = made.dir.path().join(name);
            fs::create_dir(&path).expect("room for a directory");
            if is_root() {
                std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).expect("root may");
            }
        }
        let mut initdb = made.program("initdb");
        initdb.arg("-D").arg(made.dir.path().join("data"));
        initdb.args(["-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let out = initdb.output().expect("initdb starts");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        made.start_again();
        Some(made)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Starts a server that was killed, on what it had left.
    pub fn start_again(&mut self) {
        let log = File::create(self.dir.path().join("log")).expect("room for a log");
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.dir.path().join("data"));
        command.arg("-k").arg(self.dir.path().join("socket"));
        for setting in ["listen_addresses=", "shared_buffers=16MB", "max_connections=200"] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        self.child = Some(command.spawn().expect("postgres starts"));
        for _ in 0..TRIES {
            if self.ask("postgres", "SELECT 1").is_some() {
                return;
            }
            let ended = self.child.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("postgres ended with {status}: {log}");
            }
            std::thread::sleep(PAUSE);
        }
        panic!("postgres does not answer");
    }

    fn ask(&self, database: &str, statement: &str) -> Option<String> {
        let mut psql = self.program("psql");
        psql.arg("-h").arg(self.dir.path().join("socket"));
        psql.args(["-U", "tester", "-d", database, "-XAtqc", statement]);
        let out = psql.output().expect("psql starts");
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim_end().to_owned())
    }

    /// What a statement gives, as text.
    pub fn sql(&self, database: &str, statement: &str) -> String {
        self.ask(database, statement).unwrap_or_else(|| panic!("{database}: {statement}"))
    }

    /// Makes an empty database, and gives the words by which it is reached.
    pub fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        let socket = self.dir.path().join("socket");
        format!("host={} user=tester dbname={name}", socket.display())
    }

    /// Kills all of its processes at once, and returns when they are gone.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let mut all = vec![child.id().to_string()];
        all.extend(children(child.id()));
        let _ = Command::new("kill").arg("-KILL").args(&all).output();
        let _ = child.wait();
        for _ in 0..TRIES {
            if all[1..].iter().all(|process| is_gone(process)) {
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

/// Whether nothing is left of a process but perhaps its number.
fn is_gone(process: &str) -> bool {
    told(process, "State:").is_none_or(|state| state.starts_with('Z'))
}
