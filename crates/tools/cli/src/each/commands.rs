//! The commands of `each --exec` that are running, and the signals that end them.
//!
//! Each command leads a process group, so a signal also reaches the programs that it starts. A
//! signal from the terminal reaches only ioloom, which forwards it once. The first interrupt is
//! forwarded and no more commands start; the second kills all commands and ends the run.

use crate::exit::{Exit, Failure};
use ioloom_failure::{is_out_of_descriptors, reason};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// The commands that are running.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Whether an interrupt has arrived. Held for reading while a command starts, so that each
    /// command is either known to the interrupt or does not start.
    interrupted: RwLock<bool>,
    /// Process IDs of commands that have not been waited for.
    running: Mutex<BTreeSet<u32>>,
    /// Commands that have ended.
    ended: AtomicU64,
    end: Condvar,
}

impl Commands {
    /// Starts a command as the leader of its own process group.
    pub(super) fn start(&self, command: &mut Command) -> io::Result<Child> {
        let interrupted = self.interrupted.read().unwrap_or_else(PoisonError::into_inner);
        if *interrupted {
            return Err(io::Error::other("the run was interrupted"));
        }
        let child = loop {
            let before = self.ended.load(Ordering::SeqCst);
            match command.process_group(0).spawn() {
                Err(error) if is_out_of_descriptors(&error) && self.await_end(before) => {}
                started => break started?,
            }
        };
        self.running().insert(child.id());
        Ok(child)
    }

    /// Waits until a command ends, because descriptors are missing. Returns false if none runs.
    fn await_end(&self, before: u64) -> bool {
        let mut running = self.running();
        while self.ended.load(Ordering::SeqCst) == before {
            if running.is_empty() {
                return false;
            }
            let (again, _) = self
                .end
                .wait_timeout(running, Duration::from_millis(20))
                .unwrap_or_else(PoisonError::into_inner);
            running = again;
        }
        true
    }

    /// Waits until the command has ended. From here on it gets no more signals.
    pub(super) fn wait(&self, child: &mut Child) -> io::Result<std::process::ExitStatus> {
        ioloom_sys::proc::until_ended(child.id())?;
        self.running().remove(&child.id());
        let status = child.wait();
        self.ended.fetch_add(1, Ordering::SeqCst);
        self.end.notify_all();
        status
    }

    /// Kills the command and the programs that it has started.
    pub(super) fn kill(&self, child: &mut Child) {
        let _ = ioloom_sys::proc::signal_group(child.id(), SIGKILL);
        let _ = self.wait(child);
    }

    /// Forwards interrupts from here on. Returns a flag raised by the first. With `repeated`, an
    /// interrupt can arrive several times: from the terminal and from a parent.
    pub(super) fn forward_interrupts(
        self: &Arc<Self>,
        repeated: bool,
    ) -> Result<Arc<AtomicBool>, Failure> {
        let mut wanted = vec![SIGINT, SIGTERM];
        if !ignored(SIGHUP) {
            wanted.push(SIGHUP);
        }
        let mut signals = Signals::new(wanted)
            .map_err(|e| Failure::failed(format!("cannot handle signals: {}", reason(&e))))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (commands, raised) = (Arc::clone(self), Arc::clone(&stop));
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if raised.swap(true, Ordering::Relaxed) && !repeated {
                    commands.send(SIGKILL);
                    std::process::exit(Exit::Interrupted as i32);
                }
                commands.send(signal);
            }
        });
        Ok(stop)
    }

    /// Sends a signal to all commands. No command starts after it.
    fn send(&self, signal: i32) {
        *self.interrupted.write().unwrap_or_else(PoisonError::into_inner) = true;
        for leader in self.running().iter() {
            let _ = ioloom_sys::proc::signal_group(*leader, signal);
            // A stopped command, for example one that reads from the terminal, would never see it.
            let _ = ioloom_sys::proc::signal_group(*leader, SIGCONT);
        }
    }

    fn running(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether this process was started with a signal ignored, as by nohup.
fn ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}
