//! The start gate: threads set themselves up, then all begin at one moment.

use std::sync::{Condvar, Mutex};

/// The gate of a run.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<(usize, Option<u64>)>,
    changed: Condvar,
}

impl Gate {
    /// Waits for the start after a thread is set up. Returns the moment of the start.
    pub(super) fn arrive(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.0 += 1;
        self.changed.notify_all();
        loop {
            if let Some(start_ns) = state.1 {
                return start_ns;
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    pub(super) fn wait_until_ready(&self, threads: usize) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while state.0 < threads {
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    pub(super) fn open(&self, start_ns: u64) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        assert!(state.1.is_none(), "all threads start at one moment, from which times count");
        state.1 = Some(start_ns);
        self.changed.notify_all();
    }
}
