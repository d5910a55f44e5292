//! Signals of a running server, and messages to the service manager.
//!
//! Every signal that would terminate the process stops the server instead, which saves the stocks;
//! a second SIGINT, SIGTERM or SIGQUIT exits without waiting. SIGHUP reloads, because terminals and
//! service managers send it for that or for reasons that should not end a server, and SIGUSR1 prints
//! the state.

use super::logging::TARGET;
use crate::exit::{Exit, Failure};
use ioloom_serve::inherited::Manager;
use ioloom_serve::{Reload, ServerHandle};
use ioloom_sys::clock;
use signal_hook::consts::signal::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGSYS, SIGTERM, SIGTRAP, SIGUSR1,
    SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard};

/// Signals that stop the server, except real-time signals.
const STOP: [i32; 15] = [
    SIGABRT, SIGALRM, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGSTKFLT, SIGSYS, SIGTERM, SIGTRAP,
    SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
];
/// Signals of Linux that have no name in `signal_hook`.
const SIGSTKFLT: i32 = 16;
const SIGPWR: i32 = 30;
/// Real-time signals that the C library does not use itself.
const REAL_TIME: RangeInclusive<i32> = 34..=64;

/// What signals act on.
#[derive(Default)]
pub(super) struct Control {
    state: Mutex<State>,
    manager: Option<Manager>,
}

#[derive(Default)]
struct State {
    /// The server, once it can acknowledge orders.
    server: Option<ServerHandle>,
    is_stopping: bool,
}

/// Catches all signals from now on.
pub(super) fn signals() -> Result<Signals, Failure> {
    let all = STOP.into_iter().chain(REAL_TIME).chain([SIGHUP, SIGUSR1]);
    Signals::new(all).map_err(|e| Failure::failed(format!("cannot install signal handlers: {e}")))
}

impl Control {
    /// Reads the environment.
    pub(super) fn new() -> Result<Self, Failure> {
        let manager = Manager::from_environment().map_err(|e| {
            let reason = ioloom_failure::reason(&e);
            Failure::refused(format!("cannot use the socket in NOTIFY_SOCKET: {reason}"))
        })?;
        Ok(Self { manager, ..Self::default() })
    }

    /// Announces a server that is about to serve; signals act on it from now on.
    pub(super) fn set_ready(&self, server: ServerHandle, status: &str) {
        self.lock().server = Some(server);
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// Announces that the server ends.
    pub(super) fn set_stopping(&self) {
        self.send("STOPPING=1\n");
    }

    /// Handles signals until their handle is closed. `read` reads the settings that SIGHUP reloads.
    pub(super) fn watch(&self, signals: &mut Signals, read: &dyn Fn() -> Result<Reload, Failure>) {
        for signal in signals.forever() {
            match signal {
                SIGHUP => self.reload(read),
                SIGUSR1 => self.print_state(),
                _ => self.stop(signal),
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
        let Some(server) = state.server.clone() else {
            // Nothing has been acknowledged yet, so a slow start can end at once.
            let _ = emulate_default_handler(signal);
            std::process::exit(Exit::Interrupted as i32);
        };
        if !state.is_stopping {
            state.is_stopping = true;
            self.set_stopping();
            server.stop();
        } else if matches!(signal, SIGINT | SIGTERM | SIGQUIT) {
            tracing::warn!(target: TARGET, "stopped immediately");
            std::process::exit(Exit::Interrupted as i32);
        }
    }

    fn reload(&self, read: &dyn Fn() -> Result<Reload, Failure>) {
        let Some(server) = self.lock().server.clone() else { return };
        let now_us = clock::monotonic_ns() / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
        let reloaded = read().map_err(|failure| failure.message);
        match reloaded.and_then(|new| server.reload(&new).map_err(|error| error.to_string())) {
            Ok(()) => {
                tracing::info!(target: TARGET, "reloaded the tokens, the certificate and the limits");
            }
            Err(reason) => {
                tracing::error!(target: TARGET, "{reason}; the previous settings remain in use");
            }
        }
        self.send("READY=1\n");
    }

    fn print_state(&self) {
        let Some(server) = self.lock().server.clone() else { return };
        let state = server.state();
        let lines = state.lines().map(|line| format!("  {line}\n"));
        tracing::info!(target: TARGET, "state:\n{}", lines.collect::<String>().trim_end());
    }
}
