//! Where a thread waits for the jobs that it has handed to another one.
//!
//! A thread has one desk and at most one batch away, so what waits is bounded by the threads.

use super::job::Job;
use crate::journal::StoreFailed;
use std::sync::{Arc, Condvar, Mutex};

/// A batch that was carried out, and whether its answers may leave.
type Back = (Vec<Job>, Result<(), StoreFailed>);

#[derive(Default)]
pub(super) struct ReplySlot {
    back: Mutex<Option<Back>>,
    arrived: Condvar,
}

thread_local! {
    static REPLY_SLOT: Arc<ReplySlot> = Arc::default();
}

/// Hands jobs over, and returns when they are back. `send` tells whether somebody took them.
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
    let mut back = reply.back.lock().expect("no panic under this lock");
    loop {
        if let Some((answered, result)) = back.take() {
            *jobs = answered;
            return result;
        }
        back = reply.arrived.wait(back).expect("no panic under this lock");
    }
}

impl ReplySlot {
    /// Gives jobs back to the thread that waits here.
    pub(super) fn send(&self, jobs: Vec<Job>, result: Result<(), StoreFailed>) {
        *self.back.lock().expect("no panic under this lock") = Some((jobs, result));
        self.arrived.notify_one();
    }
}
