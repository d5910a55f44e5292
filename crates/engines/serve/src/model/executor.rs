//! Where an event loop's jobs are executed.

use crate::sharing::Job;
use ioloom_exchange::{Answer, Command, Stop};
use std::sync::mpsc::Receiver;

/// The jobs of one connection on their way to other threads and back.
pub(super) struct JobBatch {
    /// The connection's slot in the loop.
    pub(super) slot: usize,
    pub(super) jobs: Vec<Job>,
    /// Time when the requests were received.
    pub(super) arrived_ns: u64,
}

impl JobBatch {
    /// Answers all jobs as busy because the queue is full.
    pub(super) fn refuse(&mut self) {
        for job in &mut self.jobs {
            job.answer = Some(match &job.request.command {
                Command::Local(local) => Answer::Local(local.clone()),
                _ => Answer::Stopped(Stop::Busy),
            });
        }
    }
}

/// What executes a loop's jobs.
pub(super) enum Executor {
    /// The loop itself.
    Inline,
    /// Other threads. `send` queues a batch, or returns it if the queue is full.
    Workers { send: Box<dyn Fn(JobBatch) -> Result<(), JobBatch>>, done: Receiver<JobBatch> },
}
