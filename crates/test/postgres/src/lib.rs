//! A PostgreSQL server of one's own: made in a directory, started, asked, ended; for the study and for
//! tests.
//!
//! It is the server that is installed, with its own programs and settings as delivered, but for its
//! size. It is reached by a Unix socket in a directory that nobody else may enter, because whoever
//! reaches it is trusted with everything; it has no port. It syncs as usual, so that what it costs and
//! what a killed one holds tell something.
//!
//! It refuses to run as root, so root runs it as nobody, who must be able to reach the directories above
//! its data. The home of root lets nobody in, so where that is above the directory that was meant its data
//! lies in one of [`FALLBACK_DIRS`] that is on the same file system: the same disk and the same way to it,
//! which is what a measurement asks for. Without such a place it is refused.
//!
//! A crate of its own: the study needs it, and so does the automation, which must build fast. Nothing
//! but the standard library is used. Making one costs the time of `initdb` and 40 MB or so.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
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
/// Longest path of a directory that a server lies below, bytes: with `/socket/.s.PGSQL.5432` behind it
/// and a zero byte it must fit into an address of the system, which has 108.
const DIR_BYTES_MAX: usize = 86;
/// Where the data of a server lies that cannot lie where it was meant to.
pub const FALLBACK_DIRS: [&str; 2] = ["/var/tmp", "/tmp"];
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
        Self::newest(Path::new("/usr/lib/postgresql")).ok_or_else(|| {
            "PostgreSQL is not installed; remedy: install it (Debian: apt install postgresql)"
                .to_owned()
        })
    }

    /// The newest of the versions that lie in a directory. Of some there are programs for clients alone.
    fn newest(dir: &Path) -> Option<Self> {
        let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
        let all = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let servers = all.filter(|path| path.join("bin/initdb").exists());
        servers.max_by_key(|path| version(path)).map(|newest| Self(newest.join("bin")))
    }

    /// A command of PostgreSQL, as a user that it accepts.
    fn command(&self, name: &str, dir: &Path) -> Command {
        let mut command = Command::new(self.0.join(name));
        without_settings(&mut command, std::env::vars_os().map(|(name, _)| name));
        command.current_dir(dir).env("LC_ALL", "C").stdin(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Whether a server with its data below `dir` can be had, or on the file system of `dir`; found by
    /// starting a program there.
    ///
    /// # Errors
    /// Why not, with the remedy.
    pub fn probe(&self, dir: &Path) -> Result<(), String> {
        self.base(dir).map(drop)
    }

    /// The directory below which a server that is meant to lie below `dir` can lie: that one, or one of
    /// [`FALLBACK_DIRS`] on the same file system.
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
                "{reason}, and neither {} is a place on the same file system that it could have; \
                 remedy: {remedy}",
                FALLBACK_DIRS.join(" nor ")
            )
        })
    }

    /// Whether PostgreSQL can have its data below `dir`; if not, why, and the remedy where it is the
    /// directory.
    fn reach(&self, dir: &Path) -> Result<(), (String, Option<&'static str>)> {
        let shown = dir.display();
        if dir.as_os_str().len() > DIR_BYTES_MAX {
            return Err((
                format!(
                    "the socket of PostgreSQL would have a path that is too long below {shown}"
                ),
                Some("a work directory with a shorter path (--dir)"),
            ));
        }
        if dir.as_os_str().as_encoded_bytes().contains(&b',') {
            return Err((
                format!("PostgreSQL would take {shown} for several directories, at its commas"),
                Some("a work directory without a comma in its path (--dir)"),
            ));
        }
        fs::metadata(dir).map_err(|e| (format!("look at {shown} for PostgreSQL: {e}"), None))?;
        let ran = self.command("initdb", dir).arg("--version").stdout(Stdio::null()).status();
        match ran {
            Ok(status) if status.success() => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !is_root() => Err((
                format!("initdb of PostgreSQL cannot be started in {shown}: {e}"),
                Some("a work directory that this user can reach (--dir)"),
            )),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err((
                format!(
                    "PostgreSQL does not run as root, and the user nobody cannot reach {shown}"
                ),
                Some(
                    "a work directory that others can reach (--dir), or run it as another user than \
                     root",
                ),
            )),
            Ok(status) => Err((format!("initdb of PostgreSQL ended with {status}"), None)),
            Err(e) => Err((format!("start initdb of PostgreSQL: {e}"), None)),
        }
    }
}

