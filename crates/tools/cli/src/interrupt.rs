//! SIGINT and SIGTERM as flags that a command polls.

use crate::exit::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
