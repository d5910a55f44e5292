//! What trials and the choice of the window have lost.
//!
//! What is reported compares all the time in one window with the fastest window. What limits further trials
//! counts each batch by itself. Where completions are rarer than batches, most batches are empty, so that
//! this is much more, and a run whose functions take long tries less.

use super::stretch::{Account, Stretch};
use super::{Auto, Cause, State};
use crate::batch::Batch;
use crate::measure::Sample;
use crate::thresholds::{LIMITED, TRIAL_SAMPLES};

impl Auto {
    /// Adds what this batch lost compared with the fastest window. Files in memory lose nothing by it.
    pub(super) fn charge(&mut self, batch: &Batch) {
        let Some(best) = self.best else {
            self.stretch = Stretch::default();
            return;
        };
        let is_full = batch.misses > 0 && batch.in_flight >= LIMITED * f64::from(self.window);
        if batch.hits > batch.misses && !is_full {
            return;
        }
        let mut sample = Sample::default();
        sample.add(batch, batch.ready);
        let (_, ratio) = sample.ratios(&best);
        let lost_ns = ((1.0 - ratio).clamp(0.0, 1.0) * batch.elapsed_ns as f64) as u64;
        let account = self.account();
        match account {
            Account::Nothing => {}
            Account::Trial => self.trials_ns = self.trials_ns.saturating_add(lost_ns),
            Account::Method => self.method_ns = self.method_ns.saturating_add(lost_ns),
            Account::Choice => {
                let loss = self.level.loss(&best).0.clamp(0.0, 1.0);
                self.cost.choice_ns += (loss * batch.elapsed_ns as f64) as u64;
            }
        }
        let probing_ns = self.cost.probing_ns;
        self.cost.probing_ns =
            self.stretch.continued((account, self.window), &sample, &best, probing_ns);
    }

    /// Returns what time is lost to now.
    fn account(&self) -> Account {
        match (self.state, self.settling) {
            // The controller did not choose the limit below its window.
            (_, Some(settling)) if settling.cause == Cause::Limit => Account::Nothing,
            (_, Some(settling)) if settling.cause == Cause::Method => Account::Method,
            (State::Trial { .. } | State::Climb { .. }, _) | (_, Some(_)) => Account::Trial,
            _ if self.level.samples >= TRIAL_SAMPLES => Account::Choice,
            _ => Account::Nothing,
        }
    }
}
