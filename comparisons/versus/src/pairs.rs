//! Runs compared block by block: what slows the machine for a block slows both of a pair.

use ioloom_stats::Ratio;
use std::collections::BTreeMap;

/// Values of one arm and of another, each with its block, as pairs of the blocks that both have.
pub fn by_block(
    one: impl IntoIterator<Item = (u32, f64)>,
    other: impl IntoIterator<Item = (u32, f64)>,
) -> (Vec<f64>, Vec<f64>) {
    let others: BTreeMap<u32, f64> = other.into_iter().collect();
    one.into_iter().filter_map(|(block, value)| Some((value, *others.get(&block)?))).unzip()
}

/// A ratio with its interval of 95 %.
pub fn told(ratio: Ratio, digits: usize) -> String {
    let Ratio { ratio, lo, hi, .. } = ratio;
    format!("{ratio:.digits$} [{lo:.digits$}, {hi:.digits$}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_both_have_are_compared() {
        let (one, other) = by_block([(0, 1.0), (2, 3.0)], [(2, 6.0), (1, 5.0), (0, 4.0)]);
        assert_eq!((one, other), (vec![1.0, 3.0], vec![4.0, 6.0]));
    }
}
