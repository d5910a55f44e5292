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
    /// Whether another command can continue the session. Such a session is over its budget by at most about
    /// one block.
    continues: bool,
    /// Estimated duration of the runs left in the current block of such a session.
    expected: Duration,
    /// Whether runs of the current block were stored by an earlier process.
    has_begun: bool,
    /// Whether the session has a stored run.
    has_runs: bool,
    /// Durations of the blocks completed by this process.
    finished: Vec<Duration>,
    /// Sum of what was expected of them.
    estimated: Duration,
}

impl Blocks {
    /// Starts a budget at `start`. `None` means no budget.
    pub(crate) fn new(start: Instant, budget: Option<Duration>, continues: bool) -> Self {
        let (expected, estimated) = (Duration::ZERO, Duration::ZERO);
        let finished = Vec::new();
        let (has_begun, has_runs) = (false, false);
        Self { start, budget, continues, expected, has_begun, has_runs, finished, estimated }
    }

    /// Sets the estimated duration of the runs left in the next block of a session that can be continued, and
    /// whether other runs of the block are stored.
    pub(crate) fn expect(&mut self, expected: Duration, has_begun: bool) {
        (self.expected, self.has_begun) = (expected, has_begun);
    }

    /// Records that the session has a stored run.
    pub(crate) fn stored(&mut self) {
        self.has_runs = true;
    }

    /// Records the duration of a block.
    pub(crate) fn finish(&mut self, took: Duration) {
        self.finished.push(took);
        self.estimated = self.estimated.saturating_add(self.expected);
    }

    /// Estimates the duration of the current block from earlier blocks. Looks reduce the arms of a session that
    /// can be continued, so its estimate is corrected by the error of the earlier ones.
    fn next(&self) -> Duration {
        let took = self.finished.iter().sum::<Duration>();
        if !self.continues {
            let count = u32::try_from(self.finished.len()).unwrap_or(u32::MAX);
            return took.checked_div(count).unwrap_or_default();
        }
        let error = match self.estimated.is_zero() {
            true => 1.0,
            false => took.as_secs_f64() / self.estimated.as_secs_f64(),
        };
        Duration::try_from_secs_f64(self.expected.as_secs_f64() * error).unwrap_or(Duration::MAX)
    }

    /// Returns the maximum time for a run that begins at `now` under the hard limit; `None` without
    /// a budget, and for the first run: a session whose only run was killed shows nothing, and cannot be
    /// continued.
    pub(crate) fn longest_run(&self, now: Instant) -> Option<Duration> {
        if !self.has_runs {
            return None;
        }
        let hard = self.budget?.as_secs_f64() * BUDGET_HARD;
        let left = hard - now.saturating_duration_since(self.start).as_secs_f64();
        Some(Duration::try_from_secs_f64(left).unwrap_or_default().max(RUN_MIN))
    }

    /// Returns whether the study must end at `now`: before a block (`first`) that would not fit
    /// according to earlier blocks, or before any run after the hard limit. It does not end without a stored
    /// run: a finished session without runs could not be continued. A session that another command
    /// can continue estimates its first block, and its hard limit is one block after its budget: the runs of
    /// a block that is cut are made later than those they are compared with. For the same reason, a block of which
    /// runs are stored begins until the budget is used up.
    pub(crate) fn over(&self, block: u32, first: bool, now: Instant) -> bool {
        let Some(budget) = self.budget else { return false };
        let used = now.saturating_duration_since(self.start);
        let next = self.next();
        if self.continues {
            return match first {
                true if self.has_begun => used > budget,
                true => used.saturating_add(next) > budget,
                false => used > budget.saturating_add(next),
            };
        }
        if !self.has_runs {
            return false;
        }
        if used.as_secs_f64() > budget.as_secs_f64() * BUDGET_HARD {
            return true;
        }
        first && block >= BLOCKS_MIN && used + next > budget
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
        assert!(!blocks.over(0, true, at(1000)), "a session must not end without a run");
        let longest = [at(0), at(174), at(1000)].map(|now| blocks.longest_run(now));
        assert_eq!(longest, [None; 3], "the budget must not kill the first run");
        blocks.stored();
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
        let (budget, estimate) = (Duration::from_secs(100), Duration::from_secs(20));
        let mut blocks = Blocks::new(start, Some(budget), true);
        blocks.expect(estimate, false);
        assert!(!blocks.over(0, true, at(79)), "the estimated block should fit");
        assert!(blocks.over(0, true, at(81)), "the estimated block should not fit");
        assert!(!blocks.over(0, false, at(119)), "a block that has begun is not cut");
        assert!(blocks.over(0, false, at(121)), "unless it takes much longer than estimated");
        blocks.finish(Duration::from_secs(30));
        assert!(!blocks.over(1, true, at(69)) && blocks.over(1, true, at(71)));
        assert!(!blocks.over(1, false, at(129)) && blocks.over(1, false, at(131)));
    }

    #[test]
    fn a_block_costs_the_runs_that_it_lacks() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut blocks = Blocks::new(start, Some(Duration::from_secs(100)), true);
        blocks.expect(Duration::from_secs(40), false);
        blocks.finish(Duration::from_secs(60));
        // A look leaves a tenth of the arms, which take half as long again as estimated, like the others.
        blocks.expect(Duration::from_secs(4), false);
        assert!(!blocks.over(1, true, at(93)), "the smaller block should fit");
        assert!(blocks.over(1, true, at(95)), "the estimate should be corrected");
        blocks.expect(Duration::from_secs(40), true);
        assert!(!blocks.over(1, true, at(99)), "a block with stored runs should be completed");
        assert!(blocks.over(1, true, at(101)), "but not after the budget");
    }
}