/// Leaves out what the user has set for other servers of PostgreSQL: a port, a service, options.
fn without_settings(command: &mut Command, names: impl Iterator<Item = OsString>) {
    for name in names.filter(|name| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
}

/// A value as it stands behind `host=` in the words by which a database is reached.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@:".contains(c);
    if value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A directory for the data of a server, which is removed with this if it lies elsewhere than was meant.
#[derive(Debug)]
struct DataDir {
    path: PathBuf,
    is_elsewhere: bool,
}

impl DataDir {
    /// The directory that was meant, or one of our own in another base, made anew: what a killed run of
    /// the same directory has left there is removed.
    fn new(base: PathBuf, meant: &Path) -> Result<Self, String> {
        if base == meant {
            return Ok(Self { path: base, is_elsewhere: false });
        }
        let mut hasher = DefaultHasher::new();
        meant.hash(&mut hasher);
        let path = base.join(format!("ioloom-postgres-{:016x}", hasher.finish()));
        let made = clear(&path)
            .and_then(|()| fs::create_dir(&path))
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)));
        made.map_err(|e| format!("make {} for PostgreSQL: {e}; remove it", path.display()))?;
        Ok(Self { path, is_elsewhere: true })
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if self.is_elsewhere {
            // What stays is removed by the next run of the same directory.
            let _ = clear(&self.path);
        }
    }
}

/// Removes a directory of ours, if it is there; what others put into its place is an error.
fn clear(path: &Path) -> io::Result<()> {
    let about = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about?,
    };
    let ours = fs::metadata("/proc/self")?.uid();
    if !about.is_dir() || about.uid() != ours {
        return Err(io::Error::other("somebody else made it"));
    }
    fs::remove_dir_all(path)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// A server; it is thrown away with this.
#[derive(Debug)]
pub struct Server {
    programs: Programs,
    data: PathBuf,
    socket: PathBuf,
    settings: Vec<String>,
    child: Option<Child>,
    /// What goes when it has ended.
    place: Option<DataDir>,
}

impl Server {
    /// One with its data in a directory and its socket and log in another one, with settings such as
    /// `fsync=off`. Nothing is done yet.
    pub fn new(programs: Programs, data: &Path, socket: &Path, settings: &[&str]) -> Self {
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let (data, socket) = (data.to_owned(), socket.to_owned());
        Self { programs, data, socket, settings, child: None, place: None }
    }

    /// One with everything of it below `dir`; or, where PostgreSQL cannot reach that, in a directory of
    /// its own on the same file system, which goes with it. Nothing is started yet.
    ///
    /// # Errors
    /// There is no such place, with the remedy, or it cannot be made.
    pub fn below(programs: Programs, dir: &Path, settings: &[&str]) -> Result<Self, String> {
        let place = DataDir::new(programs.base(dir)?, dir)?;
        let (data, socket) = (place.path.join("database"), place.path.join("socket"));
        let mut server = Self::new(programs, &data, &socket, settings);
        server.place = Some(place);
        Ok(server)
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
        let host = quoted(&self.socket.to_string_lossy());
        Ok(format!("host={host} user={USER} dbname={name}"))
    }

    /// A server on a copy of its data, reached by the same words, so this one must have been killed
    /// before it is started.
    pub fn on(&self, data: &Path) -> Self {
        let (programs, settings) = (self.programs.clone(), self.settings.clone());
        let (data, socket) = (data.to_owned(), self.socket.clone());
        Self { programs, data, socket, settings, child: None, place: None }
    }

