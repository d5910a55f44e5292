//! Parameters of every verdict: blocks, margin, error rate and bootstrap seed.

use crate::evaluation::gap::Gap;
use ioloom_stats::{Bootstrap, Resampled};

/// Minimum number of blocks for a verdict.
pub(crate) const BLOCKS_MIN: usize = 12;

/// Number of resamples: with twelve blocks, the smallest possible p-value is 0.005. With 30 it is 0.001, too
/// large for the third session of a machine ([`Rule::resampled_least_p`]).
const RESAMPLES: u32 = 9999;

/// The verdict rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Minimum number of blocks for a decided verdict.
    pub blocks_min: usize,
    /// Smallest relative difference that counts; 0.05 is a factor of 1.05 in either direction.
    pub margin: f64,
    /// Maximum expected share of false verdicts among those decided by one session.
    pub false_rate: f64,
    /// Number of times that the runs may be judged while more are made. Every p-value is multiplied
    /// by it, so stopping at the first decision keeps the error rate.
    pub looks: u32,
    /// Whether an answer from blocks that resemble their neighbours is withheld.
    pub dependence: bool,
    /// Bootstrap seed.
    pub seed: u64,
}

impl Rule {
    /// 12 blocks, 5 %, a false discovery rate of 5 %, judged once.
    pub const STANDARD: Self = Self {
        blocks_min: BLOCKS_MIN,
        margin: 0.05,
        false_rate: 0.05,
        looks: 1,
        dependence: true,
        seed: 1,
    };

    /// The blocks after which a session that is extended until its claims are decided may be judged.
    pub const LOOKS: [u32; 4] = [12, 18, 24, 30];

    /// Returns the rule for a session that is judged after each of [`Rule::LOOKS`].
    #[must_use]
    pub const fn sequential(self) -> Self {
        Self { looks: Self::LOOKS.len() as u32, ..self }
    }

    /// Returns the factor of a p-value from the `n`-th session with a result for the same contrast on the
    /// same machine, from 1. Judging again after each session is a sequence of looks, however many will
    /// follow. The first may use 4/5 of the error rate and the `n`-th one `1 / (5 n (n - 1))`; all together
    /// never use more than the whole.
    pub fn spending(n: u32) -> f64 {
        let n = f64::from(n);
        if n <= 1.0 { 1.25 } else { 5.0 * n * (n - 1.0) }
    }

    /// Returns the smallest two-sided p-value of a resampled statistic of this many blocks, at least 2.
    pub(crate) fn resampled_least_p(blocks: u32) -> f64 {
        2.0 * Resampled::least_p(RESAMPLES, blocks as usize)
    }

    /// Returns the rule for [`ioloom_stats::decide`]; `margin` overrides the margin of this rule.
    pub(crate) fn stats(&self, margin: Option<f64>) -> ioloom_stats::Rule {
        ioloom_stats::Rule { margin: margin.unwrap_or(self.margin), blocks_min: self.blocks_min }
    }

    /// Resamples a statistic over block indices. Whole blocks are resampled, which keeps the runs of
    /// a block together.
    pub(crate) fn over_blocks(
        &self,
        blocks: usize,
        statistic: impl Fn(&[usize]) -> Option<f64>,
    ) -> Result<Resampled, Gap> {
        let indices: Vec<f64> = (0..blocks).map(|i| i as f64).collect();
        Bootstrap { resamples: RESAMPLES, ..Bootstrap::new(self.seed) }
            .resampled(&indices, |drawn| {
                let drawn: Vec<usize> = drawn.iter().map(|i| *i as usize).collect();
                statistic(&drawn).unwrap_or(f64::NAN)
            })
            .map_err(Gap::undefined)
    }
}
