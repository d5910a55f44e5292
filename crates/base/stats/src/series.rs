//! Tests of a series of values in measurement order.
//!
//! A study compares blocks as if they were independent draws. These tests detect four ways in which
//! real machines violate this assumption. Each returns a small struct with `found` and the
//! evidence. `found` only rules out chance, so the evidence also includes the effect size as a
//! share of the median, and the caller decides which size matters. All tests use a 5 % level. On
//! white noise each has a false-alarm rate of at most 7 %, which a seeded test checks.
//!
//! - [`Drift::test`]: Mann (1945) and Kendall. `S = Σ sign(x_j - x_i)` over all `i < j`. Without
//!   ties and up to `EXACT_MAX` values the p-value is exact, from the distribution of inversions.
//!   Otherwise it is normal, with the variance corrected for ties and a continuity correction.
//! - [`Alternation::test`]: too many runs above and below the median (Wald and Wolfowitz, 1940),
//!   exact and one-sided. Lag-1 autocorrelation and turning points (Bienaymé) are evidence only; a
//!   second test for them would double the false alarms.
//! - [`FirstRun::test`]: the first value compared with the others. It must be outside their range
//!   and farther from their median than `3 + 10 / (n - 2)` scaled median absolute deviations. With
//!   few values the deviation itself is uncertain, hence the second term, which was found by
//!   simulation.
//! - [`TwoRegimes::test`]: the best cut of the sorted values into two groups (Otsu, 1979) with at
//!   least a fifth of the values in each. The share of variance that the cut explains is compared
//!   with the share for a uniform distribution, the unimodal distribution that looks most like two
//!   groups (as in Hartigan's dip test, 1985): 3/4 for many values, and below
//!   `3/4 + 1 / (2 sqrt n)` in 95 of 100 samples of `n` values. Simulation gave that form for 6 to
//!   500 values.
//!
//! Cost: quadratic in the number of values for drift, sorting for the others.

use crate::StatsError;
use crate::error::check_finite;
use crate::linear::theil_sen;
use crate::summary::{MAD_TO_SD, mad, mean, median};
use crate::tails::normal_two_sided;
use serde::{Deserialize, Serialize};

/// Probability below which chance is ruled out.
const LEVEL: f64 = 0.05;

/// Maximum number of values for the exact distribution of the drift test.
const EXACT_MAX: usize = 60;

/// Result of the trend test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// There is a trend that chance does not explain.
    pub found: bool,
    /// Kendall's tau-b between order and value, -1 (always falling) to 1; zero for constant values.
    pub tau: f64,
    /// Two-sided probability of such a trend by chance.
    pub p: f64,
    /// Change from first to last value according to the median slope, as a share of the median;
    /// zero if the median is zero.
    pub change: f64,
    /// Number of values.
    pub n: usize,
}

impl Drift {
    /// Tests at least 3 finite values in run order.
    ///
    /// # Errors
    /// Fails if there are too few values or a value is not finite.
    pub fn test(values: &[f64]) -> Result<Self, StatsError> {
        check_finite("drift", values, 3)?;
        let n = values.len();
        let mut score = 0_i64;
        for (i, early) in values.iter().enumerate() {
            for late in &values[i + 1..] {
                score += i64::from(late > early) - i64::from(late < early);
            }
        }
        let ties = tie_sizes(values);
        let pairs = (n * (n - 1) / 2) as f64;
        let tied: f64 = ties.iter().map(|t| t * (t - 1.0) / 2.0).sum();
        let p = if ties.is_empty() && n <= EXACT_MAX {
            kendall_exact(n, score)
        } else {
            kendall_normal(n, score, &ties)
        };
        let order: Vec<f64> = (0..n).map(|i| i as f64).collect();
        let total = theil_sen(&order, values)? * (n - 1) as f64;
        let untied = pairs - tied;
        Ok(Self {
            found: p < LEVEL,
            tau: if untied > 0.0 { score as f64 / (untied * pairs).sqrt() } else { 0.0 },
            p,
            change: share(total, median(values)),
            n,
        })
    }
}

/// Result of the test for alternation between high and low values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alternation {
    /// There are more side changes than chance explains.
    pub found: bool,
    /// Number of runs of consecutive values on the same side of the median.
    pub runs: usize,
    /// Number of runs expected by chance.
    pub runs_expected: f64,
    /// Probability of at least as many runs by chance.
    pub p: f64,
    /// Lag-1 autocorrelation, -1 to 1; near -1 for strict alternation.
    pub lag1: f64,
    /// Number of values higher or lower than both neighbours.
    pub turning_points: usize,
    /// Number of turning points expected by chance, `2 (n - 2) / 3`.
    pub turning_points_expected: f64,
    /// Difference between the means of the upper and lower values, as a share of the median.
    pub change: f64,
}

