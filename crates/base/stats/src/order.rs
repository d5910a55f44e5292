//! Exact intervals of a median between two order statistics.
//!
//! A value is below the median of its distribution with probability one half, so the number of
//! values below it is binomial. The median is between the `k`-th smallest and the `k`-th largest of
//! `n` values with probability `1 - 2 P(Bin(n, 1/2) < k)`, for any continuous distribution, skewed
//! or not (Thompson, 1936). The interval uses the largest `k` that reaches the requested confidence
//! and reports the confidence that this `k` has: 96.9 % for six values (their range), 96.1 % for
//! twelve (third smallest to third largest). A bootstrap of the same median has only 92 % to 94 %
//! for 8 to 20 values.
//!
//! Below six values even the range has less than 95 %; [`Interval::reaches_confidence`] is then
//! false, and reports call the bounds a range.
//!
//! Cost: one sort.

use crate::StatsError;
use crate::error::check_finite;
use crate::interval::Interval;
use crate::summary::median_of;

/// Computes the interval of the median of at least 2 finite values.
///
/// # Errors
/// Fails if there are too few values or a value is not finite.
pub fn median_interval(values: &[f64], confidence: f64) -> Result<Interval, StatsError> {
    check_finite("interval of the median", values, 2)?;
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len();
    let (rank, reached) = rank(n, confidence);
    Ok(Interval {
        estimate: median_of(&mut sorted.clone()),
        lo: sorted[rank - 1],
        hi: sorted[n - rank],
        confidence: reached,
        resamples: 0,
    })
}

/// Returns the one-sided p-values of the sign test of a median below and above `shift`, the test that
/// belongs to [`median_interval`]: an interval of confidence `1 - 2 p` or more excludes the shift. Values
/// equal to the shift count against both sides.
pub fn sign_test(values: &[f64], shift: f64) -> (f64, f64) {
    let n = values.len();
    let p = |beyond: usize| tail(n, n - beyond + 1).min(1.0);
    let below = values.iter().filter(|v| **v < shift).count();
    let above = values.iter().filter(|v| **v > shift).count();
    (p(below), p(above))
}

/// Returns the rank of the lower bound, from 1, and the confidence of that interval.
fn rank(n: usize, confidence: f64) -> (usize, f64) {
    let mut rank = 1;
    let mut outside = tail(n, 1);
    while 2 * (rank + 1) <= n {
        let more = tail(n, rank + 1);
        if 1.0 - 2.0 * more < confidence {
            break;
        }
        rank += 1;
        outside = more;
    }
    (rank, 1.0 - 2.0 * outside)
}

/// Returns the probability that fewer than `k` of `n` fair coins show heads.
fn tail(n: usize, k: usize) -> f64 {
    let mut log = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for i in 0..k {
        sum += log.exp();
        log += ((n - i) as f64).ln() - ((i + 1) as f64).ln();
    }
    sum
}
