//! The noise floor: a plan compared with itself.
//!
//! Each block runs one plan twice (A/A). A difference between the two runs is not an effect, so an
//! effect of that size between two other arms is meaningless. What a study reports is the median
//! over its blocks, so the floor is the median difference of the plan with itself over the same
//! blocks: with `n` blocks of pure noise it shrinks as `1 / sqrt(n)`, like the error of the effect.
//! If the interval of that median excludes no difference, the second run really differs from the
//! first (an order effect), and the floor is the farther bound of the interval, which more blocks do
//! not remove. The difference within single blocks is reported as well, but it is not the error of a
//! median.

use crate::StatsError;
use crate::bootstrap::log_ratios;
use crate::interval::CONFIDENCE;
use crate::order::median_interval;
use crate::summary::median;
use serde::{Deserialize, Serialize};

/// Difference between runs of the same plan. All values are shares: 0.02 is a factor of 1.02.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AaNoise {
    /// Typical difference within a single block: the median of `|ln ratio|`.
    pub block: f64,
    /// Half the width of the interval of the median log-ratio.
    pub half_width: f64,
    /// Distance from no difference to the farther bound of that interval.
    pub reach: f64,
    /// Difference of the median over the blocks from no difference; `reach` if the interval excludes
    /// no difference.
    pub floor: f64,
    /// Number of A/A blocks.
    pub n: usize,
}

/// Computes the noise floor of a difference (of shares, times or gains) from the differences between
/// two runs of the same plan in at least 2 blocks, in their unit: the distance of their median from
/// zero, or the farther bound of its interval if that excludes zero.
///
/// # Errors
/// Fails if there are too few blocks or a value is not finite.
pub fn difference_floor(differences: &[f64]) -> Result<f64, StatsError> {
    let interval = median_interval(differences, CONFIDENCE)?;
    let reach = interval.lo.abs().max(interval.hi.abs());
    Ok(if interval.contains(0.0) { interval.estimate.abs() } else { reach })
}

/// Computes the noise floor from a plan that ran twice in each of at least 2 blocks.
///
/// # Errors
/// Fails if lengths differ, there are too few blocks, or a value is not finite and above zero.
pub fn aa_noise(first: &[f64], second: &[f64]) -> Result<AaNoise, StatsError> {
    let logs = log_ratios(first, second)?;
    let interval = median_interval(&logs, CONFIDENCE)?;
    let away: Vec<f64> = logs.iter().map(|l| l.abs()).collect();
    let share = |log: f64| log.exp() - 1.0;
    let block = share(median(&away));
    let reach = share(interval.lo.abs().max(interval.hi.abs()));
    let floor = share(difference_floor(&logs)?);
    Ok(AaNoise { block, half_width: share(interval.half_width()), reach, floor, n: logs.len() })
}