impl Alternation {
    /// Tests at least 4 finite values in run order.
    ///
    /// # Errors
    /// Fails if there are too few values or a value is not finite.
    pub fn test(values: &[f64]) -> Result<Self, StatsError> {
        check_finite("alternation", values, 4)?;
        let centre = median(values);
        // A value at the median counts as upper. Omitting it would merge its neighbours into one
        // run.
        let upper: Vec<bool> = values.iter().map(|v| *v >= centre).collect();
        let high = upper.iter().filter(|u| **u).count();
        let low = upper.len() - high;
        let runs = 1 + upper.windows(2).filter(|w| w[0] != w[1]).count();
        let p = if low == 0 { 1.0 } else { runs_at_least(runs, high, low) };
        let side = |wanted: bool| {
            let picked: Vec<f64> =
                values.iter().zip(&upper).filter(|(_, u)| **u == wanted).map(|(v, _)| *v).collect();
            mean(&picked)
        };
        let turning = |w: &[f64]| (w[1] - w[0]) * (w[2] - w[1]) < 0.0;
        Ok(Self {
            found: p < LEVEL,
            runs,
            runs_expected: 1.0 + 2.0 * high as f64 * low as f64 / values.len() as f64,
            p,
            lag1: lag1(values),
            turning_points: values.windows(3).filter(|w| turning(w)).count(),
            turning_points_expected: 2.0 * (values.len() - 2) as f64 / 3.0,
            change: if low == 0 { 0.0 } else { share(side(true) - side(false), centre) },
        })
    }
}

/// Result of the test for a different first value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FirstRun {
    /// The first value is outside the range of the rest and beyond the threshold.
    pub found: bool,
    /// Distance of the first value from the median of the rest, in scaled median absolute
    /// deviations of the rest. Very large but finite if the rest does not vary.
    pub distance: f64,
    /// Distance required for this number of values.
    pub threshold: f64,
    /// First value divided by the median of the rest, minus 1; zero if that median is zero.
    pub change: f64,
}

impl FirstRun {
    /// Tests at least 5 finite values in run order.
    ///
    /// # Errors
    /// Fails if there are too few values or a value is not finite.
    pub fn test(values: &[f64]) -> Result<Self, StatsError> {
        check_finite("first run", values, 5)?;
        let (first, rest) = (values[0], &values[1..]);
        let centre = median(rest);
        let spread = MAD_TO_SD * mad(rest);
        let away = (first - centre).abs();
        let distance = if away == 0.0 { 0.0 } else { (away / spread).min(f64::MAX) };
        let threshold = 3.0 + 10.0 / (values.len() - 2) as f64;
        let outside = rest.iter().all(|v| first > *v) || rest.iter().all(|v| first < *v);
        let apart = outside && !same(&[first, centre]);
        Ok(Self {
            found: apart && distance > threshold,
            distance,
            threshold,
            change: share(first - centre, centre),
        })
    }
}

/// Result of the test for two groups of values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TwoRegimes {
    /// The best cut explains more variance than for a uniform distribution.
    pub found: bool,
    /// Share of the variance explained by the best cut, 0 to 1.
    pub explained: f64,
    /// Share required for this number of values.
    pub threshold: f64,
    /// Boundary between the groups: the middle of the gap.
    pub cut: f64,
    /// Median of the lower group.
    pub low: f64,
    /// Median of the upper group.
    pub high: f64,
    /// Share of the values in the lower group.
    pub low_share: f64,
    /// Difference of the two medians as a share of the lower one; zero if the lower one is zero.
    pub change: f64,
}

impl TwoRegimes {
    /// Minimum share of the values in a group, so that a single outlier does not count as one.
    const SHARE_MIN: f64 = 0.2;

