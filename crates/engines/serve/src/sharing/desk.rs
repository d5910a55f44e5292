//! Where a thread waits for the jobs that it has handed to another one.
//!
//! A thread has one desk and at most one batch away, so what waits is bounded by the threads.

use super::Job;
use crate::journal::Broken;
use std::sync::{Arc, Condvar, Mutex};

/// A batch that was carried out, and whether its answers may leave.
type Back = (Vec<Job>, Result<(), Broken>);

#[derive(Default)]
pub(super) struct Desk {
    back: Mutex<Option<Back>>,
    arrived: Condvar,
}

thread_local! {
    static DESK: Arc<Desk> = Arc::default();
}

/// Hands jobs over, and returns when they are back. `send` tells whether somebody took them.
pub(super) fn hand_over(
    jobs: &mut Vec<Job>,
    send: impl FnOnce(Vec<Job>, Arc<Desk>) -> bool,
) -> Result<(), Broken> {
    if !jobs.iter().any(Job::asks) {
        return Ok(());
    }
    let desk = DESK.with(Arc::clone);
    if !send(std::mem::take(jobs), Arc::clone(&desk)) {
        return Err(Broken);
    }
    let mut back = desk.back.lock().expect("no panic under this lock");
    loop {
        if let Some((answered, result)) = back.take() {
            *jobs = answered;
            return result;
        }
        back = desk.arrived.wait(back).expect("no panic under this lock");
    }
}

impl Desk {
    /// Gives jobs back to the thread that waits here.
    pub(super) fn give_back(&self, jobs: Vec<Job>, result: Result<(), Broken>) {
        *self.back.lock().expect("no panic under this lock") = Some((jobs, result));
        self.arrived.notify_one();
    }
}
