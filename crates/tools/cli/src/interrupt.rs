//! SIGINT and SIGTERM as flags that a command polls.

use crate::exit::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns a flag that the first interrupt raises; the second ends the program at once.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the shutdown must see the flag as the previous interrupt left it.
        let _ = signal_hook::flag::register_conditional_shutdown(
            signal,
            Exit::Interrupted as i32,
            stop.clone(),
        );
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    stop
}

/// Returns a flag that any number of interrupts raise. For a child whose parent forwards
/// interrupts that the terminal may have sent to both.
pub(crate) fn drain_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    stop
}
