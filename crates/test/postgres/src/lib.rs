//! A private PostgreSQL server for the study and for tests: created in a directory, started,
//! queried and stopped.
//!
//! It runs the installed programs with default settings, apart from its size. It listens only on a
//! Unix socket in a directory that no other user can enter, because every connection is trusted. It
//! syncs as usual, so its costs and its state after a crash are realistic.
//!
//! PostgreSQL refuses to run as root, so root runs it as nobody, who must be able to reach the
//! directories above the data. The home directory of root blocks that; if it is above the requested
//! directory, the data goes to one of [`FALLBACK_DIRS`] on the same file system. That directory is
//! on the same disk with the same I/O path, as a measurement requires. If there is no such
//! directory, an error is returned.
//!
//! This is a separate crate because both the study and `xtask`, which must build fast, need it.
//! Creating a server takes as long as `initdb` and uses about 40 MB.

use ioloom_failure::{quoted, reason};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Unprivileged user and group.
const NOBODY: u32 = 65_534;
/// Number of connection attempts while a server starts.
const TRIES: u32 = 2400;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(25);
/// Maximum length of a server directory path in bytes. With `/socket/.s.PGSQL.5432` and a NUL
/// appended, it must fit into a socket address (108 bytes).
const DIR_BYTES_MAX: usize = 86;
/// Alternative data directories for a server that cannot use the requested one.
pub const FALLBACK_DIRS: [&str; 2] = ["/var/tmp", "/tmp"];
/// Settings of every server. Shared memory is stored with the data because a killed server would
/// leave it behind in /dev/shm.
const USUAL: [&str; 4] = [
    "listen_addresses=",
    "shared_buffers=16MB",
    "max_connections=200",
    "dynamic_shared_memory_type=mmap",
];
/// Database user.
const USER: &str = "tester";

/// Directory of the PostgreSQL programs.
#[derive(Debug, Clone)]
pub struct Programs(PathBuf);

impl Programs {
    /// Finds the newest installed version in Debian's directories.
    ///
    /// # Errors
    /// No server is installed; the message explains how to install one.
    pub fn find() -> Result<Self, String> {
        Self::newest(Path::new("/usr/lib/postgresql")).ok_or_else(|| {
            "PostgreSQL is not installed; install it (Debian: apt install postgresql)".to_owned()
        })
    }

    /// Returns the newest version below a directory that has server programs; some have only client
    /// programs.
    fn newest(dir: &Path) -> Option<Self> {
        let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
        let all = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let servers = all.filter(|path| path.join("bin/initdb").exists());
        servers.max_by_key(|path| version(path)).map(|newest| Self(newest.join("bin")))
    }

