//! The budget of time of a study, in blocks.

use std::time::{Duration, Instant};

/// Blocks that a budget does not drop.
pub const BLOCKS_MIN: u32 = 3;
/// How far a study may go over its budget to reach [`BLOCKS_MIN`] blocks.
pub const BUDGET_HARD: f64 = 1.75;
/// Time that a run gets at least, however late it is: a kill of a healthy run tells nothing.
const RUN_MIN: Duration = Duration::from_secs(10);

/// What the budget knows of time.
#[derive(Debug)]
pub(crate) struct Blocks {
    start: Instant,
    budget: Option<Duration>,
    /// Lengths of the blocks that were run whole by this process.
    finished: Vec<Duration>,
}

impl Blocks {
    /// A budget that counts from `start`; `None` is none.
    pub(crate) fn new(start: Instant, budget: Option<Duration>) -> Self {
        Self { start, budget, finished: Vec::new() }
    }

    /// Takes note of a block that took this long.
    pub(crate) fn finish(&mut self, took: Duration) {
        self.finished.push(took);
    }

    /// Longest time that a run beginning at `now` may take under the hard bound; `None` is no
    /// bound.
    pub(crate) fn longest_run(&self, now: Instant) -> Option<Duration> {
        let hard = self.budget?.as_secs_f64() * BUDGET_HARD;
        let left = hard - now.saturating_duration_since(self.start).as_secs_f64();
        Some(Duration::try_from_secs_f64(left).unwrap_or_default().max(RUN_MIN))
    }

    /// Whether the study must end at `now`: before `block` begins (`first`), because a block like
    /// those before would not fit; or at any run, because the hard bound is passed.
    pub(crate) fn over(&self, block: u32, first: bool, now: Instant) -> bool {
        let Some(budget) = self.budget else { return false };
        let used = now.saturating_duration_since(self.start);
        if used.as_secs_f64() > budget.as_secs_f64() * BUDGET_HARD {
            return true;
        }
        let count = u32::try_from(self.finished.len().max(1)).unwrap_or(u32::MAX);
        let next = self.finished.iter().sum::<Duration>() / count;
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
        let mut blocks = Blocks::new(start, Some(Duration::from_secs(100)));
        for _ in 0..3 {
            blocks.finish(Duration::from_secs(30));
        }
        assert!(!blocks.over(3, true, at(69)), "a block of 30 s fits");
        assert!(blocks.over(3, true, at(71)), "it does not");
        assert!(!blocks.over(3, false, at(71)), "within a block the budget does not cut");
        assert!(!blocks.over(2, true, at(170)), "three blocks are worth going over");
        assert!(blocks.over(0, false, at(176)), "but not without end");
        let none = Blocks::new(start, None);
        assert!(!none.over(99, true, at(1_000_000)) && none.longest_run(at(5)).is_none());
        assert_eq!(blocks.longest_run(at(75)), Some(Duration::from_secs(100)));
        assert_eq!(blocks.longest_run(at(1000)), Some(RUN_MIN));
    }
}
