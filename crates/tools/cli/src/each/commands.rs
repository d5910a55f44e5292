//! The commands of `each --exec` that are running, and the signals that end them.
//!
//! Each command leads a process group, so a signal also reaches the programs that it starts. A
//! signal from the terminal reaches only ioloom, which forwards it once. The first interrupt is
//! forwarded and no more commands start; one at least 200 ms later kills all commands and ends the run.
//! When the terminal stops ioloom (Ctrl-Z), the commands are stopped until it goes on; Ctrl-\ ends all.
//!
//! Such a group is in the background, so the system stops a command that reads from the terminal. It
//! would wait for ever, and is killed with an error.

use super::spool::Collector;
use crate::exit::{Exit, Failure};
use crate::interrupt;
use ioloom_failure::{is_out_of_descriptors, reason};
use ioloom_sys::proc::{
    Waited, run_delay_ns, signal_group, stop_as_the_terminal_does, until_ended, with_first_limit,
};
use signal_hook::consts::{SIGCONT, SIGKILL, SIGQUIT, SIGSTOP, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Pause between attempts to start a command, if no command ends earlier.
const PAUSE: Duration = Duration::from_millis(20);
/// Attempts without other commands; the walk may still close directories.
const ATTEMPTS_ALONE: u32 = 50;

/// Why a command that the terminal has stopped is killed.
pub(super) const WANTS_TERMINAL: &str =
    "it uses the terminal, which commands of --exec share; use 'xargs -o' for it";

/// Reports whether a command could not be started for want of what others return when they end: descriptors,
/// processes or threads.
fn is_short(error: &io::Error) -> bool {
    is_out_of_descriptors(error) || is_out_of_processes(error)
}

/// Reports whether the system refused a process or a thread because of a limit on their number.
pub(super) fn is_out_of_processes(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// The commands that are running.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Whether an interrupt has arrived. Held for reading while a command starts, so that each
    /// command is either known to the interrupt or does not start.
    interrupted: RwLock<bool>,
    /// Process IDs of commands that have not been waited for.
    running: Mutex<BTreeSet<u32>>,
    /// Threads in a first attempt to start a command.
    starting: AtomicU64,
    /// Whether the last attempts to start a command were in vain.
    gave_up: AtomicBool,
    /// Held by the thread that tries again.
    again: Mutex<()>,
    /// When a command was started last.
    last_start: Mutex<Option<Instant>>,
    /// A command has ended.
    end: Condvar,
}

impl Commands {
    /// Starts a command as the leader of its own process group, and a thread that collects its output. If
    /// descriptors or processes are missing, it waits until others have ended or are started.
    pub(super) fn start(self: &Arc<Self>, command: &mut Command) -> io::Result<(Child, Collector)> {
        with_first_limit(command);
        self.persist(|| self.attempt(command))
    }

    fn persist<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        self.starting.fetch_add(1, Ordering::SeqCst);
        let first = attempt();
        self.starting.fetch_sub(1, Ordering::SeqCst);
        match first {
            Err(error) if is_short(&error) => self.try_again(attempt),
            started => {
                self.gave_up.store(false, Ordering::Relaxed);
                started
            }
        }
    }

    /// Tries again, one thread at a time, so that threads do not take from each other what is missing.
    /// Gives up after some attempts during which nothing else ran that could return it; later commands then
    /// make one attempt, until one is started.
    fn try_again<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let _only = self.again.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = if self.gave_up.load(Ordering::Relaxed) { 0 } else { ATTEMPTS_ALONE };
        let mut alone = 0;
        loop {
            let is_alone = self.starting.load(Ordering::SeqCst) == 0 && self.running().is_empty();
            let result = attempt();
            let lacks = result.as_ref().is_err_and(is_short);
            if !lacks || (is_alone && alone >= attempts) {
                self.gave_up.store(lacks, Ordering::Relaxed);
                return result;
            }
            alone += u32::from(is_alone);
            let running = self.running();
            drop(self.end.wait_timeout(running, PAUSE));
        }
    }

    fn attempt(self: &Arc<Self>, command: &mut Command) -> io::Result<(Child, Collector)> {
        let interrupted = self.interrupted.read().unwrap_or_else(PoisonError::into_inner);
        if *interrupted {
            return Err(io::Error::other("the run was interrupted"));
        }
        // First, because a command that has begun cannot be tried again.
        let commands = Arc::clone(self);
        let collector = Collector::start(move || commands.last_start())?;
        let child = command.process_group(0).spawn();
        *self.last_start.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                // Its thread may be the one that is too many.
                let _ = collector.finish();
                return Err(error);
            }
        };
        if let Some(stdout) = child.stdout.take() {
            collector.collect(stdout);
        }
        self.running().insert(child.id());
        Ok((child, collector))
    }

    /// Waits until the commands that are being started have started, and returns when the last one did. Until
    /// its program runs, a new process has copies of the pipes of commands that are started at the same time.
    pub(super) fn last_start(&self) -> Option<Instant> {
        let _none_starts = self.interrupted.write().unwrap_or_else(PoisonError::into_inner);
        *self.last_start.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the command has ended. From here on it gets no more signals. One that wants the
    /// terminal is killed. Also returns for how long it was ready to run without running, in nanoseconds;
    /// 0 if unknown.
    ///
    /// # Errors
    /// Returns the reason.
    pub(super) fn wait(&self, child: &mut Child) -> (Result<ExitStatus, String>, u64) {
        let waited = until_ended(child.id());
        // The system keeps it until the command is reaped.
        let ready_ns = run_delay_ns(child.id()).unwrap_or(0);
        (self.reap_waited(child, waited), ready_ns)
    }

    fn reap_waited(
        &self,
        child: &mut Child,
        waited: io::Result<Waited>,
    ) -> Result<ExitStatus, String> {
        let waited = waited.map_err(|error| format!("cannot be waited for: {}", reason(&error)))?;
        if waited == Waited::WantsTerminal {
            self.kill(child);
            return Err(format!("was killed, because {WANTS_TERMINAL}"));
        }
        self.reap(child).map_err(|error| format!("cannot be waited for: {}", reason(&error)))
    }

    fn reap(&self, child: &mut Child) -> io::Result<ExitStatus> {
        self.running().remove(&child.id());
        let status = child.wait();
        self.end.notify_all();
        status
    }

    /// Kills the command and the programs that it has started.
    pub(super) fn kill(&self, child: &mut Child) {
        let _ = signal_group(child.id(), SIGKILL);
        while let Ok(Waited::WantsTerminal) = until_ended(child.id()) {}
        let _ = self.reap(child);
    }

    /// Forwards interrupts from here on. Returns a flag raised by the first.
    pub(super) fn forward_interrupts(self: &Arc<Self>) -> Result<Arc<AtomicBool>, Failure> {
        let wanted = interrupt::stopping_signals()
            .chain([SIGQUIT, SIGTSTP].into_iter().filter(|s| !interrupt::ignores(*s)));
        let mut signals = Signals::new(wanted)
            .map_err(|e| Failure::failed(format!("cannot handle signals: {}", reason(&e))))?;
        let stop = Arc::new(AtomicBool::new(false));
        interrupt::share(&stop);
        let (commands, raised) = (Arc::clone(self), Arc::clone(&stop));
        let forward = move || {
            let mut first = None;
            for signal in signals.forever() {
                match signal {
                    SIGTSTP => commands.stop_together(),
                    SIGQUIT => {
                        commands.send(SIGQUIT);
                        let _ = emulate_default_handler(SIGQUIT);
                    }
                    _ if interrupt::is_repeated(&mut first, Instant::now()) => {
                        commands.send(SIGKILL);
                        std::process::exit(Exit::Interrupted as i32);
                    }
                    _ if !raised.swap(true, Ordering::Relaxed) => {
                        commands.send(signal);
                        // It may have waited for a command to start. Signals from that time are the same
                        // request.
                        first = Some(Instant::now());
                    }
                    // The same request, as from `timeout`.
                    _ => {}
                }
            }
        };
        std::thread::Builder::new()
            .spawn(forward)
            .map_err(|e| Failure::failed(format!("cannot start a thread: {}", reason(&e))))?;
        Ok(stop)
    }

    /// Returns whether a signal was sent to the commands, which may end them.
    pub(super) fn are_interrupted(&self) -> bool {
        *self.interrupted.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a signal to all commands. No command starts after it.
    fn send(&self, signal: i32) {
        *self.interrupted.write().unwrap_or_else(PoisonError::into_inner) = true;
        self.signal_all(signal);
        // A stopped command would never see it.
        self.signal_all(SIGCONT);
    }

    /// Stops all commands and this process until it is continued. No command starts meanwhile.
    fn stop_together(&self) {
        let _none_starts = self.interrupted.write().unwrap_or_else(PoisonError::into_inner);
        self.signal_all(SIGSTOP);
        stop_as_the_terminal_does();
        self.signal_all(SIGCONT);
    }

    fn signal_all(&self, signal: i32) {
        for leader in self.running().iter() {
            let _ = signal_group(*leader, signal);
        }
    }

    fn running(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_being_started_is_waited_for() {
        let commands = Arc::new(Commands::default());
        assert_eq!(commands.last_start(), None);
        let (mut child, _) = commands.start(&mut Command::new("true")).unwrap();
        let first = commands.last_start().unwrap();
        assert!(commands.wait(&mut child).0.unwrap().success());
        let starting = commands.interrupted.read().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| commands.last_start());
            std::thread::sleep(PAUSE);
            assert!(!waits.is_finished());
            drop(starting);
            assert_eq!(waits.join().unwrap(), Some(first));
        });
    }

    #[test]
    fn what_others_return_is_waited_for() {
        const EAGAIN: i32 = 11;
        const EMFILE: i32 = 24;
        const ENOENT: i32 = 2;
        let commands = Commands::default();
        let attempts = |errno: i32, most: u32| {
            let mut made = 0;
            let started = commands.persist(|| {
                made += 1;
                if made < most { Err(io::Error::from_raw_os_error(errno)) } else { Ok(()) }
            });
            (started.is_ok(), made)
        };
        assert_eq!(attempts(EAGAIN, 5), (true, 5));
        assert_eq!(attempts(EMFILE, 5), (true, 5));
        assert_eq!(attempts(ENOENT, 5), (false, 1));
        // Nothing else runs that could end.
        assert_eq!(attempts(EAGAIN, u32::MAX), (false, ATTEMPTS_ALONE + 2));
        assert_eq!(attempts(EAGAIN, u32::MAX), (false, 2));
    }
}
