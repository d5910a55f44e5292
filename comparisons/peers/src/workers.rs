//! N plain threads with a shared index: the frame of three peers.

use crate::{PeerError, Totals};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs `work` on `threads` threads. Each receives a function that returns the next index below
/// `files` until none is left. Returns the sum of the totals.
///
/// # Errors
/// The first error in thread order, or a thread cannot be started. The other threads then stop at their next file.
pub(crate) fn run<W>(threads: usize, files: usize, work: W) -> Result<Totals, PeerError>
where
    W: Fn(&dyn Fn() -> Option<usize>) -> Result<Totals, PeerError> + Sync,
{
    let next = AtomicUsize::new(0);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < files);
    let stop = || next.store(files, Ordering::Relaxed);
    thread::scope(|scope| {
        let mut started = Vec::with_capacity(threads);
        let mut outcome = Ok(Totals::default());
        for _ in 0..threads {
            let one = || work(&take).inspect_err(|_| stop());
            match thread::Builder::new().spawn_scoped(scope, one) {
                Ok(handle) => started.push(handle),
                Err(e) => {
                    stop();
                    outcome = Err(PeerError::Start { what: "a thread", reason: e.to_string() });
                    break;
                }
            }
        }
        for handle in started {
            let one = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome = match (outcome, one) {
                (Ok(sum), Ok(totals)) => Ok(sum.merged(totals)),
                (Err(e), _) | (Ok(_), Err(e)) => Err(e),
            };
        }
        outcome
    })
}
