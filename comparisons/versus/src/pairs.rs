//! Runs compared block by block: what slows the machine for a block slows both of a pair.
//!
//! A median has a 95 % interval from six blocks on, told in square brackets. Of fewer the ends are
//! the least and the most of what was seen, told in round ones, and nothing is judged by them.

use ioloom_stats::{Interval, Ratio};
use std::collections::BTreeMap;

/// Values of one arm and of another, each with its block, as pairs of the blocks that both have.
pub fn by_block(
    one: impl IntoIterator<Item = (u32, f64)>,
    other: impl IntoIterator<Item = (u32, f64)>,
) -> (Vec<f64>, Vec<f64>) {
    let others: BTreeMap<u32, f64> = other.into_iter().collect();
    one.into_iter().filter_map(|(block, value)| Some((value, *others.get(&block)?))).unzip()
}

/// What the brackets of [`told`] mean, for the head of a summary.
pub const BRACKETS: &str =
    "[a, b] is a 95 % interval, (a to b) least to most of too few blocks for one";

/// A ratio with its two ends.
pub fn told(ratio: Ratio, digits: usize) -> String {
    with_ends(ratio.ratio, [ratio.lo, ratio.hi], ratio.is_sure(), digits)
}

/// A median with its two ends.
pub fn told_median(interval: Interval, digits: usize) -> String {
    with_ends(interval.estimate, [interval.lo, interval.hi], interval.is_sure(), digits)
}

fn with_ends(value: f64, [lo, hi]: [f64; 2], sure: bool, digits: usize) -> String {
    match sure {
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
            told(Ratio::of(&[2.0, 4.0, 3.0, 2.0, 2.0, 3.0][..n], &[1.0; 6][..n], 1).unwrap(), 1)
        };
        assert_eq!(of(3), "3.0 (2.0 to 4.0)");
        assert!(of(5).contains('(') && of(6).contains('['), "{} {}", of(5), of(6));
    }
}
