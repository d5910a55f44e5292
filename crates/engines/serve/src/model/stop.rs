//! Waits for a stop request.

use crate::service::Service;
use ioloom_sys_net::wait::{Interest, Poll, Waiter};
use std::time::Duration;

/// Polling interval if there is no waker.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns when a stop is requested, as signalled by the waker with this number.
pub(super) fn wait_for_stop(service: &Service, waker: usize) {
    let (mut waiter, mut ready) = (Poll::default(), Vec::new());
    let added = waiter.add(&**service.waker(waker), 0, Interest::READ);
    while !service.is_stopping() {
        // Poll if the waker cannot be watched, and as long as waiting fails.
        if added.is_err() || waiter.wait(&mut ready, None).is_err() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
