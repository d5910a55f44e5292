//! Time in one window that is compared with the fastest window as a whole.

use crate::measure::{Level, Sample};

/// What time is lost to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Account {
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

impl Stretch {
    /// Adds a sample that was taken in a window and counts on an account. Takes the time lost to trials and
    /// returns what it is now. It decreases again when what had not completed does.
    pub(super) fn continued(
        &mut self,
        (account, window): (Account, u32),
        sample: &Sample,
        best: &Level,
        trials_ns: u64,
    ) -> u64 {
        if !matches!(account, Account::Trial | Account::Method) {
            *self = Self::default();
            return trials_ns;
        }
        if self.account != account || self.level.window != window {
            *self = Self { account, level: Level::new(window), lost_ns: 0 };
        }
        self.level.add(sample);
        let (loss, _) = self.level.loss(best);
        let lost_ns = (loss.clamp(0.0, 1.0) * self.level.ns) as u64;
        let before_ns = std::mem::replace(&mut self.lost_ns, lost_ns);
        trials_ns.saturating_add(lost_ns).saturating_sub(before_ns)
    }
}
