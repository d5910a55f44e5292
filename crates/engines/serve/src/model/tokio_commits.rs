//! Commits for tasks: one thread waits for the store, tasks await the result.
//!
//! If each worker waited for the disk itself, tokio would start another thread for its tasks, up to
//! hundreds. Here a task sends the log number that its answers depend on and awaits the number that
//! the thread has reached. The thread commits everything that was executed during the previous
//! commit together, so more waiting tasks make larger commits, not more threads.

use crate::journal::StoreFailed;
use crate::service::Service;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

/// The way to the commit thread. It ends when this is dropped.
pub(super) struct Commits {
    to_thread: Sender<u64>,
    reached: watch::Receiver<Result<u64, StoreFailed>>,
}

impl Commits {
    /// Starts the thread.
    pub(super) fn start(service: &Arc<Service>) -> io::Result<Self> {
        let (to_thread, numbers) = channel();
        let (set_reached, reached) = watch::channel(Ok(0));
        let service = Arc::clone(service);
        std::thread::Builder::new()
            .name("commits".to_owned())
            .spawn(move || work(&service, &numbers, &set_reached))?;
        Ok(Self { to_thread, reached })
    }

    /// Returns when the store contains every order up to `seq`.
    pub(super) async fn wait(&self, seq: u64) -> Result<(), StoreFailed> {
        let mut reached = self.reached.clone();
        let is_over = |reached: &Result<u64, StoreFailed>| match reached {
            Ok(number) => *number >= seq,
            Err(StoreFailed) => true,
        };
        if !is_over(&reached.borrow_and_update()) {
            self.to_thread.send(seq).map_err(|_| StoreFailed)?;
        }
        let ended = reached.wait_for(is_over).await;
        ended.map_err(|_| StoreFailed)?.map(drop)
    }
}

fn work(
    service: &Service,
    numbers: &Receiver<u64>,
    set_reached: &watch::Sender<Result<u64, StoreFailed>>,
) {
    while let Ok(first) = numbers.recv() {
        let newest = numbers.try_iter().fold(first, u64::max);
        let ended = service.wait(newest).map(|()| newest);
        // Numbers of different workers can arrive out of order.
        set_reached.send_modify(|reached| {
            *reached = match (*reached, ended) {
                (Ok(before), Ok(now)) => Ok(before.max(now)),
                _ => Err(StoreFailed),
            };
        });
    }
}
