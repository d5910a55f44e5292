//! The state, used by one thread at a time.

use super::cpu_time::spend;
use super::job::Job;
use crate::journal::Journal;
use ioloom_exchange::{Answer, Command, Exchange, Record, State};
use std::time::Duration;

/// A state used by one thread at a time, and the records of a turn that have not been logged yet.
pub(super) struct Exclusive {
    state: State,
    records: Vec<Record>,
    /// CPU time to spend on each order and each list.
    hold_time: Duration,
}

impl Exclusive {
    pub(super) fn new(state: State, hold_time: Duration) -> Self {
        Self { state, records: Vec::new(), hold_time }
    }

    /// Answers jobs and passes their records to the journal in a single call. Returns the log
    /// number that the answers depend on.
    pub(super) fn answer(&mut self, jobs: &mut [Job], journal: &Journal) -> u64 {
        debug_assert!(
            self.records.is_empty(),
            "records from an earlier turn would be logged twice"
        );
        let (state, keeps) = (&mut self.state, journal.keeps());
        for job in jobs {
            if !job.is_open(|request_id, order| state.clients().seen(request_id, order)) {
                continue;
            }
            spend(self.hold_time);
            job.answer = Some(match &job.request.command {
                Command::Trade(order) => {
                    let (answer, record) = state.trade(order, job.request.request_id.as_ref());
                    self.records.extend(record.filter(|_| keeps));
                    answer
                }
                _ => Answer::Shown(state.show()),
            });
        }
        journal.push_all(state.seq(), &mut self.records);
        state.seq()
    }

    pub(super) fn snapshot(&self) -> (Exchange, u64) {
        (self.state.exchange().clone(), self.state.seq())
    }
}
