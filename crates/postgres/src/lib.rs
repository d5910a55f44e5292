//! A PostgreSQL server of one's own: made in a directory, started, asked, ended; for the study and for
//! tests.
//!
//! It is the server that is installed, with its own programs and settings as delivered, but for its
//! size. It is reached by a Unix socket in a directory that nobody else may enter, because whoever
//! reaches it is trusted with everything; it has no port. It syncs as usual, so that what it costs and
//! what a killed one holds tell something. It refuses to run as root, so root runs it as nobody, who
//! must be able to reach the directories above its data.
//!
//! A crate of its own: the study needs it, and so does the automation, which must build fast. Nothing
//! but the standard library is used. Making one costs the time of `initdb` and 40 MB or so.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// User and group without rights.
const NOBODY: u32 = 65_534;
/// How often a server that starts is asked whether it is there.
const TRIES: u32 = 2400;
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(25);
/// Longest path of a directory for a socket, bytes: with the name of the socket it must fit into an
/// address of the system.
const SOCKET_MAX: usize = 90;
/// Settings of every server. Its shared memory lies with its data: in /dev/shm, where it would lie, a
/// killed one leaves it behind for good.
const USUAL: [&str; 4] = [
    "listen_addresses=",
    "shared_buffers=16MB",
    "max_connections=200",
    "dynamic_shared_memory_type=mmap",
];
/// The user of the database.
const USER: &str = "tester";

/// Where its programs lie.
#[derive(Debug, Clone)]
pub struct Programs(PathBuf);

impl Programs {
    /// The newest that are installed, where Debian installs them.
    ///
    /// # Errors
    /// There are none; with the remedy.
    pub fn find() -> Result<Self, String> {
        let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
        let all = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let newest = all.map(|entry| entry.path()).max_by_key(|path| version(path));
        newest
            .map(|newest| newest.join("bin"))
            .filter(|programs| programs.join("initdb").exists())
            .map(Self)
            .ok_or_else(|| {
                "PostgreSQL is not installed; remedy: install it (Debian: apt install postgresql)"
                    .to_owned()
            })
    }

