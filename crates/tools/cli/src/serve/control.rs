//! Signals of a running server, and messages to the service manager.
//!
//! Signals that would terminate the process stop the server instead, which saves the stocks, except
//! SIGKILL, SIGFPE, SIGILL, SIGSEGV and SIGBUS, which cannot be caught or report a fault; another
//! SIGINT, SIGTERM or SIGQUIT exits without waiting, but not within a second: programs such as
//! `timeout` send a signal to a process and then to its group. SIGHUP reloads, because terminals
//! and service managers send it for that or for reasons that should not end a server, SIGUSR1
//! prints the state, and SIGUSR2 hands over to the program that is now at the path of this one. A
//! signal to stop ends a handover until the moment in which the next program replaces this one.
//! A server that is opening its store completes that first, and then stops; only if that takes long,
//! the signal ends the process.
//!
//! Settings are reloaded by a thread of their own, which does not delay the end of the process: a file
//! system that does not respond must not delay other signals.

use super::logging::{self, TARGET};
use crate::exit::{Exit, Failure};
use ioloom_failure::quoted;
use ioloom_serve::handover::{Handover, Program};
use ioloom_serve::inherited::Manager;
use ioloom_serve::{Reload, ServerHandle};
use ioloom_sys::clock;
use signal_hook::consts::signal::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGSYS, SIGTERM, SIGTRAP, SIGUSR1,
    SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

/// Signals that stop the server, except real-time signals.
const STOP: [i32; 14] = [
    SIGABRT, SIGALRM, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGSTKFLT, SIGSYS, SIGTERM, SIGTRAP,
    SIGVTALRM, SIGXCPU, SIGXFSZ,
];
/// Signals of Linux that have no name in `signal_hook`.
const SIGSTKFLT: i32 = 16;
const SIGPWR: i32 = 30;
/// Real-time signals that the C library does not use itself.
const REAL_TIME: RangeInclusive<i32> = 34..=64;

/// Signals that do not stop the server.
const MILD: [i32; 3] = [SIGHUP, SIGUSR1, SIGUSR2];
/// Time after the first signal to stop in which others mean the same.
const SAME_STOP: Duration = Duration::from_secs(1);
/// Time limit for a start to complete after a signal to stop.
const START_MAX: Duration = Duration::from_secs(5);
/// Time limit for a new program to verify its options.
const CHECK_MAX: Duration = Duration::from_secs(10);
/// Interval between looks at it.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum length of its message, in bytes.
const MESSAGE_MAX: u64 = 4096;
/// Time limit for it after the end of the program.
const MESSAGE_WAIT: Duration = Duration::from_secs(1);

/// Reads the settings that SIGHUP reloads. Returns them with the names of those that come from files.
pub(super) type ReadSettings =
    Arc<dyn Fn() -> Result<(Reload, Vec<&'static str>), Failure> + Send + Sync>;

/// What signals act on.
pub(super) struct Control {
    state: Arc<Mutex<State>>,
    manager: Option<Manager>,
    /// The command of this process.
    program: Program,
    /// Whether a signal to stop has arrived, even if it has not been handled yet.
    is_stopped: Arc<AtomicBool>,
    reloads: Arc<Requests>,
    /// The settings of the last reload, with which the server continues if no program follows.
    reloaded: Mutex<Option<Reload>>,
}

/// What became of a handover.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    /// A signal to stop had arrived.
    Stopped,
    /// The next program could not be run.
    Failed,
}

#[derive(Default)]
struct State {
    /// The server, once it can acknowledge orders.
    server: Option<ServerHandle>,
    /// When the first signal to stop arrived.
    stopping_since: Option<Instant>,
    is_handing_over: bool,
    /// The server is closed, and this program is about to be replaced.
    is_replacing: bool,
    /// A reload was requested while there was no server.
    is_reload_missed: bool,
    /// How many servers this process has announced.
    servers: u64,
}

/// What remains to be done after a reload.
#[derive(Debug, PartialEq, Eq)]
enum AfterReload {
    /// The server is ready.
    Ready,
    /// Another server follows the one that was reloaded, perhaps without the new settings.
    Repeat,
    /// A stop or a handover has been announced. If no program follows, the next server reloads.
    Wait,
}

impl State {
    /// Ends a reload of the server that was announced as number `servers`.
    fn after_reload(&mut self, servers: u64) -> AfterReload {
        if self.stopping_since.is_some() {
            return AfterReload::Wait;
        }
        if self.servers != servers {
            return AfterReload::Repeat;
        }
        // The settings can be too late for the server that follows a handover that fails.
        self.is_reload_missed |= self.server.is_none();
        match self.server.is_none() || self.is_handing_over || self.is_replacing {
            true => AfterReload::Wait,
            false => AfterReload::Ready,
        }
    }
}