    /// Tests at least 6 finite values in any order.
    ///
    /// # Errors
    /// Fails if there are too few values or a value is not finite.
    pub fn test(values: &[f64]) -> Result<Self, StatsError> {
        check_finite("two regimes", values, 6)?;
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len();
        let centre = mean(&sorted);
        let total: f64 = sorted.iter().map(|v| (v - centre).powi(2)).sum();
        let smallest = ((Self::SHARE_MIN * n as f64).ceil() as usize).max(2);
        let mut sum: f64 = sorted[..smallest - 1].iter().map(|v| v - centre).sum();
        let (mut best, mut between) = (smallest, f64::NEG_INFINITY);
        for size in smallest..=n - smallest {
            // Sums are relative to the mean, so the sums of the two groups are opposite and the
            // variance between groups is sum² n / (size (n - size)).
            sum += sorted[size - 1] - centre;
            let here = sum * sum * n as f64 / (size as f64 * (n - size) as f64);
            if here > between {
                (best, between) = (size, here);
            }
        }
        // Equal values differ from their mean by rounding, which a cut would seem to explain.
        let varies = total > 0.0 && !same(&sorted);
        let explained = if varies { (between / total).clamp(0.0, 1.0) } else { 0.0 };
        let threshold = 0.75 + 0.5 / (n as f64).sqrt();
        let (low, high) = (median(&sorted[..best]), median(&sorted[best..]));
        Ok(Self {
            found: explained > threshold,
            explained,
            threshold,
            cut: sorted[best - 1] * 0.5 + sorted[best] * 0.5,
            low,
            high,
            low_share: best as f64 / n as f64,
            change: share(high - low, low),
        })
    }
}

/// Relative rounding error allowed for arithmetic.
const ROUNDING: f64 = 1e-12;

/// Reports whether values differ at most by rounding.
fn same(values: &[f64]) -> bool {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most - least <= ROUNDING * most.abs().max(least.abs())
}

/// Returns the sizes of groups of at least two equal values.
fn tie_sizes(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(|g| g.len() as f64).filter(|t| *t > 1.0).collect()
}

/// Returns the exact two-sided p-value of Kendall's score without ties. `S = pairs - 2 inversions`,
/// and the number of inversions of `n` values is a sum of independent uniform numbers from 0 to `i
/// - 1`.
fn kendall_exact(n: usize, score: i64) -> f64 {
    let pairs = n * (n - 1) / 2;
    let mut chance = vec![0.0; pairs + 1];
    chance[0] = 1.0;
    for i in 2..=n {
        // The mean over a sliding window of i entries of the previous distribution.
        let old = chance.clone();
        let mut window = 0.0;
        for k in 0..=pairs {
            window += old[k];
            if k >= i {
                window -= old[k - i];
            }
            chance[k] = window / i as f64;
        }
    }
    let inversions = (pairs as i64 - score.abs()) / 2;
    let tail: f64 = chance[..=inversions as usize].iter().sum();
    (2.0 * tail).min(1.0)
}

fn kendall_normal(n: usize, score: i64, ties: &[f64]) -> f64 {
    let term = |t: f64| t * (t - 1.0) * (2.0 * t + 5.0);
    let variance = (term(n as f64) - ties.iter().map(|t| term(*t)).sum::<f64>()) / 18.0;
    if variance <= 0.0 || score == 0 {
        return 1.0;
    }
    normal_two_sided((score.abs() - 1) as f64 / variance.sqrt())
}

/// Returns the probability of at least `runs` runs in a random order of `high` and `low` symbols.
fn runs_at_least(runs: usize, high: usize, low: usize) -> f64 {
    let logs = LogFactorials::up_to(high + low);
    let all = logs.choose(high + low, high);
    let chance = |runs: usize| {
        let k = runs / 2;
        let ways =
            |h: usize, l: usize| (logs.choose(high - 1, h) + logs.choose(low - 1, l) - all).exp();
        if runs.is_multiple_of(2) {
            2.0 * ways(k - 1, k - 1)
        } else {
            ways(k, k - 1) + ways(k - 1, k)
        }
    };
    (runs.max(2)..=high + low).map(chance).sum::<f64>().min(1.0)
}

/// Logarithms of factorials.
struct LogFactorials(Vec<f64>);

impl LogFactorials {
    fn up_to(n: usize) -> Self {
        let mut logs = vec![0.0; n + 1];
        for i in 2..=n {
            logs[i] = logs[i - 1] + (i as f64).ln();
        }
        Self(logs)
    }

    /// Returns the logarithm of `n` choose `k`; minus infinity if `k` exceeds `n`.
    fn choose(&self, n: usize, k: usize) -> f64 {
        if k > n { f64::NEG_INFINITY } else { self.0[n] - self.0[k] - self.0[n - k] }
    }
}

fn lag1(values: &[f64]) -> f64 {
    let centre = mean(values);
    let total: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    let neighbours: f64 = values.windows(2).map(|w| (w[0] - centre) * (w[1] - centre)).sum();
    if total > 0.0 && !same(values) { neighbours / total } else { 0.0 }
}

/// Returns `part / whole`, or zero if the whole is zero because evidence must be finite.
fn share(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}
