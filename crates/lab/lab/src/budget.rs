//! The time budget of a study, in blocks.

use std::time::{Duration, Instant};

/// Minimum number of blocks to run, even if they exceed the budget.
pub const BLOCKS_MIN: u32 = 3;
/// Factor by which a study may exceed its budget to reach [`BLOCKS_MIN`] blocks.
pub const BUDGET_HARD: f64 = 1.75;
/// Minimum time allowed for a run. Killing a healthy run yields no information.
const RUN_MIN: Duration = Duration::from_secs(10);

/// Tracks the time of blocks against the budget.
#[derive(Debug)]
pub(crate) struct Blocks {
    start: Instant,
    budget: Option<Duration>,
    /// Whether another command can continue the session, which is therefore never over its budget by
    /// more than one run.
    continues: bool,
    /// Durations of the blocks completed by this process.
    finished: Vec<Duration>,
}

impl Blocks {
    /// Starts a budget at `start`. `None` means no budget.
    pub(crate) fn new(start: Instant, budget: Option<Duration>, continues: bool) -> Self {
        Self { start, budget, continues, finished: Vec::new() }
    }

    /// Records the duration of a block.
    pub(crate) fn finish(&mut self, took: Duration) {
        self.finished.push(took);
    }

    /// Returns the maximum time for a run that begins at `now` under the hard limit; `None` without
    /// a budget.
    pub(crate) fn longest_run(&self, now: Instant) -> Option<Duration> {
        let hard = self.budget?.as_secs_f64() * BUDGET_HARD;
        let left = hard - now.saturating_duration_since(self.start).as_secs_f64();
        Some(Duration::try_from_secs_f64(left).unwrap_or_default().max(RUN_MIN))
    }

    /// Returns whether the study must end at `now`: before a block (`first`) that would not fit
    /// according to earlier blocks, or before any run after the hard limit. That of a session that another
    /// command can continue is its budget.
    pub(crate) fn over(&self, block: u32, first: bool, now: Instant) -> bool {
        let Some(budget) = self.budget else { return false };
        let used = now.saturating_duration_since(self.start);
        let (times, least) = if self.continues { (1.0, 0) } else { (BUDGET_HARD, BLOCKS_MIN) };
        if used.as_secs_f64() > budget.as_secs_f64() * times {
            return true;
        }
        let count = u32::try_from(self.finished.len().max(1)).unwrap_or(u32::MAX);
        let next = self.finished.iter().sum::<Duration>() / count;
        first && block >= least && used + next > budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_dropped_when_the_next_one_would_not_fit_but_never_below_three() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut blocks = Blocks::new(start, Some(Duration::from_secs(100)), false);
        for _ in 0..3 {
            blocks.finish(Duration::from_secs(30));
        }
        assert!(!blocks.over(3, true, at(69)), "a 30 s block should fit");
        assert!(blocks.over(3, true, at(71)), "the block should not fit");
        assert!(!blocks.over(3, false, at(71)), "the budget should not stop a block midway");
        assert!(!blocks.over(2, true, at(170)), "three blocks may exceed the budget");
        assert!(blocks.over(0, false, at(176)), "the hard limit has passed");
        let none = Blocks::new(start, None, false);
        assert!(!none.over(99, true, at(1_000_000)) && none.longest_run(at(5)).is_none());
        assert_eq!(blocks.longest_run(at(75)), Some(Duration::from_secs(100)));
        assert_eq!(blocks.longest_run(at(1000)), Some(RUN_MIN));
    }

    #[test]
    fn a_session_that_can_be_continued_keeps_its_budget() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut blocks = Blocks::new(start, Some(Duration::from_secs(100)), true);
        assert!(!blocks.over(0, true, at(99)), "no block is known to be too long");
        assert!(blocks.over(0, false, at(101)), "the next run begins after the budget");
        blocks.finish(Duration::from_secs(30));
        assert!(!blocks.over(1, true, at(69)) && blocks.over(1, true, at(71)));
    }
}
