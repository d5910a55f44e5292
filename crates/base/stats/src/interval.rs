//! An estimate with its bounds and the confidence that they have.

use serde::{Deserialize, Serialize};

/// Confidence required to call two bounds an interval.
pub const CONFIDENCE: f64 = 0.95;

/// Minimum number of values for a median interval with that confidence: the range of six values has
/// 96.9 %.
pub const INTERVAL_MIN: usize = 6;

/// Returns the confidence that the range of `n` values contains the median of their distribution.
pub(crate) fn range_confidence(n: usize) -> f64 {
    1.0 - 2f64.powi(1 - i32::try_from(n).unwrap_or(i32::MAX))
}

/// An estimate with its interval, in the unit of the statistic.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Statistic of the original sample.
    pub estimate: f64,
    /// Lower bound.
    pub lo: f64,
    /// Upper bound.
    pub hi: f64,
    /// Confidence, 0 to 1: the requested value, or less if there are too few values.
    pub confidence: f64,
    /// Number of resamples; 0 if the bounds are not from resamples.
    pub resamples: u32,
}

impl Interval {
    /// Reports whether the bounds form a 95 % interval. Otherwise there are too few values and the
    /// bounds are their range.
    pub fn reaches_confidence(&self) -> bool {
        self.confidence >= CONFIDENCE
    }

    /// Returns half the width.
    pub fn half_width(&self) -> f64 {
        (self.hi - self.lo) / 2.0
    }

    /// Reports whether `value` is in the interval, bounds included.
    pub fn contains(&self, value: f64) -> bool {
        (self.lo..=self.hi).contains(&value)
    }

    /// Applies an increasing function to all three values.
    pub(crate) fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { estimate: f(self.estimate), lo: f(self.lo), hi: f(self.hi), ..self }
    }
}
