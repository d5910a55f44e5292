//! How far a p-value of a median relies on symmetry.
//!
//! Signed ranks ([`SignedRank`](crate::SignedRank)) need a third fewer values than the sign test for normal
//! noise, but their p-value belongs to the median only if the values are symmetric about it. With a long
//! upper tail they call a median of zero different: in 48 blocks, in up to a quarter of studies. The sign
//! test assumes no shape. [`SignWeight`] states how much of it a p-value contains, from the values alone:
//!
//! - A tail misleads only in its own direction, so each direction has its weight. It rises with the statistic
//!   of the triples test of symmetry ([`triples_test`]; Randles, Fligner, Policello and Wolfe, 1980),
//!   linearly from 0 at `TAIL_FROM` to 1 at `TAIL_TO` standard errors. The test counts triples of
//!   values whose middle one is nearer to the smallest than to the largest, so a single outlier cannot
//!   hide a tail.
//! - With two groups of values, the median of a sample is in the larger group or, by chance, in the smaller
//!   one, and either direction misleads. Both weights rise with the share of the variance that the best
//!   cut explains ([`TwoRegimes`]), from 0 at the value that one of twenty series of normal noise exceeds
//!   to 1 at `GROUPS_RANGE` above it.
//!
//! The weight of the triples test in a choice between a rank test and a median test follows Bandyopadhyay,
//! Biswas and Dutta (2010). A gradual weight costs less power than a limit, because it acts most where
//! the doubt is greatest: see the tables of `cargo test -p ioloom-stats shape -- --nocapture`.
//!
//! Below [`SHAPE_MIN`] values a shape cannot be seen, and above [`SHAPE_MAX`] small asymmetries mislead, so
//! the sign test has the whole weight in both cases.
//!
//! Cost: `n² log n`.

use crate::series::TwoRegimes;

/// Statistic of the triples test above which the weight of the sign test rises. Half of all symmetric
/// series have a positive one.
const TAIL_FROM: f64 = 0.5;

/// Statistic of the triples test from which the sign test has the whole weight.
const TAIL_TO: f64 = 2.5;

/// Range of the explained share of the variance in which the weight of the sign test rises.
const GROUPS_RANGE: f64 = 0.03;

/// Minimum number of values that show a shape.
pub const SHAPE_MIN: usize = 6;

/// Maximum number of values for a test with signed ranks.
pub const SHAPE_MAX: usize = 120;

/// Weight of the sign test in the p-values of a median, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignWeight {
    /// For a median below the tested value.
    pub below: f64,
    /// For a median above the tested value.
    pub above: f64,
}

impl SignWeight {
    /// Returns the weights for finite values.
    pub fn of(values: &[f64]) -> Self {
        if !(SHAPE_MIN..=SHAPE_MAX).contains(&values.len()) {
            return Self { below: 1.0, above: 1.0 };
        }
        let explained = TwoRegimes::test(values).map_or(1.0, |groups| groups.explained);
        let groups = (explained - groups_from(values.len())) / GROUPS_RANGE;
        let tail = triples_test(values);
        let weight =
            |tail: f64| ((tail - TAIL_FROM) / (TAIL_TO - TAIL_FROM)).max(groups).clamp(0.0, 1.0);
        Self { below: weight(-tail), above: weight(tail) }
    }

    /// Returns the p-value between that of signed ranks and a larger one of the sign test: their geometric
    /// mean with this weight.
    pub(crate) fn between(weight: f64, ranks: f64, sign: f64) -> f64 {
        if weight <= 0.0 || sign <= ranks {
            return ranks;
        }
        (ranks.powf(1.0 - weight) * sign.powf(weight)).max(ranks)
    }
}

/// Returns the share of the variance that the best cut explains in one of twenty series of normal noise,
/// fitted to a simulation of 20,000 series each of 12, 18, 24, 30, 48 and 96 values: 0.842, 0.801, 0.776,
/// 0.762, 0.731 and 0.701.
fn groups_from(n: usize) -> f64 {
    0.62 + 0.77 / (n as f64).sqrt()
}

/// Returns the standardised statistic of the triples test of symmetry: positive for a long upper tail,
/// approximately normal with variance 1 for symmetric values, zero below 3 values.
pub fn triples_test(values: &[f64]) -> f64 {
    let n = values.len();
    if n < 3 {
        return 0.0;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let skew = |i: usize, j: usize, k: usize| (sorted[k] - sorted[j]) - (sorted[j] - sorted[i]);
    // Right minus left triples with each pair, by the rank of the third value. Integers, so that negated
    // values give exactly the opposite.
    let mut of_pairs = Vec::with_capacity(n * (n - 1) / 2);
    let mut of_values = vec![0; n];
    for a in 0..n {
        for b in a + 1..n {
            let outside = net(0..a, |i| skew(i, a, b)) + net(b + 1..n, |k| skew(a, b, k));
            let of_pair = outside - net(a + 1..b, |j| -skew(a, j, b));
            of_pairs.push(of_pair);
            of_values[a] += of_pair;
            of_values[b] += of_pair;
        }
    }
    // Each triple with a value was counted with both pairs of that value.
    of_values.iter_mut().for_each(|of_value| *of_value /= 2);
    standardised(n as f64, &of_values, &of_pairs)
}

/// Returns the number of indices with a positive value minus that with a negative one. The values do not
/// decrease with the index.
fn net(indices: std::ops::Range<usize>, value: impl Fn(usize) -> f64) -> i64 {
    let first = |wanted: &dyn Fn(f64) -> bool| {
        let (mut lo, mut hi) = (indices.start, indices.end);
        while lo < hi {
            let middle = lo.midpoint(hi);
            if wanted(value(middle)) { hi = middle } else { lo = middle + 1 }
        }
        lo as i64
    };
    let negative = first(&|v| v >= 0.0) - indices.start as i64;
    let positive = indices.end.max(indices.start) as i64 - first(&|v| v > 0.0);
    positive - negative
}

/// Divides the mean of the triples by its standard error. Each triple counts a third, as in the paper.
fn standardised(n: f64, of_values: &[i64], of_pairs: &[i64]) -> f64 {
    let all = of_values.iter().sum::<i64>() / 3;
    if all == 0 {
        return 0.0;
    }
    let squares = |counts: &[i64]| counts.iter().map(|c| c * c).sum::<i64>() as f64 / 9.0;
    let triples = n * (n - 1.0) * (n - 2.0) / 6.0;
    let mean = all as f64 / 3.0 / triples;
    let of_one = (n - 1.0) * (n - 2.0) / 2.0;
    let one = squares(of_values) / (n * of_one.powi(2)) - mean.powi(2);
    let two = squares(of_pairs) / (n * (n - 1.0) / 2.0 * (n - 2.0).powi(2)) - mean.powi(2);
    let three = 1.0 / 9.0 - mean.powi(2);
    let sum = 1.5 * (n - 3.0) * (n - 4.0) * one + 3.0 * (n - 3.0) * two + three;
    let variance = sum / triples;
    // Nothing varies if all triples have the same side.
    if variance > 0.0 { mean / variance.sqrt() } else { mean.signum() * f64::INFINITY }
}
