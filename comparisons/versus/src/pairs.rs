//! Block-by-block comparison of runs: disturbances during a block affect both runs of a pair.
//!
//! With six or more blocks, a median has a 95 % interval, printed in square brackets. With fewer,
//! parentheses contain the range, which is not used for verdicts.

use ioloom_stats::{Interval, Ratio, median};
use std::collections::BTreeMap;

/// Pairs the values of two arms over their common blocks.
pub fn by_block(
    one: impl IntoIterator<Item = (u32, f64)>,
    other: impl IntoIterator<Item = (u32, f64)>,
) -> (Vec<f64>, Vec<f64>) {
    let others: BTreeMap<u32, f64> = other.into_iter().collect();
    one.into_iter().filter_map(|(block, value)| Some((value, *others.get(&block)?))).unzip()
}

/// Meaning of the brackets in [`ratio_text`], for the head of a summary.
pub const BRACKETS: &str =
    "[a, b] is a 95 % interval, (a to b) the range of too few blocks for one";

/// Median and range of a sample.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// Minimum.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Maximum.
    pub max: f64,
}

impl Spread {
    /// Summarises values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        Some(Self { min, median: median(values), max })
    }
}

/// Formats a ratio with its two ends.
pub fn ratio_text(ratio: Ratio, digits: usize) -> String {
    with_ends(ratio.ratio, [ratio.lo, ratio.hi], ratio.reaches_confidence(), digits)
}

/// Formats a median with its two ends.
pub fn median_text(interval: Interval, digits: usize) -> String {
    with_ends(interval.estimate, [interval.lo, interval.hi], interval.reaches_confidence(), digits)
}

fn with_ends(value: f64, [lo, hi]: [f64; 2], is_interval: bool, digits: usize) -> String {
    match is_interval {
        true => format!("{value:.digits$} [{lo:.digits$}, {hi:.digits$}]"),
        false => format!("{value:.digits$} ({lo:.digits$} to {hi:.digits$})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_both_have_are_compared() {
        let (one, other) = by_block([(0, 1.0), (2, 3.0)], [(2, 6.0), (1, 5.0), (0, 4.0)]);
        assert_eq!((one, other), (vec![1.0, 3.0], vec![4.0, 6.0]));
    }
    #[test]
    fn fewer_than_six_blocks_are_no_interval() {
        let of = |n: usize| {
            ratio_text(Ratio::of(&[2.0, 4.0, 3.0, 2.0, 2.0, 3.0][..n], &[1.0; 6][..n]).unwrap(), 1)
        };
        assert_eq!(of(3), "3.0 (2.0 to 4.0)");
        assert!(of(5).contains('(') && of(6).contains('['), "{} {}", of(5), of(6));
    }
}
