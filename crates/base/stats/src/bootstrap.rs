//! Seeded bootstrap intervals.
//!
//! The sample is drawn again from itself, with replacement, `resamples` times; the spread of the
//! statistic over these samples stands for its spread over repeated studies (Efron, 1979). Two ways
//! from that spread to an interval:
//! - percentile: the `(1 - confidence) / 2` quantiles of either side. Used for every median here:
//!   for a median it comes close to the exact interval between order statistics, and no assumption
//!   about the shape of the distribution enters;
//! - BCa, corrected for bias and acceleration (Efron, "Better bootstrap confidence intervals",
//!   1987): the two quantiles are moved by `z₀` (the share of resamples below the estimate) and `a`
//!   (skewness of the jackknife values). Better for smooth statistics such as means; not for
//!   medians, because the jackknife of a median has only two or three different values.
//!
//! With 8 to 12 values no interval is exact; a seeded test simulates how often these cover the
//! truth, and refuses less than 90 % for the median of a skewed distribution. Resamples for which
//! the statistic is NaN are left out and not counted in [`Interval::resamples`].
//!
//! With fewer than 8 values the percentiles of a resampled median promise what so few cannot hold: of
//! seven values they leave out the least and cover the truth in seven studies of eight. There the ends
//! are the least and the most value. The median of the distribution lies between them unless all `n`
//! values fell on one side of it, so the confidence is `1 - 2^(1-n)`, whatever the distribution: 50 %
//! of two values, 93.75 % of five, 96.9 % of six. Hence below 6 values nothing is a 95 % interval:
//! [`Interval::is_sure`] says so, and whoever prints the ends then says least to most.
//!
//! Cost: one draw for each value of each resample, so 24 000 draws for 12 values and 2000
//! resamples, and the statistic 2000 times; memory is one `f64` per resample.

use crate::StatsError;
use crate::error::{check_finite, check_pairs, check_positive};
use crate::summary::{median_of, quantile_sorted};
use crate::tails::{normal_below, normal_quantile};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Confidence from which two ends may be called an interval.
pub const CONFIDENCE: f64 = 0.95;

/// Fewest values whose median has an interval of that confidence: six, of which least to most hold
/// 96.9 %.
pub const INTERVAL_MIN: usize = 6;

/// Fewer values than this have the least and the most of them as ends.
const RESAMPLED_MIN: usize = 8;

/// Confidence of the least and the most of `n` values around the median of their distribution.
fn range_confidence(n: usize) -> f64 {
    1.0 - 2f64.powi(1 - i32::try_from(n).unwrap_or(i32::MAX))
}

/// How the interval is read off the resamples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntervalKind {
    /// Quantiles of the resampled statistic.
    Percentile,
    /// Bias-corrected and accelerated.
    Bca,
}

/// An estimate with its interval, in the unit of the statistic.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The statistic of the sample itself.
    pub estimate: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
    /// Confidence, 0 to 1: what was asked for, or what so few values can hold.
    pub confidence: f64,
    /// How many resamples the ends rest on; 0 where they are the least and the most value.
    pub resamples: u32,
}

impl Interval {
    /// Whether the ends may be called a 95 % interval; else they are least to most of too few values.
    pub fn is_sure(&self) -> bool {
        self.confidence >= CONFIDENCE
    }

    /// Half of the width.
    pub fn half_width(&self) -> f64 {
        (self.hi - self.lo) / 2.0
    }

    /// Whether `value` lies in the interval, ends included.
    pub fn contains(&self, value: f64) -> bool {
        (self.lo..=self.hi).contains(&value)
    }

    /// The interval with a growing function applied to all three values.
    pub(crate) fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { estimate: f(self.estimate), lo: f(self.lo), hi: f(self.hi), ..self }
    }
}

/// How to resample. The same settings and the same values give the same interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Seed of the resampling.
    pub seed: u64,
    /// Number of resamples, at least 100.
    pub resamples: u32,
    /// Confidence, above 0.5 and below 1.
    pub confidence: f64,
    /// How [`Bootstrap::of`] and [`Bootstrap::of_pairs`] read the interval off the resamples.
    pub kind: IntervalKind,
}

impl Bootstrap {
    /// 2000 resamples, 95 %, percentile.
    pub const fn new(seed: u64) -> Self {
        Self { seed, resamples: 2000, confidence: CONFIDENCE, kind: IntervalKind::Percentile }
    }

