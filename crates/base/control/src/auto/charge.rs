//! What trials and the choice of the window have lost.
//!
//! What is reported compares all the time in one window with the fastest window. What limits further trials
//! counts each batch by itself. Where completions are rarer than batches, most batches are empty, so that
//! this is much more, and a run whose functions take long tries less.

use super::{Auto, Cause, State};
use crate::batch::Batch;
use crate::measure::{Level, Sample};
use crate::thresholds::{LIMITED, TRIAL_SAMPLES};

/// What time is lost to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Account {
    /// Nothing that the controller has chosen.
    #[default]
    Nothing,
    Trial,
    Method,
    Choice,
}

/// Consecutive time in one window on one account, and what it has lost so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stretch {
    account: Account,
    level: Level,
    lost_ns: u64,
}

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
        self.report(account, &sample, &best);
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

    /// Brings the time lost to trials up to date. It decreases again when what had not completed does.
    fn report(&mut self, account: Account, sample: &Sample, best: &Level) {
        if !matches!(account, Account::Trial | Account::Method) {
            self.stretch = Stretch::default();
            return;
        }
        let stretch = &mut self.stretch;
        if stretch.account != account || stretch.level.window != self.window {
            *stretch = Stretch { account, level: Level::new(self.window), lost_ns: 0 };
        }
        stretch.level.add(sample);
        let (loss, _) = stretch.level.loss(best);
        let lost_ns = (loss.clamp(0.0, 1.0) * stretch.level.ns) as u64;
        let probing_ns = self.cost.probing_ns.saturating_add(lost_ns);
        self.cost.probing_ns = probing_ns.saturating_sub(stretch.lost_ns);
        stretch.lost_ns = lost_ns;
    }
}
