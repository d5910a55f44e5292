//! Parameters of every verdict: blocks, margin and bootstrap seed.

use crate::evaluation::gap::Gap;
use ioloom_stats::{Bootstrap, Interval};

/// Minimum number of blocks in a full study; a study with fewer is a quick one.
pub(crate) const BLOCKS_FULL: usize = 12;

/// The verdict rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Minimum number of blocks for a decided verdict.
    pub blocks_min: usize,
    /// Smallest relative difference that counts; 0.05 is a factor of 1.05 in either direction.
    pub margin: f64,
    /// Bootstrap seed.
    pub seed: u64,
}

impl Rule {
    /// 8 blocks, 5 %.
    pub const QUICK: Self = Self { blocks_min: 8, margin: 0.05, seed: 1 };
    /// 12 blocks, 5 %.
    pub const FULL: Self = Self { blocks_min: BLOCKS_FULL, margin: 0.05, seed: 1 };

    /// Returns the rule for [`ioloom_stats::decide`]; `margin` overrides the margin of this rule.
    pub(crate) fn stats(&self, margin: Option<f64>) -> ioloom_stats::Rule {
        ioloom_stats::Rule { margin: margin.unwrap_or(self.margin), blocks_min: self.blocks_min }
    }

    /// Returns the 95 % interval of a statistic over block indices. Whole blocks are resampled,
    /// which keeps the runs of a block together.
    pub(crate) fn over_blocks(
        &self,
        blocks: usize,
        statistic: impl Fn(&[usize]) -> Option<f64>,
    ) -> Result<Interval, Gap> {
        let indices: Vec<f64> = (0..blocks).map(|i| i as f64).collect();
        Bootstrap::new(self.seed)
            .of(&indices, |drawn| {
                let drawn: Vec<usize> = drawn.iter().map(|i| *i as usize).collect();
                statistic(&drawn).unwrap_or(f64::NAN)
            })
            .map_err(Gap::undefined)
    }
}