    /// A command of PostgreSQL, as a user that it accepts.
    fn command(&self, name: &str, dir: &Path) -> Command {
        let mut command = Command::new(self.0.join(name));
        command.current_dir(dir).env("LC_ALL", "C").stdin(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Whether a server with its data below `dir` can be had, found by starting a program there.
    ///
    /// # Errors
    /// Why not, with the remedy.
    pub fn probe(&self, dir: &Path) -> Result<(), String> {
        if dir.as_os_str().len() > SOCKET_MAX {
            return Err(format!(
                "the socket of PostgreSQL would have a path that is too long below {}; remedy: a \
                 work directory with a path of at most {SOCKET_MAX} bytes (--dir)",
                dir.display()
            ));
        }
        let ran = self.command("initdb", dir).arg("--version").stdout(Stdio::null()).status();
        match ran {
            Ok(status) if status.success() => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(format!(
                "PostgreSQL does not run as root, and the user nobody cannot reach {}; remedy: a work \
                 directory that others can reach (--dir), or run it as another user than root",
                dir.display()
            )),
            Ok(status) => Err(format!("initdb of PostgreSQL ended with {status}")),
            Err(e) => Err(format!("start initdb of PostgreSQL: {e}")),
        }
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// A server; it is killed with this.
#[derive(Debug)]
pub struct Server {
    programs: Programs,
    data: PathBuf,
    socket: PathBuf,
    settings: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// One with its data in a directory and its socket and log in another one, with settings such as
    /// `fsync=off`. Nothing is done yet.
    pub fn new(programs: Programs, data: &Path, socket: &Path, settings: &[&str]) -> Self {
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let (data, socket) = (data.to_owned(), socket.to_owned());
        Self { programs, data, socket, settings, child: None }
    }

    /// Makes both directories and an empty server in them, whose data is not synced yet.
    ///
    /// # Errors
    /// What the system or `initdb` reports.
    pub fn make(&self) -> Result<(), String> {
        for dir in [&self.data, &self.socket] {
            let made = DirBuilder::new().mode(0o700).create(dir);
            let ours = made.and_then(|()| match is_root() {
                true => std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY)),
                false => Ok(()),
            });
            ours.map_err(|e| format!("make {}: {e}", dir.display()))?;
        }
        let mut initdb = self.programs.command("initdb", Path::new("/"));
        initdb.arg("-D").arg(&self.data);
        initdb.args(["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let out = initdb.output().map_err(|e| format!("start initdb: {e}"))?;
        if out.status.success() {
            return Ok(());
        }
        Err(format!("initdb: {}", String::from_utf8_lossy(&out.stderr).trim()))
    }

    /// Starts it, also on what a killed one had left, and returns when it answers.
    ///
    /// # Errors
    /// It ended, with what it said, or it does not answer.
    pub fn start(&mut self) -> Result<(), String> {
        let log = self.socket.join("log");
        let fail = |e: io::Error| format!("start postgres: {e}");
        let said = File::create(&log).map_err(fail)?;
        let mut command = self.programs.command("postgres", Path::new("/"));
        command.arg("-D").arg(&self.data).arg("-k").arg(&self.socket);
        for setting in USUAL.into_iter().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.stdout(said.try_clone().map_err(fail)?).stderr(said);
        self.child = Some(command.spawn().map_err(fail)?);
        for _ in 0..TRIES {
            if self.ask("postgres", "SELECT 1").is_ok() {
                return Ok(());
            }
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                let words = fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("postgres ended with {status}: {}", words.trim()));
            }
            std::thread::sleep(PAUSE);
        }
        Err("postgres does not answer".to_owned())
    }

    /// What a statement gives, as text.
    ///
    /// # Errors
    /// What the server says, or why it cannot be asked.
    pub fn ask(&self, database: &str, statement: &str) -> Result<String, String> {
        let mut psql = self.programs.command("psql", Path::new("/"));
        psql.arg("-h").arg(&self.socket).args(["-U", USER, "-d", database, "-XAtqc", statement]);
        let out = psql.output().map_err(|e| format!("start psql: {e}"))?;
        match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned()),
            false => Err(String::from_utf8_lossy(&out.stderr).trim_end().to_owned()),
        }
    }

    /// Makes an empty database, and gives the words by which it is reached.
    ///
    /// # Errors
    /// What the server says.
    pub fn database(&self, name: &str) -> Result<String, String> {
        self.ask("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(format!("host={} user={USER} dbname={name}", self.socket.display()))
    }

    /// A server on a copy of its data, reached by the same words, so this one must have been killed
    /// before it is started.
    pub fn on(&self, data: &Path) -> Self {
        let (programs, settings) = (self.programs.clone(), self.settings.clone());
        Self { programs, data: data.to_owned(), socket: self.socket.clone(), settings, child: None }
    }

    /// The number of its first process while it runs.
    pub fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Ends it without care for what it holds, and returns when all of its processes have gone.
    pub fn throw_away(&mut self) {
        let mut stop = self.programs.command("pg_ctl", Path::new("/"));
        stop.args(["stop", "-m", "immediate", "-D"]).arg(&self.data);
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
        self.kill();
    }

    /// Kills its first process; the others end when they notice.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_refused_with_the_remedy() {
        let programs = Programs(PathBuf::from("/nowhere"));
        let refused = programs.probe(Path::new(&format!("/{}", "x".repeat(SOCKET_MAX))));
        assert!(refused.unwrap_err().contains("--dir"));
        assert!(programs.probe(Path::new("/")).unwrap_err().contains("start initdb"));
        let mut server = Server::new(programs, Path::new("/a"), Path::new("/b"), &[]);
        assert!(server.start().unwrap_err().contains("start postgres"));
        assert!(server.ask("x", "SELECT 1").unwrap_err().contains("start psql"));
        assert_eq!(server.process(), None);
    }
}
