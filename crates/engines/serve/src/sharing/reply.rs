//! Where a thread waits for jobs that it submitted to another thread.
//!
//! Each thread has one slot and at most one batch in flight, so the number of threads bounds the
//! queue.

use super::job::Job;
use crate::journal::StoreFailed;
use std::sync::{Arc, Condvar, Mutex};

/// An executed batch, and whether its answers may be sent.
type Reply = (Vec<Job>, Result<(), StoreFailed>);

#[derive(Default)]
pub(super) struct ReplySlot {
    back: Mutex<Option<Reply>>,
    arrived: Condvar,
}

thread_local! {
    static REPLY_SLOT: Arc<ReplySlot> = Arc::default();
}

/// Submits jobs and returns when they have been answered. `send` returns true if another thread
/// accepted them.
pub(super) fn submit(
    jobs: &mut Vec<Job>,
    send: impl FnOnce(Vec<Job>, Arc<ReplySlot>) -> bool,
) -> Result<(), StoreFailed> {
    if !jobs.iter().any(Job::needs_exchange) {
        return Ok(());
    }
    let reply = REPLY_SLOT.with(Arc::clone);
    if !send(std::mem::take(jobs), Arc::clone(&reply)) {
        return Err(StoreFailed);
    }
    let mut back = reply.back.lock().expect("the lock must not be poisoned");
    loop {
        if let Some((answered, result)) = back.take() {
            *jobs = answered;
            return result;
        }
        back = reply.arrived.wait(back).expect("the lock must not be poisoned");
    }
}

impl ReplySlot {
    /// Returns jobs to the waiting thread.
    pub(super) fn send(&self, jobs: Vec<Job>, result: Result<(), StoreFailed>) {
        let mut back = self.back.lock().expect("the lock must not be poisoned");
        assert!(
            back.is_none(),
            "a thread must have at most one batch in flight; otherwise an answer would be lost"
        );
        *back = Some((jobs, result));
        drop(back);
        self.arrived.notify_one();
    }
}