/// Requests that a thread of their own handles, one at a time. Those that arrive while one is handled are
/// handled together after it.
#[derive(Debug, Default)]
struct Requests {
    /// Requests that are not handled yet, including those being handled.
    open: AtomicUsize,
}

impl Requests {
    /// Adds a request, and starts a thread that calls `handle` unless one runs.
    ///
    /// # Errors
    /// The thread cannot be started; the request is dropped.
    fn add(self: &Arc<Self>, handle: impl Fn() + Send + 'static) -> io::Result<()> {
        if self.open.fetch_add(1, Ordering::SeqCst) > 0 {
            return Ok(());
        }
        let requests = Arc::clone(self);
        let run = move || {
            loop {
                let seen = requests.open.load(Ordering::SeqCst);
                handle();
                if requests.open.fetch_sub(seen, Ordering::SeqCst) == seen {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("reload".to_owned()).spawn(run);
        started.map(drop).inspect_err(|_| self.open.store(0, Ordering::SeqCst))
    }
}

/// Returns the signals that stop the server.
fn stop_signals() -> impl Iterator<Item = i32> {
    STOP.into_iter().chain(REAL_TIME)
}

impl Control {
    /// Reads the environment.
    pub(super) fn new(program: Program) -> Result<Self, Failure> {
        let manager = Manager::from_environment().map_err(|e| {
            let reason = ioloom_failure::reason(&e);
            Failure::refused(format!("cannot use the socket in NOTIFY_SOCKET: {reason}"))
        })?;
        Ok(Self {
            state: Arc::default(),
            manager,
            program,
            is_stopped: Arc::default(),
            reloads: Arc::default(),
            reloaded: Mutex::default(),
        })
    }

    /// Catches all signals from now on.
    pub(super) fn signals(&self) -> Result<Signals, Failure> {
        let caught = Signals::new(stop_signals().chain(MILD)).and_then(|signals| {
            for signal in stop_signals() {
                signal_hook::flag::register(signal, Arc::clone(&self.is_stopped))?;
            }
            Ok(signals)
        });
        caught.map_err(|e| Failure::failed(format!("cannot install signal handlers: {e}")))
    }

    /// Announces a server that is about to serve; signals act on it from now on. It stops at once if
    /// a signal to stop arrived during its start.
    pub(super) fn set_ready(&self, server: ServerHandle, status: &str) {
        let is_reload_missed = {
            let mut state = self.lock();
            state.servers += 1;
            let is_reload_missed = std::mem::take(&mut state.is_reload_missed);
            let is_stopping = state.stopping_since.is_some();
            let server = state.server.insert(server);
            if is_stopping {
                server.stop();
                return;
            }
            is_reload_missed
        };
        self.send(&format!("READY=1\nSTATUS={status}\n"));
        if is_reload_missed {
            // The thread that handles signals starts it.
            let _ = signal_hook::low_level::raise(SIGHUP);
        }
    }

    /// Replaces this program by the one that is now at its path. Returns if that fails, or if the
    /// server was asked to stop.
    pub(super) fn replace_program(&self, handover: &Handover) -> Replaced {
        {
            let mut state = self.lock();
            if state.stopping_since.is_some() {
                return Replaced::Stopped;
            }
            // The server is closed. A signal to stop is recorded, for the case that no program follows.
            *state = State { is_replacing: true, servers: state.servers, ..State::default() };
        }
        logging::flush();
        let fatal: Vec<i32> = stop_signals().collect();
        let is_stopped = || self.is_stopped.load(Ordering::SeqCst);
        let failed = self.program.replace_this_process(handover, &fatal, &is_stopped);
        let has_stopped = {
            let mut state = self.lock();
            state.is_replacing = false;
            state.stopping_since.is_some()
        };
        let Some(error) = failed.filter(|_| !has_stopped) else { return Replaced::Stopped };
        let (path, reason) = (quoted(self.program.path()), ioloom_failure::reason(&error));
        tracing::error!(target: TARGET, "cannot run {path}: {reason}; this program continues");
        Replaced::Failed
    }

    /// Returns the settings of the last reload, if there was one.
    pub(super) fn reloaded(&self) -> Option<Reload> {
        self.reloaded.lock().expect("the lock must not be poisoned").clone()
    }

    /// Announces that the server ends.
    pub(super) fn set_stopping(&self) {
        self.send("STOPPING=1\n");
    }

    /// Handles signals until their handle is closed.
    pub(super) fn watch(self: &Arc<Self>, signals: &mut Signals, read: &ReadSettings) {
        loop {
            let mut arrived: Vec<i32> = signals.wait().collect();
            // A stop must not wait for the others.
            arrived.sort_by_key(|signal| MILD.contains(signal));
            let mut arrived = VecDeque::from(arrived);
            while let Some(signal) = arrived.pop_front() {
                match signal {
                    SIGHUP => self.start_reload(read),
                    SIGUSR1 => self.print_state(),
                    SIGUSR2 => arrived.extend(self.hand_over(signals)),
                    _ => self.stop(signal),
                }
            }
            if signals.is_closed() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the lock must not be poisoned")
    }

    fn send(&self, message: &str) {
        let Some(manager) = &self.manager else { return };
        if let Err(e) = manager.send(message) {
            let reason = ioloom_failure::reason(&e);
            tracing::warn!(target: TARGET, "cannot notify the service manager: {reason}");
        }
    }

    fn stop(&self, signal: i32) {
        // The lock is held until the end: a server must not start to acknowledge orders in between.
        let mut state = self.lock();
        if state.is_replacing {
            state.stopping_since.get_or_insert_with(Instant::now);
            return;
        }
        let Some(since) = state.stopping_since else {
            state.stopping_since = Some(Instant::now());
            self.set_stopping();
            match &state.server {
                Some(server) => server.stop(),
                None => self.limit_start(signal),
            }
            return;
        };
        if matches!(signal, SIGINT | SIGTERM | SIGQUIT) && since.elapsed() >= SAME_STOP {
            if state.server.is_none() {
                end_start(signal);
            }
            tracing::warn!(target: TARGET, "stopped immediately");
            logging::flush();
            std::process::exit(Exit::Interrupted as i32);
        }
    }

    /// Lets a signal end the process if the server is not announced in time, for example because a
    /// database does not respond.
    fn limit_start(&self, signal: i32) {
        let state = Arc::clone(&self.state);
        let limit = move || {
            std::thread::sleep(START_MAX);
            // The lock is held until the end: a server must not start to acknowledge orders in between.
            let state = state.lock().expect("the lock must not be poisoned");
            if state.server.is_none() {
                end_start(signal);
            }
        };
        if std::thread::Builder::new().name("start-limit".to_owned()).spawn(limit).is_err() {
            end_start(signal);
        }
    }

    fn start_reload(self: &Arc<Self>, read: &ReadSettings) {
        let (control, read) = (Arc::clone(self), Arc::clone(read));
        if let Err(e) = self.reloads.add(move || control.reload(&read)) {
            let reason = ioloom_failure::reason(&e);
            tracing::error!(target: TARGET, "cannot start a thread: {reason}; the previous settings remain in use");
        }
    }

    fn reload(&self, read: &ReadSettings) {
        let (server, servers) = {
            // The lock is held until the end: a stop must not be announced in between.
            let mut state = self.lock();
            if state.stopping_since.is_some() {
                return;
            }
            let Some(server) = state.server.clone() else {
                state.is_reload_missed = true;
                return;
            };
            let now_us = clock::monotonic_ns() / 1000;
            self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
            (server, state.servers)
        };
        let reloaded = read().map_err(|failure| failure.message).and_then(|(new, names)| {
            // The lock is held until the end: a failed handover continues with the settings of the server.
            let mut last = self.reloaded.lock().expect("the lock must not be poisoned");
            server.reload(&new).map_err(|error| error.to_string())?;
            *last = Some(new);
            Ok(reload_message(&names))
        });
        match reloaded {
            Ok(message) => tracing::info!(target: TARGET, "{message}"),
            Err(reason) => {
                tracing::error!(target: TARGET, "{reason}; the previous settings remain in use");
            }
        }
        let mut state = self.lock();
        match state.after_reload(servers) {
            AfterReload::Ready => self.send("READY=1\n"),
            // The thread that handles signals starts it.
            AfterReload::Repeat => drop(signal_hook::low_level::raise(SIGHUP)),
            AfterReload::Wait => {}
        }
    }

    /// Hands over to the program at the path of this one, if it can continue. Returns the signals
    /// that arrived in the meantime and are not handled yet.
    fn hand_over(&self, signals: &mut Signals) -> Vec<i32> {
        let mut mild = Vec::new();
        {
            let state = self.lock();
            if state.server.is_none() || state.stopping_since.is_some() || state.is_handing_over {
                return mild;
            }
        }
        let path = quoted(self.program.path()).to_string();
        match self.check_program(signals, &mut mild) {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!(target: TARGET, "not handing over: the server is stopping");
                return mild;
            }
            Err(reason) => {
                tracing::error!(target: TARGET, "{path} cannot take over: {reason}; this program continues");
                return mild;
            }
        }
        let mut state = self.lock();
        if let Some(server) = state.server.clone().filter(|_| state.stopping_since.is_none()) {
            state.is_handing_over = true;
            tracing::info!(target: TARGET, "handing over to {path}");
            let now_us = clock::monotonic_ns() / 1000;
            self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
            server.hand_over();
        }
        mild
    }

    /// Lets the program verify its options; returns false if a signal to stop arrives first. Adds
    /// other signals to `mild`.
    fn check_program(&self, signals: &mut Signals, mild: &mut Vec<i32>) -> Result<bool, String> {
        let reason = |e: io::Error| ioloom_failure::reason(&e);
        let mut child = self.program.check().map_err(reason)?;
        let since = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(reason)? {
                break status;
            }
            let is_mild = |signal: &i32| MILD.contains(signal);
            let (others, stops): (Vec<i32>, Vec<i32>) = signals.pending().partition(is_mild);
            mild.extend(others);
            let is_stop = !stops.is_empty() || signals.is_closed();
            if is_stop || since.elapsed() > CHECK_MAX {
                let _ = child.kill();
                let _ = child.wait();
                stops.into_iter().for_each(|signal| self.stop(signal));
                let seconds = CHECK_MAX.as_secs();
                let late = || format!("it did not verify its options within {seconds} s");
                return if is_stop { Ok(false) } else { Err(late()) };
            }
            std::thread::sleep(CHECK_INTERVAL);
        };
        if status.success() {
            return Ok(true);
        }
        let first = child.stderr.take().and_then(first_line);
        Err(first.unwrap_or_else(|| status.to_string()))
    }

    fn print_state(&self) {
        let Some(server) = self.lock().server.clone() else { return };
        let state = server.state();
        let lines = state.lines().map(|line| format!("  {line}\n"));
        tracing::info!(target: TARGET, "state:\n{}", lines.collect::<String>().trim_end());
    }
}

/// Ends the process by a signal during the start of the server, which has acknowledged nothing yet.
fn end_start(signal: i32) -> ! {
    logging::flush();
    let _ = emulate_default_handler(signal);
    std::process::exit(Exit::Interrupted as i32)
}

/// Returns the message after a reload of settings with these names.
fn reload_message(names: &[&str]) -> String {
    match names {
        [] => "nothing to reload: no --token-file, --tls-cert or --limits-file".to_owned(),
        [name] => format!("reloaded {name}"),
        [first @ .., last] => format!("reloaded {} and {last}", first.join(", ")),
    }
}

/// Returns the first line of a message that is not empty. A process that the program has left can keep the
/// message open, so its end is not waited for.
fn first_line(message: impl Read + Send + 'static) -> Option<String> {
    let (sender, line) = mpsc::channel();
    let read = move || {
        let lines = BufReader::new(message.take(MESSAGE_MAX)).split(b'\n').map_while(Result::ok);
        let mut lines = lines.map(|line| String::from_utf8_lossy(&line).trim().to_owned());
        lines.find(|line| !line.is_empty()).map(|line| sender.send(line))
    };
    std::thread::Builder::new().spawn(read).ok()?;
    line.recv_timeout(MESSAGE_WAIT).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_testbed::alone;
    use signal_hook::low_level::raise;

    #[test]
    fn signals_are_kept_while_a_program_verifies_its_options() {
        // Signals reach all tests of a process.
        if !alone("serve::control::tests::signals_are_kept_while_a_program_verifies_its_options") {
            return;
        }
        let program = Program::new("/bin/sleep".into(), vec!["0.2".into()]);
        let control = Control::new(program).unwrap();
        let mut signals = Signals::new(MILD).unwrap();
        for signal in [SIGHUP, SIGUSR1] {
            raise(signal).unwrap();
        }
        let mut mild = Vec::new();
        assert_eq!(control.check_program(&mut signals, &mut mild), Ok(true));
        // On a busy machine it may end before its first look at the signals.
        mild.extend(signals.pending());
        mild.sort_unstable();
        assert_eq!(mild, [SIGHUP, SIGUSR1]);
    }

    #[test]
    fn requests_during_a_slow_one_are_handled_once_after_it() {
        let requests = Arc::new(Requests::default());
        let (begin, begun) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let handle = move || {
            begin.send(()).unwrap();
            // Like a file system that does not respond.
            released.recv().unwrap();
        };
        requests.add(handle).unwrap();
        begun.recv().unwrap();
        for _ in 0..3 {
            requests.add(|| panic!("two threads handle requests")).unwrap();
        }
        assert!(begun.try_recv().is_err(), "one at a time");
        release.send(()).unwrap();
        begun.recv().unwrap();
        release.send(()).unwrap();
        assert!(begun.recv().is_err(), "the thread has ended and dropped its sender");
        assert_eq!(requests.open.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_process_that_a_program_left_does_not_delay_its_message() {
        // Signals reach all tests of a process.
        if !alone("serve::control::tests::a_process_that_a_program_left_does_not_delay_its_message")
        {
            return;
        }
        let mut signals = Signals::new(MILD).unwrap();
        for (script, expected) in [("echo bad >&2", "bad"), ("true", "exit status: 1")] {
            let script = format!("sleep 30 > /dev/null & {script}; exit 1");
            let program = Program::new("/bin/sh".into(), vec!["-c".into(), script.into()]);
            let control = Control::new(program).unwrap();
            let since = Instant::now();
            let checked = control.check_program(&mut signals, &mut Vec::new());
            assert_eq!(checked, Err(expected.to_owned()));
            assert!(since.elapsed() < CHECK_MAX, "{:?}", since.elapsed());
        }
    }

    #[test]
    fn a_reload_names_what_was_read() {
        let all = ["the tokens", "the certificate", "the limits"];
        assert_eq!(reload_message(&all), "reloaded the tokens, the certificate and the limits");
        assert_eq!(reload_message(&all[1..]), "reloaded the certificate and the limits");
        assert_eq!(reload_message(&all[..1]), "reloaded the tokens");
        assert!(reload_message(&[]).starts_with("nothing to reload: "));
    }

    #[test]
    fn a_reload_without_a_server_follows_when_it_is_ready() {
        let program = Program::new("/nowhere/ioloom".into(), Vec::new());
        let control = Control::new(program).unwrap();
        let read: ReadSettings = Arc::new(|| panic!("there is nothing to reload"));
        // A signal to stop arrived.
        control.lock().stopping_since = Some(Instant::now());
        control.reload(&read);
        assert!(!control.lock().is_reload_missed);
        *control.lock() = State::default();
        control.reload(&read);
        assert!(control.lock().is_reload_missed);
    }

    #[test]
    fn a_reload_during_a_handover_that_fails_is_repeated() {
        // The server has closed while the settings were read, and the next one is not announced yet.
        let mut state = State { servers: 1, is_replacing: true, ..State::default() };
        assert_eq!(state.after_reload(1), AfterReload::Wait);
        assert!(state.is_reload_missed, "the next server reloads");
        // The next one was announced.
        let mut state = State { servers: 2, ..State::default() };
        assert_eq!(state.after_reload(1), AfterReload::Repeat);
        let mut state = State { stopping_since: Some(Instant::now()), ..state };
        assert_eq!(state.after_reload(1), AfterReload::Wait);
        assert!(!state.is_reload_missed);
    }

    #[test]
    fn the_number_of_servers_survives_a_handover_that_fails() {
        let program = Program::new("/nowhere/ioloom".into(), Vec::new());
        let control = Control::new(program).unwrap();
        control.lock().servers = 1;
        assert_eq!(control.replace_program(&Handover::default()), Replaced::Failed);
        assert_eq!(control.lock().servers, 1);
    }

    #[test]
    fn a_signal_to_stop_ends_a_handover_whose_server_is_closed() {
        let program = Program::new("/nowhere/ioloom".into(), Vec::new());
        let control = Control::new(program).unwrap();
        let replace = || control.replace_program(&Handover::default());
        assert_eq!(replace(), Replaced::Failed);
        // Handled while the server was closing its store.
        control.lock().stopping_since = Some(Instant::now());
        assert_eq!(replace(), Replaced::Stopped);
        // Handled after that.
        *control.lock() = State { is_replacing: true, ..State::default() };
        control.stop(SIGTERM);
        assert!(control.lock().stopping_since.is_some());
        // Arrived, and not handled yet.
        *control.lock() = State::default();
        control.is_stopped.store(true, Ordering::SeqCst);
        assert_eq!(replace(), Replaced::Stopped);
    }
}
