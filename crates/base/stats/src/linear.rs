//! Straight lines: `y = intercept + slope x`.
//!
//! Least squares for relations claimed to be linear (time by bytes), with `R² = 1 - Σ(y - fit)² /
//! Σ(y - mean)²` and the standard error of the slope, `sqrt(Σ(y - fit)² / (n - 2) / Σ(x - mean)²)`.
//! The Theil-Sen slope, the median of all pairwise slopes, is for data in which single outliers
//! must not tilt the line; it stores `n²/2` slopes.

use crate::StatsError;
use crate::error::check_pairs;
use crate::summary::{mean, median_of};
use serde::{Deserialize, Serialize};

/// A fitted line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Change of `y` per unit of `x`.
    pub slope: f64,
    /// `y` at `x = 0`.
    pub intercept: f64,
    /// Share of the variance of `y` explained by the line, 0 to 1; `None` if `y` is constant.
    pub r2: Option<f64>,
    /// Standard error of the slope; `None` for two points.
    pub slope_error: Option<f64>,
    /// Number of points.
    pub n: usize,
}

impl Line {
    /// Fits a least-squares line to at least 2 points whose `x` values are not all equal.
    ///
    /// # Errors
    /// Fails if lengths differ, there are too few points, a value is not finite, or `x` is
    /// constant.
    pub fn fit(x: &[f64], y: &[f64]) -> Result<Self, StatsError> {
        let what = "straight line";
        check_pairs(what, x, y, 2)?;
        let (mx, my) = (mean(x), mean(y));
        let sxx: f64 = x.iter().map(|x| (x - mx).powi(2)).sum();
        let sxy: f64 = x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum();
        let syy: f64 = y.iter().map(|y| (y - my).powi(2)).sum();
        if sxx == 0.0 {
            return Err(StatsError::Undefined { what });
        }
        let slope = sxy / sxx;
        let intercept = my - slope * mx;
        // From the residuals because the difference of the sums would cancel for a good fit.
        let rest: f64 = x.iter().zip(y).map(|(x, y)| (y - my - slope * (x - mx)).powi(2)).sum();
        let n = x.len();
        Ok(Self {
            slope,
            intercept,
            r2: (syy > 0.0).then(|| (1.0 - rest / syy).clamp(0.0, 1.0)),
            slope_error: (n > 2).then(|| (rest / (n - 2) as f64 / sxx).sqrt()),
            n,
        })
    }

    /// Returns the `y` value of the line at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// Returns the median slope between all pairs of at least 2 points with different `x`.
///
/// # Errors
/// Fails if lengths differ, there are too few points, a value is not finite, or `x` is constant.
pub fn theil_sen(x: &[f64], y: &[f64]) -> Result<f64, StatsError> {
    let what = "median slope";
    check_pairs(what, x, y, 2)?;
    let mut slopes = Vec::with_capacity(x.len() * (x.len() - 1) / 2);
    for i in 0..x.len() {
        for j in i + 1..x.len() {
            if x[i] != x[j] {
                slopes.push((y[j] - y[i]) / (x[j] - x[i]));
            }
        }
    }
    if slopes.is_empty() {
        return Err(StatsError::Undefined { what });
    }
    Ok(median_of(&mut slopes))
}
