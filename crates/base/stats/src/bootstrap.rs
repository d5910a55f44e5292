//! Seeded bootstrap intervals and p-values.
//!
//! The sample is resampled with replacement `resamples` times. The spread of the statistic over
//! these resamples estimates its spread over repeated studies (Efron, 1979). The bounds are
//! quantiles of the resampled statistic (percentile method).
//!
//! For few values the plain percentiles are too narrow, because a resample varies less than a new
//! sample: by `sqrt((n - 1) / n)`, and like a normal rather than a Student's t distribution. The
//! quantiles are therefore moved out to `Φ(-t sqrt(n / (n - 1)))`, with `t` of `n - 1` degrees of
//! freedom (Hesterberg, "What teachers should know about the bootstrap", 2015): for twelve values
//! the 1.1 % quantile instead of the 2.5 % quantile. The p-value of a bound applies the inverse.
//! Resamples for which the statistic is NaN are dropped and not counted in [`Interval::resamples`]. The
//! p-value of a bound counts them against every statement ([`Resampled::undefined_share`]).
//!
//! The statistic should be a function of medians, such as a ratio or a crossing of medians: simulated
//! intervals then contain the truth in at least 96 % of studies of 6 to 30 values. For means of skewed
//! values they do so in only 91 % of studies of 6 values and 94 % of 12 (lognormal, sigma 0.3).
//!
//! A median needs no bootstrap: [`crate::median_interval`] is exact. Below 6 values no interval has
//! 95 %; the bounds are called a range, and [`Interval::reaches_confidence`] is false.
//!
//! Cost: one draw per value and resample (24 000 draws for 12 values and 2000 resamples) and 2000
//! evaluations of the statistic; memory is one `f64` per resample.

use crate::StatsError;
use crate::error::{check_finite, check_pairs, check_positive};
use crate::interval::{CONFIDENCE, Interval, range_confidence};
use crate::order::median_interval;
use crate::summary::{median_of, quantile_sorted};
use crate::tails::{normal_below, normal_quantile, student_quantile_two_sided, student_two_sided};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Below this number of values per sample, the bounds of a ratio of two medians are the farthest
/// that their ranges allow.
const RESAMPLED_MIN: usize = 8;

/// Resampling settings. The same settings and values give the same interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Resampling seed.
    pub seed: u64,
    /// Number of resamples, at least 100.
    pub resamples: u32,
    /// Confidence, above 0.5 and below 1.
    pub confidence: f64,
}

impl Bootstrap {
    /// Creates settings with 2000 resamples and 95 % confidence.
    pub const fn new(seed: u64) -> Self {
        Self { seed, resamples: 2000, confidence: CONFIDENCE }
    }

    /// Computes the interval of any statistic of one sample of at least 2 finite values. Below 6
    /// values the confidence is that of a median of the same number of values.
    ///
    /// # Errors
    /// Fails if there are too few values, a value is not finite, settings are out of range, or the
    /// statistic is NaN for the sample.
    pub fn of(
        &self,
        values: &[f64],
        statistic: impl Fn(&[f64]) -> f64,
    ) -> Result<Interval, StatsError> {
        self.resampled(values, statistic).map(|resampled| resampled.interval)
    }

    /// Returns the interval together with the p-values of bounds, from the same resamples.
    ///
    /// # Errors
    /// Fails like [`Bootstrap::of`].
    pub fn resampled(
        &self,
        values: &[f64],
        statistic: impl Fn(&[f64]) -> f64,
    ) -> Result<Resampled, StatsError> {
        self.check()?;
        check_finite("bootstrap", values, 2)?;
        let estimate = defined(statistic(values))?;
        let mut draws = Draws::new(self.seed);
        let mut sample = vec![0.0; values.len()];
        let sorted = self.repeat(|| {
            draws.fill(&mut sample, values);
            statistic(&sample)
        });
        if sorted.is_empty() {
            return Err(StatsError::Undefined { what: "bootstrap" });
        }
        let n = values.len();
        let confidence = self.confidence.min(range_confidence(n));
        let interval = Interval { confidence, ..self.percentile(estimate, &sorted, n) };
        let undefined = (self.resamples as usize).saturating_sub(sorted.len());
        Ok(Resampled { interval, sorted, undefined, n })
    }

    /// Computes the exact interval of the median of at least 2 finite values; below 6 values, their
    /// range.
    ///
    /// # Errors
    /// Fails if there are too few values, a value is not finite, or settings are out of range.
    pub fn median(&self, values: &[f64]) -> Result<Interval, StatsError> {
        self.check()?;
        median_interval(values, self.confidence)
    }

    /// Computes the interval of `median(a) / median(b)` for two unpaired samples of at least 2
    /// values above zero. Each sample is resampled independently. If one has fewer than 8 values,
    /// the bounds are the minimum over the maximum and the maximum over the minimum, with the
    /// confidence that both medians are within the range of their samples.
    ///
    /// # Errors
    /// Fails if there are too few values, a value is not finite and above zero, or settings are out
    /// of range.
    pub fn ratio_of_medians(&self, a: &[f64], b: &[f64]) -> Result<Interval, StatsError> {
        self.check()?;
        let what = "ratio of medians";
        for side in [a, b] {
            check_finite(what, side, 2)?;
            check_positive(what, side)?;
        }
        let estimate = median_of(&mut a.to_vec()) / median_of(&mut b.to_vec());
        if a.len().min(b.len()) < RESAMPLED_MIN {
            let (a_ends, b_ends) = (range(a), range(b));
            let confidence = range_confidence(a.len()) * range_confidence(b.len());
            let (lo, hi) = (a_ends.0 / b_ends.1, a_ends.1 / b_ends.0);
            return Ok(Interval { estimate, lo, hi, confidence, resamples: 0 });
        }
        let mut draws = Draws::new(self.seed);
        let (mut top, mut bottom) = (vec![0.0; a.len()], vec![0.0; b.len()]);
        let resampled = self.repeat(|| {
            draws.fill(&mut top, a);
            draws.fill(&mut bottom, b);
            median_of(&mut top) / median_of(&mut bottom)
        });
        Ok(self.percentile(estimate, &resampled, a.len().min(b.len())))
    }

