//! SIGINT and SIGTERM as flags that a command polls.

use crate::exit::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Time between two looks at the flag.
const LOOK: Duration = Duration::from_millis(20);

/// Returns a flag raised by the first interrupt; the second terminates the program immediately.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Order matters: the shutdown handler must see the flag before this interrupt raises it.
        let _ = signal_hook::flag::register_conditional_shutdown(
            signal,
            Exit::Interrupted as i32,
            stop.clone(),
        );
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    stop
}

/// Returns a flag raised by any number of interrupts. For a child that can receive an interrupt
/// twice: from the terminal and from its parent.
pub(crate) fn drain_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    stop
}

/// Runs `f` in a thread. Returns `None` as soon as the flag is raised; the thread then goes on, and
/// ends with the process.
pub(crate) fn unless_raised<T, F>(stop: &AtomicBool, f: F) -> Option<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || sender.send(f()));
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(_) => return None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_flag_ends_the_wait_but_not_a_finished_call() {
        let stop = AtomicBool::new(false);
        assert_eq!(unless_raised(&stop, || 1), Some(1));
        let (blocked, never) = channel::<()>();
        let raised = AtomicBool::new(true);
        assert!(unless_raised(&raised, move || never.recv().is_ok()).is_none());
        drop(blocked);
    }
}