    /// The same with another way to read the interval.
    pub const fn with_kind(self, kind: IntervalKind) -> Self {
        Self { kind, ..self }
    }

    /// The same with another number of resamples.
    pub const fn with_resamples(self, resamples: u32) -> Self {
        Self { resamples, ..self }
    }

    /// Interval of any statistic of one sample of at least 2 finite values. Below 6 values it bears
    /// the confidence that a median of as many could have.
    ///
    /// # Errors
    /// Too few values, a value that is not finite, settings out of range, or a statistic that is
    /// NaN for the sample.
    pub fn of(
        &self,
        values: &[f64],
        statistic: impl Fn(&[f64]) -> f64,
    ) -> Result<Interval, StatsError> {
        self.check()?;
        check_finite("bootstrap", values, 2)?;
        let estimate = defined(statistic(values))?;
        let mut draws = Draws::new(self.seed);
        let mut sample = vec![0.0; values.len()];
        let resampled = self.repeat(|| {
            draws.fill(&mut sample, values);
            statistic(&sample)
        });
        let skew = || {
            jackknife_skew(values.len(), |out| {
                let mut rest = values.to_vec();
                rest.remove(out);
                statistic(&rest)
            })
        };
        self.interval(values.len(), estimate, resampled, skew)
    }

    /// Interval of any statistic of pairs, at least 2; a resample draws whole pairs.
    ///
    /// # Errors
    /// As [`Bootstrap::of`], and slices of different lengths.
    pub fn of_pairs(
        &self,
        left: &[f64],
        right: &[f64],
        statistic: impl Fn(&[f64], &[f64]) -> f64,
    ) -> Result<Interval, StatsError> {
        self.check()?;
        check_pairs("bootstrap of pairs", left, right, 2)?;
        let estimate = defined(statistic(left, right))?;
        let mut draws = Draws::new(self.seed);
        let (mut l, mut r) = (vec![0.0; left.len()], vec![0.0; left.len()]);
        let resampled = self.repeat(|| {
            for (x, y) in l.iter_mut().zip(&mut r) {
                let i = draws.index(left.len());
                (*x, *y) = (left[i], right[i]);
            }
            statistic(&l, &r)
        });
        let skew = || {
            jackknife_skew(left.len(), |out| {
                let (mut l, mut r) = (left.to_vec(), right.to_vec());
                l.remove(out);
                r.remove(out);
                statistic(&l, &r)
            })
        };
        self.interval(left.len(), estimate, resampled, skew)
    }

    /// Percentile interval of the median of at least 2 finite values; least to most of fewer than 8.
    ///
    /// # Errors
    /// Too few values, a value that is not finite, or settings out of range.
    pub fn median(&self, values: &[f64]) -> Result<Interval, StatsError> {
        self.check()?;
        check_finite("bootstrap of the median", values, 2)?;
        if values.len() < RESAMPLED_MIN {
            let (lo, hi) = least_to_most(values);
            let estimate = median_of(&mut values.to_vec());
            let confidence = range_confidence(values.len());
            return Ok(Interval { estimate, lo, hi, confidence, resamples: 0 });
        }
        let mut draws = Draws::new(self.seed);
        let mut sample = vec![0.0; values.len()];
        let resampled = self.repeat(|| {
            draws.fill(&mut sample, values);
            median_of(&mut sample)
        });
        Ok(self.percentile(median_of(&mut values.to_vec()), resampled))
    }

    /// Percentile interval of the median of `ln(a / b)`, pair by pair; at least 2 pairs of values
    /// above zero. Its exponential is the interval of the paired ratio.
    ///
    /// # Errors
    /// Different lengths, too few pairs, a value that is not finite and above zero, or settings
    /// out of range.
    pub fn median_log_ratio(&self, a: &[f64], b: &[f64]) -> Result<Interval, StatsError> {
        self.median(&log_ratios(a, b)?)
    }