    /// The number of its first process while it runs.
    pub fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Ends it without care for what it holds, and returns when all of its processes have gone.
    pub fn discard(&mut self) {
        let mut stop = self.programs.command("pg_ctl", Path::new("/"));
        stop.args(["stop", "-m", "immediate", "-t", "30", "-D"]).arg(&self.data);
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
    /// Those that a killed first process leaves would go on writing where its data is removed.
    fn drop(&mut self) {
        if self.child.is_some() {
            self.discard();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::print_stdout, reason = "a skipped test says so")]

    use super::*;
    use std::os::unix::fs::symlink;

    /// Programs of which each does nothing, well.
    fn idle_programs(dir: &Path) -> Programs {
        for name in ["initdb", "pg_ctl"] {
            symlink("/bin/true", dir.join(name)).unwrap();
        }
        Programs(dir.to_owned())
    }

    /// A directory of a test, which everybody may enter and which is removed with this.
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
    fn what_cannot_be_had_is_refused_with_the_remedy() {
        let programs = Programs(PathBuf::from("/nowhere"));
        let refused = programs.probe(Path::new(&format!("/{}", "x".repeat(DIR_BYTES_MAX))));
        assert!(refused.unwrap_err().contains("--dir"));
        assert!(programs.probe(Path::new("/a,b")).unwrap_err().contains("comma"));
        let refused = programs.probe(Path::new("/not/there")).unwrap_err();
        assert!(refused.contains("look at /not/there") && !refused.contains("initdb"), "{refused}");
        assert!(programs.probe(Path::new("/")).unwrap_err().contains("start initdb"));
        let mut server = Server::new(programs, Path::new("/a"), Path::new("/b"), &[]);
        assert!(server.start().unwrap_err().contains("start postgres"));
        assert!(server.ask("x", "SELECT 1").unwrap_err().contains("start psql"));
        assert_eq!(server.process(), None);
    }

    #[test]
    fn a_directory_that_it_cannot_have_is_replaced_on_the_same_file_system_or_refused() {
        let room = Room::new("place");
        let programs = idle_programs(&room.0);
        assert_eq!(programs.base(&room.0).unwrap(), room.0);
        // One is closed to nobody, as the home of root is; the other is too long for anybody.
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
            // What a killed run has left goes with the next one, and that takes its own away.
            fs::write(own.join("left"), "x").unwrap();
            std::mem::forget(server);
            let server = Server::below(programs.clone(), &dir, &[]).unwrap();
            assert!(own.is_dir() && !own.join("left").exists());
            drop(server);
            assert!(!own.exists());
            // Nothing of somebody else is touched.
            symlink(&room.0, &own).unwrap();
            let refused = Server::below(programs.clone(), &dir, &[]).unwrap_err();
            assert!(refused.contains("remove it"), "{refused}");
            fs::remove_file(&own).unwrap();
        }
    }

    #[test]
    fn programs_for_clients_alone_make_no_server() {
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
    fn what_is_set_for_other_servers_does_not_reach_ours() {
        // It is never started.
        let mut command = Command::new("true");
        let names = ["PGPORT", "HOME", "PGOPTIONS", "XPG"].map(OsString::from);
        without_settings(&mut command, names.into_iter());
        let left_out: Vec<_> = command.get_envs().collect();
        assert_eq!(left_out, [("PGOPTIONS".as_ref(), None), ("PGPORT".as_ref(), None)]);
    }

    #[test]
    fn odd_directories_are_named_so_that_they_are_read_back() {
        assert_eq!(quoted("/var/tmp/a-1.b_c/socket"), "/var/tmp/a-1.b_c/socket");
        assert_eq!(quoted("/my work/it's"), r"'/my work/it\'s'");
        assert_eq!(quoted(r"/a\b"), r"'/a\\b'");
    }

    /// The longest directory that is not refused has room for the socket below it.
    #[test]
    fn the_socket_of_the_longest_directory_fits_into_an_address() {
        let dir = format!("/{}", "x".repeat(DIR_BYTES_MAX - 1));
        let socket = Path::new(&dir).join("socket/.s.PGSQL.5432");
        std::os::unix::net::SocketAddr::from_pathname(&socket).unwrap();
        let longer = format!("{dir}x/socket/.s.PGSQL.5432");
        assert!(std::os::unix::net::SocketAddr::from_pathname(longer).is_err());
    }

    /// Processes whose parent is this one.
    fn children(parent: u32) -> Vec<PathBuf> {
        let wanted = format!("PPid:\t{parent}\n");
        let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let status = |path: &Path| fs::read_to_string(path.join("status")).unwrap_or_default();
        all.filter(|path| status(path).contains(&wanted)).collect()
    }

    #[test]
    fn nothing_of_a_server_outlives_it() {
        let programs = match Programs::find() {
            Ok(programs) => programs,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let room = Room::new("whole life");
        let dir = room.0.join("it's here");
        fs::create_dir(&dir).unwrap();
        let mut server = Server::new(programs, &dir.join("d"), &dir.join("s"), &["fsync=off"]);
        server.make().unwrap_or_else(|reason| panic!("{reason}"));
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
