//! Summaries of one sample.
//!
//! Quantiles are type 7 of Hyndman and Fan ("Sample quantiles in statistical packages", 1996): the
//! value at position `(n - 1) q` of the sorted sample, counted from 0, with linear interpolation.
//! It is what NumPy, R and spreadsheets do unless told otherwise, so that a reader can check a
//! number with the tool at hand; the median is its `q = 0.5`.
//! `sd` divides by `n - 1`. `mad` is the plain median of absolute deviations from the median;
//! multiplied by [`MAD_TO_SD`] it estimates the standard deviation of a normal sample and does not
//! follow outliers (Hampel, 1974). `trimmed_mean` cuts `floor(share n)` values from each end.
//!
//! Cost: a summary copies and sorts the sample once; a median selects in linear time.

use crate::StatsError;
use crate::error::check_finite;
use serde::{Deserialize, Serialize};

/// Factor from the median absolute deviation to the standard deviation of a normal sample,
/// `1 / Φ⁻¹(3/4)`.
pub const MAD_TO_SD: f64 = 1.482_602_218_505_602;

/// What one sample looks like, in the unit of its values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many values.
    pub n: usize,
    /// Smallest.
    pub min: f64,
    /// First quartile, type 7.
    pub quartile_low: f64,
    /// Median.
    pub median: f64,
    /// Third quartile, type 7.
    pub quartile_high: f64,
    /// Largest.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (`n - 1`); zero for a single value.
    pub sd: f64,
    /// Median absolute deviation from the median, not scaled.
    pub mad: f64,
}

impl Summary {
    /// Summarises at least one finite value.
    ///
    /// # Errors
    /// No value, or one that is NaN or infinite.
    pub fn of(values: &[f64]) -> Result<Self, StatsError> {
        check_finite("summary", values, 1)?;
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Ok(Self {
            n: sorted.len(),
            min: sorted[0],
            quartile_low: quantile_sorted(&sorted, 0.25),
            median: quantile_sorted(&sorted, 0.5),
            quartile_high: quantile_sorted(&sorted, 0.75),
            max: sorted[sorted.len() - 1],
            mean: mean(&sorted),
            sd: if sorted.len() == 1 { 0.0 } else { sd(&sorted) },
            mad: mad(&sorted),
        })
    }

    /// Standard deviation over mean; NaN where the mean is zero.
    pub fn coefficient_of_variation(&self) -> f64 {
        ratio_or_nan(self.sd, self.mean)
    }
}

/// Sum over count; NaN without values.
pub fn mean(values: &[f64]) -> f64 {
    ratio_or_nan(values.iter().sum(), values.len() as f64)
}

/// Standard deviation with `n - 1`; NaN for fewer than two values.
pub fn sd(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return f64::NAN;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Standard deviation over mean; NaN for fewer than two values or a mean of zero.
pub fn coefficient_of_variation(values: &[f64]) -> f64 {
    ratio_or_nan(sd(values), mean(values))
}

/// Median; the mean of the two middle values of an even sample. NaN without values or with a NaN.
pub fn median(values: &[f64]) -> f64 {
    median_of(&mut values.to_vec())
}

/// Median of a buffer that may be reordered: what the bootstrap calls thousands of times.
pub(crate) fn median_of(values: &mut [f64]) -> f64 {
    if values.is_empty() || values.iter().any(|v| v.is_nan()) {
        return f64::NAN;
    }
    let middle = values.len() / 2;
    let odd = values.len() % 2 == 1;
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if odd {
        return *upper;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Halves before the sum: two large values must not overflow.
    lower * 0.5 + *upper * 0.5
}

/// Median of absolute deviations from the median, not scaled; NaN without values.
pub fn mad(values: &[f64]) -> f64 {
    let centre = median(values);
    let mut away: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    median_of(&mut away)
}

/// Quantile `q`, 0 to 1, type 7. NaN without values, with a NaN, or for a `q` outside 0 to 1.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    if values.iter().any(|v| v.is_nan()) {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile_sorted(&sorted, q)
}

/// Quantile of an ascending sample.
pub(crate) fn quantile_sorted(sorted: &[f64], q: f64) -> f64 {
    if sorted.is_empty() || !(0.0..=1.0).contains(&q) {
        return f64::NAN;
    }
    let position = (sorted.len() - 1) as f64 * q;
    let below = position.floor() as usize;
    let part = position - below as f64;
    let low = sorted[below];
    match sorted.get(below + 1) {
        // The weights may add up to one rounding more than 1; the result stays between.
        Some(high) if part > 0.0 => (low * (1.0 - part) + high * part).clamp(low, *high),
        _ => low,
    }
}

/// Mean without the `floor(share n)` smallest and as many largest values; `share` is cut from
/// each end and lies in 0 to below 0.5. NaN without values or for another share.
pub fn trimmed_mean(values: &[f64], share: f64) -> f64 {
    if !(0.0..0.5).contains(&share) {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let cut = (share * sorted.len() as f64).floor() as usize;
    mean(&sorted[cut..sorted.len() - cut])
}

/// Mid-ranks from 1: equal values share the mean of their places.
pub(crate) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let tied =
            order[start..].iter().take_while(|&&i| values[i] == values[order[start]]).count();
        let rank = start as f64 + (tied as f64 + 1.0) / 2.0;
        for &i in &order[start..start + tied] {
            ranks[i] = rank;
        }
        start += tied;
    }
    ranks
}

fn ratio_or_nan(top: f64, bottom: f64) -> f64 {
    if bottom == 0.0 { f64::NAN } else { top / bottom }
}
