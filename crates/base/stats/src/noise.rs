//! The noise floor: a plan against itself.
//!
//! Each block runs one plan twice (A/A). What the two arms differ by is not an effect, whatever an
//! interval says; an effect of that size between two other arms means nothing. The floor is the
//! larger of two numbers: the median of `|ln(first / second)|`, which is what a single block is off
//! by, and the reach of the bootstrap interval of the median log-ratio from 0, which is what the
//! study's own estimate is off by, order effects included.

use crate::StatsError;
use crate::bootstrap::{Bootstrap, log_ratios};
use crate::paired::Ratio;
use crate::summary::median;
use serde::{Deserialize, Serialize};

/// What a plan differs by from itself. All values are shares: 0.02 is a factor of 1.02.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AaNoise {
    /// Typical difference of a single block: the median of `|ln ratio|`.
    pub block: f64,
    /// Half of the width of the interval of the median log-ratio; of fewer than 8 blocks that from the
    /// least to the most.
    pub half_width: f64,
    /// The end of that interval that is farther from no difference.
    pub reach: f64,
    /// The larger of `block` and `reach`.
    pub floor: f64,
    /// Number of A/A blocks.
    pub n: usize,
}

impl AaNoise {
    /// Whether an effect is at or below the floor, so that it must not be believed.
    pub fn covers(&self, ratio: &Ratio) -> bool {
        ratio.effect() <= self.floor
    }
}

/// Noise floor from a plan that ran twice in each block; at least 2 blocks of values above zero.
///
/// # Errors
/// Different lengths, too few blocks, or a value that is not finite and above zero.
pub fn aa_noise(first: &[f64], second: &[f64], seed: u64) -> Result<AaNoise, StatsError> {
    let logs = log_ratios(first, second)?;
    let interval = Bootstrap::new(seed).median(&logs)?;
    let away: Vec<f64> = logs.iter().map(|l| l.abs()).collect();
    let share = |log: f64| log.exp() - 1.0;
    let block = share(median(&away));
    let reach = share(interval.lo.abs().max(interval.hi.abs()));
    Ok(AaNoise {
        block,
        half_width: share(interval.half_width()),
        reach,
        floor: block.max(reach),
        n: logs.len(),
    })
}