    fn check(&self) -> Result<(), StatsError> {
        if self.resamples < 100 {
            return Err(StatsError::OutOfRange {
                what: "number of resamples",
                value: f64::from(self.resamples),
                accepted: "at least 100",
            });
        }
        if !(self.confidence > 0.5 && self.confidence < 1.0) {
            return Err(StatsError::OutOfRange {
                what: "confidence",
                value: self.confidence,
                accepted: "above 0.5 and below 1",
            });
        }
        Ok(())
    }

    /// Returns the statistic of every resample in ascending order, without NaN.
    fn repeat(&self, mut once: impl FnMut() -> f64) -> Vec<f64> {
        let mut all: Vec<f64> =
            (0..self.resamples).map(|_| once()).filter(|v| !v.is_nan()).collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    }

    /// Returns the interval of a statistic of `n` values from its ascending resamples.
    fn percentile(&self, estimate: f64, sorted: &[f64], n: usize) -> Interval {
        let freedom = n as u32 - 1;
        let student = student_quantile_two_sided(1.0 - self.confidence, freedom);
        let side = normal_below(-student * widening(n));
        Interval {
            estimate,
            lo: quantile_sorted(sorted, side),
            hi: quantile_sorted(sorted, 1.0 - side),
            confidence: self.confidence,
            resamples: sorted.len() as u32,
        }
    }
}

/// Returns how much more a new sample of `n` values varies than a resample.
fn widening(n: usize) -> f64 {
    (n as f64 / (n as f64 - 1.0)).sqrt()
}

/// An interval with the resamples it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Resampled {
    /// The interval.
    pub interval: Interval,
    /// The statistic of each resample, ascending.
    sorted: Vec<f64>,
    /// Number of resamples without a value.
    undefined: usize,
    /// Number of values in the sample.
    n: usize,
}

impl Resampled {
    /// Returns the one-sided p-value for "the statistic is above `bound`": small if hardly any
    /// resample is at or below it.
    pub fn above(&self, bound: f64) -> f64 {
        self.p(self.sorted.partition_point(|v| *v <= bound))
    }

    /// Returns the one-sided p-value for "the statistic is below `bound`".
    pub fn below(&self, bound: f64) -> f64 {
        self.p(self.sorted.len() - self.sorted.partition_point(|v| *v < bound))
    }

    /// Returns the one-sided p-value for "the statistic is at least `bound`".
    pub fn at_least(&self, bound: f64) -> f64 {
        self.p(self.sorted.partition_point(|v| *v < bound))
    }

    /// Returns the one-sided p-value for "the statistic is at most `bound`".
    pub fn at_most(&self, bound: f64) -> f64 {
        self.p(self.sorted.len() - self.sorted.partition_point(|v| *v <= bound))
    }

    /// Returns the share of resamples for which the statistic is undefined.
    pub fn undefined_share(&self) -> f64 {
        self.undefined as f64 / (self.undefined + self.sorted.len()).max(1) as f64
    }

    /// Returns the p-value if this many resamples contradict a statement. Those without a value could
    /// contradict any statement. The estimate counts as one more resample, so it is never zero.
    fn p(&self, against: usize) -> f64 {
        let all = self.sorted.len() + self.undefined;
        one_sided(((against + self.undefined) as f64 + 1.0) / (all as f64 + 1.0), self.n)
    }

    /// Returns the smallest one-sided p-value of any bound with this many resamples of `n` values, at
    /// least 2.
    pub fn least_p(resamples: u32, n: usize) -> f64 {
        one_sided(1.0 / (f64::from(resamples) + 1.0), n)
    }
}

/// Returns the p-value if this share of the resamples of `n` values contradicts a statement.
fn one_sided(share: f64, n: usize) -> f64 {
    let z = normal_quantile(share.min(1.0 - 1e-12));
    let tail = 0.5 * student_two_sided(z / widening(n), n as u32 - 1);
    if z < 0.0 { tail } else { 1.0 - tail }
}

/// Returns the minimum and maximum of at least one value.
fn range(values: &[f64]) -> (f64, f64) {
    let fold = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of).unwrap_or(f64::NAN);
    (fold(f64::min), fold(f64::max))
}

/// Returns `ln(a / b)` for each pair.
pub(crate) fn log_ratios(a: &[f64], b: &[f64]) -> Result<Vec<f64>, StatsError> {
    let what = "paired ratio";
    check_pairs(what, a, b, 2)?;
    check_positive(what, a)?;
    check_positive(what, b)?;
    // A difference of logarithms because the quotient could overflow.
    Ok(a.iter().zip(b).map(|(a, b)| a.ln() - b.ln()).collect())
}

fn defined(estimate: f64) -> Result<f64, StatsError> {
    if estimate.is_nan() {
        return Err(StatsError::Undefined { what: "bootstrap" });
    }
    Ok(estimate)
}

/// Draws random indices. An index is the high bits of a product, so the draws depend only on the
/// generator and not on the version of a sampling library.
pub(crate) struct Draws(Xoshiro256PlusPlus);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn index(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    fn fill(&mut self, sample: &mut [f64], values: &[f64]) {
        for slot in sample {
            *slot = values[self.index(values.len())];
        }
    }
}
