//! Correlation between two measurements of the same runs.
//!
//! Spearman's coefficient (Pearson's coefficient of the mid-ranks) measures any monotonic relation.
//! Times and counts are skewed, so claims use it instead of Pearson's coefficient. Its interval is
//! that of Bonett and Wright ("Sample size requirements for estimating Pearson, Kendall and
//! Spearman correlations", 2000): `tanh(atanh ρ ± 1.96 sqrt((1 + ρ²/2) / (n - 3)))`. Its p-value
//! comes from `ρ sqrt((n - 2) / (1 - ρ²))` under Student's t with `n - 2` degrees of freedom. At `ρ
//! = ±1` both are degenerate: the interval is a point and p is 0. Check `n` in that case.

use crate::StatsError;
use crate::error::check_pairs;
use crate::summary::{mean, ranks};
use crate::tails::student_two_sided;
use serde::{Deserialize, Serialize};

/// 97.5 % quantile of the standard normal distribution.
const NORMAL_975: f64 = 1.959_963_984_540_054;

/// A rank correlation with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Correlation {
    /// Spearman's coefficient, -1 to 1.
    pub rho: f64,
    /// Lower bound of the 95 % interval.
    pub lo: f64,
    /// Upper bound.
    pub hi: f64,
    /// Two-sided probability of a coefficient at least this extreme for unrelated variables.
    pub p: f64,
    /// Number of pairs.
    pub n: usize,
}

impl Correlation {
    /// Computes Spearman's rank correlation of at least 4 pairs with neither side constant.
    ///
    /// # Errors
    /// Fails if lengths differ, there are too few pairs, a value is not finite, or one side is
    /// constant.
    pub fn spearman(x: &[f64], y: &[f64]) -> Result<Self, StatsError> {
        let what = "rank correlation";
        check_pairs(what, x, y, 4)?;
        let rho = spearman(x, y);
        if rho.is_nan() {
            return Err(StatsError::Undefined { what });
        }
        let n = x.len();
        let reach = NORMAL_975 * ((1.0 + rho * rho / 2.0) / (n - 3) as f64).sqrt();
        let freedom = (n - 2) as f64;
        let t = rho * (freedom / (1.0 - rho * rho)).sqrt();
        Ok(Self {
            rho,
            lo: (rho.atanh() - reach).tanh(),
            hi: (rho.atanh() + reach).tanh(),
            p: student_two_sided(t, (n - 2) as u32),
            n,
        })
    }
}

/// Returns Pearson's correlation coefficient, -1 to 1; NaN for different lengths, fewer than two
/// pairs or a constant side.
fn pearson(x: &[f64], y: &[f64]) -> f64 {
    if x.len() != y.len() || x.len() < 2 {
        return f64::NAN;
    }
    let (mx, my) = (mean(x), mean(y));
    let sxx: f64 = x.iter().map(|x| (x - mx).powi(2)).sum();
    let syy: f64 = y.iter().map(|y| (y - my).powi(2)).sum();
    let sxy: f64 = x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum();
    if sxx == 0.0 || syy == 0.0 {
        return f64::NAN;
    }
    (sxy / (sxx.sqrt() * syy.sqrt())).clamp(-1.0, 1.0)
}

/// Returns Spearman's rank correlation coefficient; ties get their mean rank. NaN for different
/// lengths, fewer than two pairs, a constant side, or any NaN value.
pub fn spearman(x: &[f64], y: &[f64]) -> f64 {
    if x.iter().chain(y).any(|v| v.is_nan()) {
        return f64::NAN;
    }
    pearson(&ranks(x), &ranks(y))
}
