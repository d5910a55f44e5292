//! Ends the process when a request to stop is repeated.
//!
//! `timeout` and some supervisors signal a process and then its group, so one request arrives as two signals
//! within microseconds. Signals count as repeated only if they arrive [`SAME_REQUEST`] after the first one.

use crate::clock::monotonic_ns;
use signal_hook::SigId;
use signal_hook::low_level;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Time after the first signal within which all signals belong to the same request.
pub const SAME_REQUEST: Duration = Duration::from_millis(200);

/// The time of the first signal of a request, shared by the handlers of all signals that make it.
#[derive(Debug, Clone, Default)]
pub struct FirstSignal(Arc<AtomicU64>);

impl FirstSignal {
    /// Registers an action that ends the process with `code` if the request is repeated, or if `flag` is raised
    /// before the first signal. Register it before the action that raises the flag.
    ///
    /// # Errors
    /// Fails if the handler cannot be installed.
    pub fn end_when_repeated(
        &self,
        signal: i32,
        code: i32,
        flag: Arc<AtomicBool>,
    ) -> io::Result<SigId> {
        let first = self.clone();
        let action = move || {
            if first.is_repeated(flag.load(Ordering::SeqCst), monotonic_ns()) {
                low_level::exit(code);
            }
        };
        // SAFETY: the action is async-signal-safe: it reads a clock, uses atomic numbers and may call `_exit`.
        // It does not allocate, lock or panic.
        unsafe { low_level::register(signal, action) }
    }

    /// Notes a signal. Returns whether it is another request than the first one.
    fn is_repeated(&self, is_raised: bool, now_ns: u64) -> bool {
        match self.0.compare_exchange(0, now_ns.max(1), Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => is_raised,
            Err(first) => u128::from(now_ns.saturating_sub(first)) >= SAME_REQUEST.as_nanos(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_soon_after_the_first_one_are_the_same_request() {
        let (first, begun) = (FirstSignal::default(), 5_000_000_000);
        assert!(!first.is_repeated(false, begun));
        assert!(!first.is_repeated(true, begun));
        assert!(!first.is_repeated(true, begun + 199_999_999));
        assert!(first.is_repeated(true, begun + 200_000_000));
    }

    #[test]
    fn a_signal_after_the_flag_was_raised_otherwise_is_a_repeated_request() {
        assert!(FirstSignal::default().is_repeated(true, 1));
    }
}
