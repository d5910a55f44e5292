//! The noise floor: a plan compared with itself.
//!
//! Each block runs one plan twice (A/A). The difference between the two runs is not an effect, so
//! an effect of that size between two other arms is meaningless. The floor is the larger of two
//! numbers: the median of `|ln(first / second)|`, which is the typical error of a single block, and
//! the largest distance of the bootstrap interval of the median log-ratio from 0, which is the
//! error of the study's estimate including order effects.

use crate::StatsError;
use crate::bootstrap::{Bootstrap, log_ratios};
use crate::summary::median;
use serde::{Deserialize, Serialize};

/// Difference between runs of the same plan. All values are shares: 0.02 is a factor of 1.02.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AaNoise {
    /// Typical difference within a single block: the median of `|ln ratio|`.
    pub block: f64,
    /// Half the width of the interval of the median log-ratio; below 8 blocks, of its range.
    pub half_width: f64,
    /// Distance from no difference to the farther bound of that interval.
    pub reach: f64,
    /// The larger of `block` and `reach`.
    pub floor: f64,
    /// Number of A/A blocks.
    pub n: usize,
}

/// Computes the noise floor from a plan that ran twice in each of at least 2 blocks.
///
/// # Errors
/// Fails if lengths differ, there are too few blocks, or a value is not finite and above zero.
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