    /// Percentile interval of `median(a) / median(b)` for two samples that are not paired; each is
    /// resampled on its own. At least 2 values above zero in each. Where one has fewer than 8, the
    /// ends are the least over the most and the most over the least, with the confidence that both
    /// medians lie within their samples.
    ///
    /// # Errors
    /// Too few values, a value that is not finite and above zero, or settings out of range.
    pub fn ratio_of_medians(&self, a: &[f64], b: &[f64]) -> Result<Interval, StatsError> {
        self.check()?;
        let what = "ratio of medians";
        for side in [a, b] {
            check_finite(what, side, 2)?;
            check_positive(what, side)?;
        }
        let estimate = median_of(&mut a.to_vec()) / median_of(&mut b.to_vec());
        if a.len().min(b.len()) < RESAMPLED_MIN {
            let (a_ends, b_ends) = (least_to_most(a), least_to_most(b));
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
        Ok(self.percentile(estimate, resampled))
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

    /// The statistic of every resample, ascending, NaN left out.
    fn repeat(&self, mut once: impl FnMut() -> f64) -> Vec<f64> {
        let mut all: Vec<f64> =
            (0..self.resamples).map(|_| once()).filter(|v| !v.is_nan()).collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    }

    fn interval(
        &self,
        n: usize,
        estimate: f64,
        resampled: Vec<f64>,
        skew: impl FnOnce() -> f64,
    ) -> Result<Interval, StatsError> {
        if resampled.is_empty() {
            return Err(StatsError::Undefined { what: "bootstrap" });
        }
        let interval = match self.kind {
            IntervalKind::Percentile => self.percentile(estimate, resampled),
            IntervalKind::Bca => self.bca(estimate, resampled, skew()),
        };
        Ok(Interval { confidence: self.confidence.min(range_confidence(n)), ..interval })
    }

    fn percentile(&self, estimate: f64, resampled: Vec<f64>) -> Interval {
        let side = (1.0 - self.confidence) / 2.0;
        self.between(estimate, &resampled, side, 1.0 - side)
    }

    fn bca(&self, estimate: f64, resampled: Vec<f64>, skew: f64) -> Interval {
        let total = resampled.len() as f64;
        let below = resampled.iter().filter(|v| **v < estimate).count() as f64;
        let equal = resampled.iter().filter(|v| **v == estimate).count() as f64;
        // Half a resample from either end keeps the shift finite.
        let share = ((below + equal / 2.0) / total).clamp(0.5 / total, 1.0 - 0.5 / total);
        let bias = normal_quantile(share);
        let moved = |p: f64| {
            let z = bias + normal_quantile(p);
            normal_below(bias + z / (1.0 - skew * z))
        };
        let side = (1.0 - self.confidence) / 2.0;
        self.between(estimate, &resampled, moved(side), moved(1.0 - side))
    }

    fn between(&self, estimate: f64, resampled: &[f64], low: f64, high: f64) -> Interval {
        Interval {
            estimate,
            lo: quantile_sorted(resampled, low),
            hi: quantile_sorted(resampled, high),
            confidence: self.confidence,
            resamples: resampled.len() as u32,
        }
    }
}

/// The least and the most of at least one value.
fn least_to_most(values: &[f64]) -> (f64, f64) {
    let fold = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of).unwrap_or(f64::NAN);
    (fold(f64::min), fold(f64::max))
}

/// `ln(a / b)` pair by pair.
pub(crate) fn log_ratios(a: &[f64], b: &[f64]) -> Result<Vec<f64>, StatsError> {
    let what = "paired ratio";
    check_pairs(what, a, b, 2)?;
    check_positive(what, a)?;
    check_positive(what, b)?;
    // A difference of logarithms, since the quotient itself could overflow.
    Ok(a.iter().zip(b).map(|(a, b)| a.ln() - b.ln()).collect())
}

fn defined(estimate: f64) -> Result<f64, StatsError> {
    if estimate.is_nan() {
        return Err(StatsError::Undefined { what: "bootstrap" });
    }
    Ok(estimate)
}

/// `Σ d³ / (6 (Σ d²)^1.5)` with `d` the mean of the leave-one-out values minus each of them; zero
/// if they do not vary or are not defined.
fn jackknife_skew(n: usize, without: impl Fn(usize) -> f64) -> f64 {
    let left_out: Vec<f64> = (0..n).map(without).collect();
    let centre = crate::summary::mean(&left_out);
    let squares: f64 = left_out.iter().map(|v| (centre - v).powi(2)).sum();
    let cubes: f64 = left_out.iter().map(|v| (centre - v).powi(3)).sum();
    let skew = cubes / (6.0 * squares.powf(1.5));
    if skew.is_finite() { skew } else { 0.0 }
}

/// The random draws. The index is taken from the high bits of a product, so that the order of
/// draws depends on the generator alone and not on the version of a sampling library.
struct Draws(Xoshiro256PlusPlus);

impl Draws {
    fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    fn index(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    fn fill(&mut self, sample: &mut [f64], values: &[f64]) {
        for slot in sample {
            *slot = values[self.index(values.len())];
        }
    }
}