    /// Prepares a PostgreSQL command, run as a user that it accepts.
    fn command(&self, name: &str, dir: &Path) -> Command {
        let mut command = Command::new(self.0.join(name));
        remove_variables(&mut command, std::env::vars_os().map(|(name, _)| name));
        command.current_dir(dir).env("LC_ALL", "C").stdin(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Checks whether a server can run below `dir` or on its file system, by starting a program
    /// there.
    ///
    /// # Errors
    /// The reason, with a remedy.
    pub fn probe(&self, dir: &Path) -> Result<(), String> {
        self.base(dir).map(drop)
    }

    /// Returns `dir`, or one of [`FALLBACK_DIRS`] on the same file system if PostgreSQL cannot use
    /// `dir`.
    fn base(&self, dir: &Path) -> Result<PathBuf, String> {
        let (reason, remedy) = match self.reach(dir) {
            Ok(()) => return Ok(dir.to_owned()),
            Err((reason, None)) => return Err(reason),
            Err((reason, Some(remedy))) => (reason, remedy),
        };
        let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
        let same = device(dir);
        let fits =
            |place: &&Path| same.is_some() && device(place) == same && self.reach(place).is_ok();
        let found = FALLBACK_DIRS.into_iter().map(Path::new).find(fits).map(Path::to_owned);
        found.ok_or_else(|| {
            format!(
                "{reason}, and neither {} is usable on the same file system; use {remedy}",
                FALLBACK_DIRS.join(" nor ")
            )
        })
    }

    /// Checks whether PostgreSQL can use `dir`. On error returns the reason, and a remedy if the
    /// directory is at fault.
    fn reach(&self, dir: &Path) -> Result<(), (String, Option<&'static str>)> {
        let shown = quoted(dir);
        if dir.as_os_str().len() > DIR_BYTES_MAX {
            return Err((
                format!("the path of a PostgreSQL socket below {shown} would be too long"),
                Some("a work directory with a shorter path (--dir)"),
            ));
        }
        if dir.as_os_str().as_encoded_bytes().contains(&b',') {
            return Err((
                format!("PostgreSQL would split {shown} at its commas into several directories"),
                Some("a work directory without a comma in its path (--dir)"),
            ));
        }
        fs::metadata(dir).map_err(|e| (format!("cannot stat {shown}: {}", reason(&e)), None))?;
        let ran = self.command("initdb", dir).arg("--version").stdout(Stdio::null()).status();
        match ran {
            Ok(status) if status.success() => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !is_root() => Err((
                format!("cannot run initdb in {shown}: {}", reason(&e)),
                Some("a work directory that this user can reach (--dir)"),
            )),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err((
                format!(
                    "PostgreSQL does not run as root, and the user nobody cannot reach {shown}"
                ),
                Some(
                    "a work directory that other users can reach (--dir), or another user than \
                    root",
                ),
            )),
            Ok(status) => Err((format!("initdb failed: {status}"), None)),
            Err(e) => Err((format!("cannot run initdb: {}", reason(&e)), None)),
        }
    }
}

/// Removes `PG*` variables, which are meant for other servers.
fn remove_variables(command: &mut Command, names: impl Iterator<Item = OsString>) {
    for name in names.filter(|name| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
}

/// Quotes a value for a connection string.
fn quoted_value(value: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@:".contains(c);
    if value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Data directory of a server. Removed on drop if it is a fallback.
#[derive(Debug)]
struct DataDir {
    path: PathBuf,
    is_fallback: bool,
}

impl DataDir {
    /// Uses `meant` itself, or creates a directory in another base after removing leftovers of an
    /// interrupted run for the same directory.
    fn new(base: PathBuf, meant: &Path) -> Result<Self, String> {
        if base == meant {
            return Ok(Self { path: base, is_fallback: false });
        }
        let mut hasher = DefaultHasher::new();
        meant.hash(&mut hasher);
        let path = base.join(format!("ioloom-postgres-{:016x}", hasher.finish()));
        let made = clear(&path)
            .and_then(|()| fs::create_dir(&path))
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)));
        made.map_err(|e| {
            format!("cannot create directory {}: {}; remove it", quoted(&path), reason(&e))
        })?;
        Ok(Self { path, is_fallback: true })
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if self.is_fallback {
            // The next run for the same directory removes any leftovers.
            let _ = clear(&self.path);
        }
    }
}

/// Removes a directory owned by this user if it exists. Anything else at that path is an error.
fn clear(path: &Path) -> io::Result<()> {
    let about = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about?,
    };
    let ours = fs::metadata("/proc/self")?.uid();
    if !about.is_dir() || about.uid() != ours {
        return Err(io::Error::other("another user owns it"));
    }
    fs::remove_dir_all(path)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// A server. Stopped and discarded on drop.
#[derive(Debug)]
pub struct Server {
    programs: Programs,
    data: PathBuf,
    socket: PathBuf,
    settings: Vec<String>,
    child: Option<Child>,
    /// Removed after the server has stopped.
    data_dir: Option<DataDir>,
}

impl Server {
    /// Describes a server with separate directories for data and for socket and log, and with
    /// settings such as `fsync=off`. Starts nothing.
    pub fn new(programs: Programs, data: &Path, socket: &Path, settings: &[&str]) -> Self {
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let (data, socket) = (data.to_owned(), socket.to_owned());
        Self { programs, data, socket, settings, child: None, data_dir: None }
    }

    /// Describes a server with everything below `dir` or, if PostgreSQL cannot reach `dir`, in a
    /// private directory on the same file system that is removed with the server. Starts nothing.
    ///
    /// # Errors
    /// There is no such directory (the message has a remedy), or it cannot be created.
    pub fn below(programs: Programs, dir: &Path, settings: &[&str]) -> Result<Self, String> {
        let base = DataDir::new(programs.base(dir)?, dir)?;
        let (data, socket) = (base.path.join("database"), base.path.join("socket"));
        let mut server = Self::new(programs, &data, &socket, settings);
        server.data_dir = Some(base);
        Ok(server)
    }

