//! What trials and the choice of the window have lost.
//!
//! Batches are compared with the fastest window once they hold enough requests together. Where completions
//! are rarer than batches, most batches are empty, and a single one of them shows no loss.

use super::{Auto, Cause, State};
use crate::batch::Batch;
use crate::measure::Sample;
use crate::thresholds::{LIMITED, SAMPLE_REQUESTS, TRIAL_SAMPLES};

/// What time is lost to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Account {
    Trial,
    Method,
}

/// Progress that does not hold enough requests yet, and the time that it has lost so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Charge {
    account: Option<Account>,
    sample: Sample,
    lost_ns: u64,
}

impl Auto {
    /// Adds what this batch lost compared with the fastest window. Files in memory lose nothing by it.
    pub(super) fn charge(&mut self, batch: &Batch) {
        let Some(best) = self.best else {
            self.charging = Charge::default();
            return;
        };
        let is_full = batch.misses > 0 && batch.in_flight >= LIMITED * f64::from(self.window);
        if batch.hits > batch.misses && !is_full {
            return;
        }
        let account = self.account();
        let is_same = account.is_some() && account == self.charging.account;
        let Charge { mut sample, lost_ns: before, .. } =
            if is_same { self.charging } else { Charge::default() };
        self.charging = Charge::default();
        let Some(account) = account else { return self.charge_choice(batch) };
        sample.add(batch, batch.ready);
        let (_, ratio) = sample.ratios(&best);
        let lost_ns = ((1.0 - ratio).clamp(0.0, 1.0) * sample.ns) as u64;
        if sample.requests < SAMPLE_REQUESTS {
            self.charging = Charge { account: Some(account), sample, lost_ns };
        }
        let changed = |ns: u64| ns.saturating_add(lost_ns).saturating_sub(before);
        self.cost.probing_ns = changed(self.cost.probing_ns);
        if account == Account::Method {
            self.method_ns = changed(self.method_ns);
        }
    }

    /// Returns what time is lost to now; `None` without a trial or a change of the method.
    fn account(&self) -> Option<Account> {
        match (self.state, self.settling) {
            // The controller did not choose the limit below its window.
            (_, Some(settling)) if settling.cause == Cause::Limit => None,
            (_, Some(settling)) if settling.cause == Cause::Method => Some(Account::Method),
            (State::Trial { .. } | State::Climb { .. }, _) | (_, Some(_)) => Some(Account::Trial),
            _ => None,
        }
    }

    /// Adds what the choice of the present window lost, if it was measured.
    fn charge_choice(&mut self, batch: &Batch) {
        let is_measured = self.settling.is_none() && self.level.samples >= TRIAL_SAMPLES;
        if let Some(best) = self.best.filter(|_| is_measured) {
            let loss = self.level.loss(&best).0.clamp(0.0, 1.0);
            self.cost.choice_ns += (loss * batch.elapsed_ns as f64) as u64;
        }
    }
}
