//! Statistics of one sample.
//!
//! Quantiles are type 7 of Hyndman and Fan ("Sample quantiles in statistical packages", 1996): the
//! value at position `(n - 1) q` of the sorted sample, counted from 0, with linear interpolation.
//! This is the default in NumPy, R and spreadsheets, so readers can check a number. The median is
//! the quantile for `q = 0.5`. `mad` is the plain median of absolute deviations from the median;
//! multiplied by [`MAD_TO_SD`] it estimates the standard deviation of a normal sample and is robust
//! to outliers (Hampel, 1974). `trimmed_mean` drops `floor(share n)` values at each end.
//!
//! Cost: a quantile sorts a copy of the sample; a median selects in linear time.

/// Factor from the median absolute deviation to the standard deviation of a normal sample,
/// `1 / Φ⁻¹(3/4)`.
pub const MAD_TO_SD: f64 = 1.482_602_218_505_602;

/// Returns the arithmetic mean; NaN if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Returns the median: for an even number of values, the mean of the two middle ones. NaN if there
/// are no values or any is NaN.
pub fn median(values: &[f64]) -> f64 {
    median_of(&mut values.to_vec())
}

/// Returns the median of a buffer and reorders it. The bootstrap calls this thousands of times.
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
    // Halved before adding, so two large values do not overflow.
    lower * 0.5 + *upper * 0.5
}

/// Returns the unscaled median of absolute deviations from the median; NaN if there are no values.
pub fn mad(values: &[f64]) -> f64 {
    let centre = median(values);
    let mut away: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    median_of(&mut away)
}

/// Returns quantile `q` of type 7. NaN if there are no values, any is NaN, or `q` is outside 0 to
/// 1.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    if values.iter().any(|v| v.is_nan()) {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile_sorted(&sorted, q)
}

/// Returns a quantile of an ascending sample.
pub(crate) fn quantile_sorted(sorted: &[f64], q: f64) -> f64 {
    if sorted.is_empty() || !(0.0..=1.0).contains(&q) {
        return f64::NAN;
    }
    let position = (sorted.len() - 1) as f64 * q;
    let below = position.floor() as usize;
    let part = position - below as f64;
    let low = sorted[below];
    match sorted.get(below + 1) {
        // Clamped because rounding can push the weighted sum past its neighbours.
        Some(high) if part > 0.0 => (low * (1.0 - part) + high * part).clamp(low, *high),
        _ => low,
    }
}

/// Returns the mean without the `floor(share n)` smallest and equally many largest values. NaN if
/// there are no values or `share` is negative or at least 0.5.
pub fn trimmed_mean(values: &[f64], share: f64) -> f64 {
    if !(0.0..0.5).contains(&share) {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let cut = (share * sorted.len() as f64).floor() as usize;
    mean(&sorted[cut..sorted.len() - cut])
}

/// Returns mid-ranks from 1: equal values get the mean of their ranks.
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
