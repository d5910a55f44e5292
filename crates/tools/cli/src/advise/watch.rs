//! Ends work when its time is over or the program is interrupted.

use ioloom::Cancel;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time between two looks at the flag.
const LOOK: Duration = Duration::from_millis(20);

/// Runs `work` and cancels its token when `time` is over or `stop` is raised. `None` sets no limit.
pub(super) fn within<T>(
    time: Option<Duration>,
    stop: &AtomicBool,
    work: impl FnOnce(&Cancel) -> T,
) -> T {
    let cancel = Cancel::new();
    if time.is_some_and(|time| time.is_zero()) || stop.load(Ordering::Relaxed) {
        cancel.cancel();
    }
    let token = cancel.clone();
    let (over, ended) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || watch(time, stop, &token, &ended));
        let done = work(&cancel);
        drop(over);
        done
    })
}

/// Cancels in time, unless the work ends before.
fn watch(time: Option<Duration>, stop: &AtomicBool, cancel: &Cancel, ended: &Receiver<()>) {
    let start = Instant::now();
    loop {
        let left = time.map_or(LOOK, |time| time.saturating_sub(start.elapsed()));
        match ended.recv_timeout(left.min(LOOK)) {
            Err(RecvTimeoutError::Timeout) if !left.is_zero() && !stop.load(Ordering::Relaxed) => {}
            Err(RecvTimeoutError::Timeout) => return cancel.cancel(),
            _ => return,
        }
    }
}
