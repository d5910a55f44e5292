//! One lock around everything, taken once for all jobs of a turn.

use super::{Job, Strategy, answer_alone};
use crate::journal::{Broken, Journal};
use ioloom_exchange::{Exchange, State};
use std::sync::Mutex;

pub(super) struct Global(Mutex<State>);

impl Global {
    pub(super) fn new(state: State) -> Self {
        Self(Mutex::new(state))
    }
}

impl Strategy for Global {
    fn answer(&self, jobs: &mut Vec<Job>, journal: &Journal) -> Result<(), Broken> {
        let seq = {
            let mut state = self.0.lock().expect("no panic under this lock");
            answer_alone(&mut state, jobs, journal)
        };
        journal.wait(seq)
    }

    fn snapshot(&self) -> (Exchange, u64) {
        let state = self.0.lock().expect("no panic under this lock");
        (state.exchange().clone(), state.seq())
    }
}
