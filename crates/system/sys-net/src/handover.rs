//! Replaces the program of this process and passes descriptors to the next one.
//!
//! The process keeps its ID, so a service manager needs no notice. Listening sockets keep their
//! backlogs, so no connection is refused in between, and locks stay held, because both belong to
//! open files, which `execve` keeps. A variable in the environment, with the process ID, names the
//! descriptors: `IOLOOM_HANDOVER=PID main:5 line:6 lock:7`.
//!
//! A program that cannot continue must not get the sockets. [`Program::check`] therefore first runs it as a
//! child with `IOLOOM_HANDOVER=check`, in which it verifies its options and exits.

use crate::inherited::{Inherited, take_listener};
use ioloom_sys::fault;
use rustix::io::{FdFlags, fcntl_setfd};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const VARIABLE: &str = "IOLOOM_HANDOVER";
const CHECK: &str = "check";
/// Name of a listener without a name.
const MAIN: &str = "main";
const LOCK: &str = "lock";
/// Signals that would end the next program before it can handle them.
const IGNORED: [i32; 3] = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Whether the descriptors have been taken: a descriptor must have one owner.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Descriptors that the next program continues to use.
#[derive(Debug, Default)]
pub struct Handover {
    /// Listening sockets, all of those that share a port.
    pub listeners: Vec<Inherited>,
    /// Locked files.
    pub locks: Vec<OwnedFd>,
}

/// A program with its arguments.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    args: Vec<OsString>,
}

impl Program {
    /// Returns the program at a path with these arguments.
    pub fn new(path: PathBuf, args: Vec<OsString>) -> Self {
        Self { path, args }
    }

    /// Returns the program that would run if the command of this process were given again. Call it
    /// before the file can be replaced.
    ///
    /// # Errors
    /// Fails if the command does not say, and the system does not either.
    pub fn of_this_process() -> io::Result<Self> {
        let mut args = std::env::args_os();
        let name = PathBuf::from(args.next().unwrap_or_default());
        // Symlinks are not resolved: one of them may select the version.
        let named = match name.components().count() {
            0 => None,
            1 if !name.as_os_str().as_encoded_bytes().contains(&b'/') => in_path(&name),
            _ => std::path::absolute(&name).ok(),
        };
        let path = match named.filter(|path| path.is_file()) {
            Some(path) => path,
            None => fault::call("readlink", std::env::current_exe)?,
        };
        Ok(Self::new(path, args.collect()))
    }

    /// Returns the path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.args);
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
            command.env_remove(name);
        }
        command
    }

    /// Starts a child that verifies its options and exits; it fails if the program cannot continue
    /// the work of this one. Its messages can be read from standard error.
    ///
    /// # Errors
    /// Fails if the program cannot be run.
    pub fn check(&self) -> io::Result<Child> {
        let mut command = self.command();
        command.env(VARIABLE, CHECK).env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        fault::call("spawn", || command.spawn())
    }

    /// Replaces this process by the program, which takes over the descriptors. Returns only if that
    /// fails, or `None` if `is_stopped` returns true; then nothing has changed.
    ///
    /// From before the call of `is_stopped`, the signals in `fatal` end this process: its handlers
    /// would lose one that arrives so late.
    pub fn replace_this_process(
        &self,
        handover: &Handover,
        fatal: &[i32],
        is_stopped: &dyn Fn() -> bool,
    ) -> Option<io::Error> {
        let sockets = handover.listeners.iter().map(|inherited| {
            let name = if inherited.name.is_empty() { MAIN } else { &inherited.name };
            (name, inherited.listener.as_raw_fd())
        });
        let all = sockets.chain(handover.locks.iter().map(|lock| (LOCK, lock.as_raw_fd())));
        let words: Vec<String> = all.map(|(name, fd)| format!("{name}:{fd}")).collect();
        if let Err(error) = set_flags(handover, FdFlags::empty()) {
            let _ = set_flags(handover, FdFlags::CLOEXEC);
            return Some(error);
        }
        let mut command = self.command();
        command.env(VARIABLE, format!("{} {}", std::process::id(), words.join(" ")));
        let ignored = IGNORED.iter().map(|signal| (*signal, libc::SIG_IGN));
        let ending = fatal.iter().map(|signal| (*signal, libc::SIG_DFL));
        let before: Vec<_> =
            ignored.chain(ending).map(|(signal, how)| (signal, handle(signal, how))).collect();
        let failed = (!is_stopped()).then(|| {
            let failed = fault::call("execve", || Err::<(), _>(command.exec()));
            failed.err().unwrap_or_else(|| io::Error::other("the program did not start"))
        });
        for (signal, action) in before {
            restore(signal, &action);
        }
        let _ = set_flags(handover, FdFlags::CLOEXEC);
        failed
    }
}

/// Finds a program like a shell.
fn in_path(name: &Path) -> Option<PathBuf> {
    let dirs = std::env::var_os("PATH")?;
    std::env::split_paths(&dirs).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Sets the descriptor flags of all descriptors.
fn set_flags(handover: &Handover, flags: FdFlags) -> io::Result<()> {
    for inherited in &handover.listeners {
        fault::call("fcntl", || Ok(fcntl_setfd(&inherited.listener, flags)?))?;
    }
    handover
        .locks
        .iter()
        .try_for_each(|lock| fault::call("fcntl", || Ok(fcntl_setfd(lock, flags)?)))
}

/// Ignores a signal, which `execve` keeps, or lets it have its default effect. Returns the previous
/// action.
fn handle(signal: i32, how: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: both actions are initialised, and neither disposition runs code of this process.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) =
            (std::mem::zeroed(), std::mem::zeroed());
        action.sa_sigaction = how;
        libc::sigaction(signal, &raw const action, &raw mut before);
        before
    }
}

fn restore(signal: i32, action: &libc::sigaction) {
    // SAFETY: the action was installed before.
    unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
}

/// Reports whether this process only has to verify its options.
pub fn is_check() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|text| text == CHECK)
}

/// Takes the descriptors that the previous program of this process passed to this one, if any.
/// Later calls return none.
///
/// # Errors
/// Fails if they are not open, or if a socket is not listening.
pub fn take() -> io::Result<Option<Handover>> {
    let text = std::env::var(VARIABLE).unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    let is_ours = words.next().and_then(|pid| pid.parse().ok()) == Some(std::process::id());
    if !is_ours || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(None);
    }
    let mut handover = Handover::default();
    for word in words {
        let pair = word.split_once(':').and_then(|(name, fd)| Some((name, fd.parse().ok()?)));
        let (name, fd): (&str, RawFd) = pair.ok_or_else(|| invalid(word))?;
        if name == LOCK {
            handover.locks.push(take_lock(fd).map_err(|_| invalid(word))?);
        } else {
            let listener = take_listener(fd).map_err(|_| invalid(word))?;
            let name = if name == MAIN { String::new() } else { name.to_owned() };
            handover.listeners.push(Inherited { listener, name });
        }
    }
    Ok(Some(handover))
}

fn invalid(word: &str) -> io::Error {
    let text = format!("invalid descriptor '{word}' in {VARIABLE}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn take_lock(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl accepts any number and does not access memory.
    if fd < 3 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is open, the previous program passed it to this one, and `TAKEN` guarantees that
    // it is taken once.
    let lock = unsafe { OwnedFd::from_raw_fd(fd) };
    fault::call("fcntl", || Ok(fcntl_setfd(&lock, FdFlags::CLOEXEC)?))?;
    Ok(lock)
}