    /// Creates both directories and an empty database cluster, whose data is not synced yet.
    ///
    /// # Errors
    /// The message of the system or of `initdb`.
    pub fn create(&self) -> Result<(), String> {
        for dir in [&self.data, &self.socket] {
            let made = DirBuilder::new().mode(0o700).create(dir);
            let ours = made.and_then(|()| match is_root() {
                true => std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY)),
                false => Ok(()),
            });
            ours.map_err(|e| format!("cannot create directory {}: {}", quoted(dir), reason(&e)))?;
        }
        let mut initdb = self.programs.command("initdb", Path::new("/"));
        initdb.arg("-D").arg(&self.data);
        initdb.args(["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let out = initdb.output().map_err(|e| format!("cannot run initdb: {}", reason(&e)))?;
        if out.status.success() {
            return Ok(());
        }
        Err(format!("initdb failed: {}", String::from_utf8_lossy(&out.stderr).trim()))
    }

    /// Starts the server, even on the data of a killed one, and returns when it accepts queries.
    ///
    /// # Errors
    /// The server exited (the message contains its output) or does not accept queries.
    pub fn start(&mut self) -> Result<(), String> {
        let log = self.socket.join("log");
        let fail = |e: io::Error| format!("cannot start postgres: {}", reason(&e));
        let said = File::create(&log).map_err(fail)?;
        let mut command = self.programs.command("postgres", Path::new("/"));
        command.arg("-D").arg(&self.data).arg("-k").arg(&self.socket);
        for setting in USUAL.into_iter().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.stdout(said.try_clone().map_err(fail)?).stderr(said);
        self.child = Some(command.spawn().map_err(fail)?);
        for _ in 0..TRIES {
            if self.query("postgres", "SELECT 1").is_ok() {
                return Ok(());
            }
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                let output = fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("postgres exited with {status}: {}", output.trim()));
            }
            std::thread::sleep(PAUSE);
        }
        Err("postgres does not accept connections".to_owned())
    }

    /// Executes a statement and returns its result as text.
    ///
    /// # Errors
    /// The message of the server, or the reason why it cannot be reached.
    pub fn query(&self, database: &str, statement: &str) -> Result<String, String> {
        let mut psql = self.programs.command("psql", Path::new("/"));
        psql.arg("-h").arg(&self.socket).args(["-U", USER, "-d", database, "-XAtqc", statement]);
        let out = psql.output().map_err(|e| format!("cannot run psql: {}", reason(&e)))?;
        match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned()),
            false => Err(String::from_utf8_lossy(&out.stderr).trim_end().to_owned()),
        }
    }

    /// Creates an empty database and returns its connection string.
    ///
    /// # Errors
    /// The message of the server.
    pub fn database(&self, name: &str) -> Result<String, String> {
        self.query("postgres", &format!("CREATE DATABASE {name}"))?;
        let host = quoted_value(&self.socket.to_string_lossy());
        Ok(format!("host={host} user={USER} dbname={name}"))
    }

    /// Describes a server on a copy of the data with the same connection string. This server must
    /// have been killed before the other is started.
    pub fn on(&self, data: &Path) -> Self {
        let (programs, settings) = (self.programs.clone(), self.settings.clone());
        let (data, socket) = (data.to_owned(), self.socket.clone());
        Self { programs, data, socket, settings, child: None, data_dir: None }
    }

    /// Creates a replica of this running server, with its own directories, and starts it. Orders that
    /// this server commits from now on wait for the replica if they are to be durable.
    ///
    /// # Errors
    /// The message of the system or of PostgreSQL.
    pub fn replica(&self, data: &Path, socket: &Path) -> Result<Self, String> {
        let made = DirBuilder::new().mode(0o700).create(socket);
        let ours = made.and_then(|()| match is_root() {
            true => std::os::unix::fs::chown(socket, Some(NOBODY), Some(NOBODY)),
            false => Ok(()),
        });
        ours.map_err(|e| format!("cannot create directory {}: {}", quoted(socket), reason(&e)))?;
        let mut backup = self.programs.command("pg_basebackup", Path::new("/"));
        backup
            .arg("-h")
            .arg(&self.socket)
            .args(["-U", USER, "-c", "fast", "--no-sync", "-R", "-D"])
            .arg(data);
        let out = backup.output().map_err(|e| format!("cannot run it: {}", reason(&e)))?;
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).trim().to_owned());
        }
        let (programs, settings) = (self.programs.clone(), self.settings.clone());
        let (data, socket) = (data.to_owned(), socket.to_owned());
        let mut replica = Self { programs, data, socket, settings, child: None, data_dir: None };
        replica.start()?;
        self.query("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        self.query("postgres", "SELECT pg_reload_conf()")?;
        let waits = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        for _ in 0..TRIES {
            if self.query("postgres", waits)? == "1" {
                return Ok(replica);
            }
            std::thread::sleep(PAUSE);
        }
        Err("the replica does not become synchronous".to_owned())
    }

    /// Makes a replica the primary server. It waits for no replica of its own.
    ///
    /// # Errors
    /// The message of the server.
    pub fn promote(&self) -> Result<(), String> {
        self.query("postgres", "SELECT pg_promote(wait_seconds => 60)")?;
        self.query("postgres", "ALTER SYSTEM RESET synchronous_standby_names")?;
        self.query("postgres", "SELECT pg_reload_conf()").map(drop)
    }

    /// Returns the directory of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the id of the main process while it runs.
    pub fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Stops the server without a checkpoint and returns when all its processes have exited.
    pub fn discard(&mut self) {
        let mut stop = self.programs.command("pg_ctl", Path::new("/"));
        stop.args(["stop", "-m", "immediate", "-t", "30", "-D"]).arg(&self.data);
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
        self.kill();
    }

    /// Kills the main process; the others exit when they notice.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Server {
    /// Stops the children too: after the main process is killed, they would keep writing while the
    /// data is removed.
    fn drop(&mut self) {
        if self.child.is_some() {
            self.discard();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::print_stdout, reason = "skipped tests report it")]

    use super::*;
    use std::os::unix::fs::symlink;

    /// Programs that do nothing and succeed.
    fn idle_programs(dir: &Path) -> Programs {
        for name in ["initdb", "pg_ctl"] {
            symlink("/bin/true", dir.join(name)).unwrap();
        }
        Programs(dir.to_owned())
    }

    /// Test directory that every user may enter; removed on drop.
    struct Room(PathBuf);

    impl Room {
        fn new(name: &str) -> Self {
            let name = format!("ioloom-test-{name}-{}", std::process::id());
            let room = Self(std::env::temp_dir().join(name));
            fs::create_dir(&room.0).unwrap();
            fs::set_permissions(&room.0, Permissions::from_mode(0o755)).unwrap();
            room
        }
    }

    impl Drop for Room {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn errors_name_the_remedy() {
        let programs = Programs(PathBuf::from("/nowhere"));
        let refused = programs.probe(Path::new(&format!("/{}", "x".repeat(DIR_BYTES_MAX))));
        assert!(refused.unwrap_err().contains("--dir"));
        assert!(programs.probe(Path::new("/a,b")).unwrap_err().contains("comma"));
        let refused = programs.probe(Path::new("/not/there")).unwrap_err();
        assert!(
            refused.contains("cannot stat '/not/there'") && !refused.contains("initdb"),
            "{refused}"
        );
        assert!(programs.probe(Path::new("/")).unwrap_err().contains("cannot run initdb"));
        let mut server = Server::new(programs, Path::new("/a"), Path::new("/b"), &[]);
        assert!(server.start().unwrap_err().contains("cannot start postgres"));
        assert!(server.query("x", "SELECT 1").unwrap_err().contains("cannot run psql"));
        assert_eq!(server.process(), None);
    }

    #[test]
    fn unusable_directories_are_replaced_on_the_same_file_system_or_refused() {
        let room = Room::new("place");
        let programs = idle_programs(&room.0);
        assert_eq!(programs.base(&room.0).unwrap(), room.0);
        // One directory is inaccessible to other users, like root's home directory; the other path
        // is too long.
        let closed = room.0.join("closed");
        DirBuilder::new().mode(0o700).create(&closed).unwrap();
        let mut all = vec![room.0.join("x".repeat(DIR_BYTES_MAX)), room.0.join("a,b")];
        all.extend(is_root().then(|| closed.join("work")));
        for dir in all {
            fs::create_dir(&dir).unwrap();
            let device = |path: &Path| fs::metadata(path).unwrap().dev();
            let places = FALLBACK_DIRS.map(Path::new);
            if !places.iter().any(|place| place.exists() && device(place) == device(&dir)) {
                assert!(programs.probe(&dir).unwrap_err().contains("same file system"));
                continue;
            }
            let server = Server::below(programs.clone(), &dir, &[]).unwrap();
            let own = server.data.parent().unwrap().to_owned();
            assert_eq!((device(&own), server.socket.parent()), (device(&dir), Some(&*own)));
            assert!(!own.starts_with(&dir) && own.is_dir());
            // The next run removes leftovers of a killed run, and later its own directory.
            fs::write(own.join("left"), "x").unwrap();
            std::mem::forget(server);
            let server = Server::below(programs.clone(), &dir, &[]).unwrap();
            assert!(own.is_dir() && !own.join("left").exists());
            drop(server);
            assert!(!own.exists());
            // Files of other users are left alone.
            symlink(&room.0, &own).unwrap();
            let refused = Server::below(programs.clone(), &dir, &[]).unwrap_err();
            assert!(refused.contains("remove it"), "{refused}");
            fs::remove_file(&own).unwrap();
        }
    }

    #[test]
    fn client_only_installations_are_skipped() {
        let room = Room::new("versions");
        assert!(Programs::newest(&room.0.join("none")).is_none());
        for (version, program) in [("9", "initdb"), ("15", "initdb"), ("17", "psql")] {
            let bin = room.0.join(version).join("bin");
            fs::create_dir_all(&bin).unwrap();
            symlink("/bin/true", bin.join(program)).unwrap();
        }
        assert_eq!(Programs::newest(&room.0).unwrap().0, room.0.join("15/bin"));
    }

    #[test]
    fn variables_for_other_servers_are_removed() {
        // Never started.
        let mut command = Command::new("true");
        let names = ["PGPORT", "HOME", "PGOPTIONS", "XPG"].map(OsString::from);
        remove_variables(&mut command, names.into_iter());
        let left_out: Vec<_> = command.get_envs().collect();
        assert_eq!(left_out, [("PGOPTIONS".as_ref(), None), ("PGPORT".as_ref(), None)]);
    }

    #[test]
    fn odd_directories_are_quoted() {
        assert_eq!(quoted_value("/var/tmp/a-1.b_c/socket"), "/var/tmp/a-1.b_c/socket");
        assert_eq!(quoted_value("/my work/it's"), r"'/my work/it\'s'");
        assert_eq!(quoted_value(r"/a\b"), r"'/a\\b'");
    }

    /// The longest accepted directory leaves room for the socket path.
    #[test]
    fn the_socket_of_the_longest_directory_fits_into_an_address() {
        let dir = format!("/{}", "x".repeat(DIR_BYTES_MAX - 1));
        let socket = Path::new(&dir).join("socket/.s.PGSQL.5432");
        std::os::unix::net::SocketAddr::from_pathname(&socket).unwrap();
        let longer = format!("{dir}x/socket/.s.PGSQL.5432");
        assert!(std::os::unix::net::SocketAddr::from_pathname(longer).is_err());
    }

    /// Returns the child processes of `parent`.
    fn children(parent: u32) -> Vec<PathBuf> {
        let wanted = format!("PPid:\t{parent}\n");
        let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let status = |path: &Path| fs::read_to_string(path.join("status")).unwrap_or_default();
        all.filter(|path| status(path).contains(&wanted)).collect()
    }

    #[test]
    fn no_process_outlives_its_server() {
        let programs = match Programs::find() {
            Ok(programs) => programs,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let room = Room::new("whole life");
        let dir = room.0.join("it's here");
        fs::create_dir(&dir).unwrap();
        let mut server = Server::new(programs, &dir.join("d"), &dir.join("s"), &["fsync=off"]);
        server.create().unwrap_or_else(|reason| panic!("{reason}"));
        server.start().unwrap_or_else(|reason| panic!("{reason}"));
        let words = server.database("stocks").unwrap();
        assert!(words.contains(r"it\'s here/s' user="), "{words}");
        let first = server.process().unwrap();
        let all = children(first);
        assert!(!all.is_empty());
        drop(server);
        for path in all.into_iter().chain([PathBuf::from(format!("/proc/{first}"))]) {
            assert!(!path.exists(), "{}", path.display());
        }
    }
}
