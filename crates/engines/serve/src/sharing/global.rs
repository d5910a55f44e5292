//! A single lock for everything, taken once for all jobs of a turn.

use super::exclusive::Exclusive;
use super::job::Job;
use super::strategy::Strategy;
use crate::error::ServeError;
use crate::journal::{Journal, StoreFailed};
use ioloom_exchange::Exchange;
use std::sync::Mutex;

pub(super) struct Global(Mutex<Exclusive>);

impl Global {
    pub(super) fn new(exclusive: Exclusive) -> Self {
        Self(Mutex::new(exclusive))
    }
}

impl Strategy for Global {
    fn answer(&self, jobs: &mut Vec<Job>, journal: &Journal) -> Result<u64, StoreFailed> {
        Ok(self.0.lock().expect("the lock must not be poisoned").answer(jobs, journal))
    }

    fn snapshot(&self) -> Result<(Exchange, u64), ServeError> {
        Ok(self.0.lock().expect("the lock must not be poisoned").snapshot())
    }
}
