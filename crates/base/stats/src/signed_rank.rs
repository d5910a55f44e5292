//! P-values of a shift, from the signed ranks of paired differences (Wilcoxon, 1945).
//!
//! The differences are ranked by size; the statistic is the sum of the ranks of those above the
//! tested shift. If the two arms of a block are exchangeable under the null hypothesis, each sign is
//! a fair coin, and the distribution of the sum over all `2^n` assignments is exact, ties included:
//! mid-ranks are doubled, so the sums are integers. Differences equal to the shift keep their (lowest)
//! ranks and count against both sides, which makes the test conservative. A test of a shift other than zero assumes in addition that the differences are symmetric about it.
//!
//! It needs fewer blocks than the sign test that belongs to an interval between order statistics: a
//! ratio of 0.88 with a scatter of 0.10 per block is found at the 1 % level in nine of ten studies
//! of twelve blocks, and by the sign test in two of three.
//!
//! Cost: `n³` additions, up to `EXACT_MAX` differences; beyond that, a normal approximation with
//! the variance corrected for ties.

use crate::StatsError;
use crate::error::check_finite;
use crate::summary::ranks;
use crate::tails::normal_below;
use serde::{Deserialize, Serialize};

/// Maximum number of differences for the exact distribution.
const EXACT_MAX: usize = 120;

/// One-sided p-values of a shift.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SignedRank {
    /// Probability of differences at least this far below the shift if they are centred on it.
    pub below: f64,
    /// Probability of differences at least this far above the shift.
    pub above: f64,
    /// Number of differences that are not equal to the shift.
    pub n: usize,
}

impl SignedRank {
    /// Tests whether at least one finite difference is centred below or above `shift`.
    ///
    /// # Errors
    /// Fails if there are no differences or one is not finite.
    pub fn test(differences: &[f64], shift: f64) -> Result<Self, StatsError> {
        check_finite("signed ranks", differences, 1)?;
        let away: Vec<f64> = differences.iter().map(|d| d - shift).collect();
        let n = away.iter().filter(|d| **d != 0.0).count();
        let sizes: Vec<f64> = away.iter().map(|d| d.abs()).collect();
        // Twice the mid-rank is an integer.
        let doubled: Vec<usize> =
            ranks(&sizes).iter().map(|r| (2.0 * r).round() as usize).collect();
        let sum = |wanted: fn(f64) -> bool| -> usize {
            let ranked = away.iter().zip(&doubled).filter(|(d, _)| wanted(**d));
            ranked.map(|(_, rank)| *rank).sum()
        };
        let sums = [sum(|d| d < 0.0), sum(|d| d > 0.0)];
        let [below, above] = if away.len() <= EXACT_MAX {
            exact(&doubled, sums)
        } else {
            sums.map(|sum| normal(&doubled, sum))
        };
        Ok(Self { below, above, n })
    }

    /// Returns the two-sided p-value.
    pub fn two_sided(&self) -> f64 {
        (2.0 * self.below.min(self.above)).min(1.0)
    }
}

/// Returns the shares of sign assignments whose doubled rank sum is at least each of these sums.
fn exact(doubled: &[usize], sums: [usize; 2]) -> [f64; 2] {
    let all: usize = doubled.iter().sum();
    let mut chance = vec![0.0; all + 1];
    chance[0] = 1.0;
    let mut reached = 0;
    for rank in doubled {
        reached += rank;
        for at in (0..=reached).rev() {
            let with = if at >= *rank { chance[at - rank] } else { 0.0 };
            chance[at] = 0.5 * (chance[at] + with);
        }
    }
    sums.map(|sum| chance[sum..].iter().sum::<f64>().min(1.0))
}

fn normal(doubled: &[usize], sum: usize) -> f64 {
    let mean = doubled.iter().sum::<usize>() as f64 / 2.0;
    let variance: f64 = doubled.iter().map(|r| (*r as f64).powi(2) / 4.0).sum();
    // One is half the distance between two sums without ties.
    normal_below(-(sum as f64 - mean - 1.0) / variance.sqrt())
}
