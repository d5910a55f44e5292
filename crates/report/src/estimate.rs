//! A sample with its median and interval, and ratios of two samples: thin names over `ioloom-stats`
//! that also keep the raw values, because every mark of a chart shows them.

use ioloom_stats::{Bootstrap, Interval, Ratio as Paired, median};

/// Values of one arm with their median.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The raw values, in the order of blocks.
    pub values: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// 95 % bootstrap interval of the median; `None` for fewer than two values.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// The estimate of a sample; `None` without values or with one that is not finite.
    pub fn of(values: Vec<f64>, seed: u64) -> Option<Self> {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let interval = Bootstrap::new(seed).median(&values).ok().map(|i| (i.lo, i.hi));
        Some(Self { median: median(&values), interval, values })
    }

    /// The ends of the interval, or the median twice where there is none.
    pub fn ends(&self) -> (f64, f64) {
        self.interval.unwrap_or((self.median, self.median))
    }
}

/// How often as much one sample is as another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Pairs of blocks, or the smaller sample where nothing was paired.
    pub n: usize,
    /// Whether the values came in pairs from the same blocks.
    pub paired: bool,
}

impl Ratio {
    /// Ratio of `a` to `b` over the blocks that both have; values are `(block, value)`.
    pub fn paired(a: &[(u32, f64)], b: &[(u32, f64)], seed: u64) -> Option<Self> {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (block, value) in a {
            if let Some((_, other)) = b.iter().find(|(k, _)| k == block) {
                left.push(*value);
                right.push(*other);
            }
        }
        let ratio = Paired::of(&left, &right, seed).ok()?;
        Some(Self { value: ratio.ratio, low: ratio.lo, high: ratio.hi, n: ratio.n, paired: true })
    }

    /// Ratio of the medians of two samples that were not taken together.
    pub fn unpaired(a: &[f64], b: &[f64], seed: u64) -> Option<Self> {
        let Interval { estimate, lo, hi, .. } = Bootstrap::new(seed).ratio_of_medians(a, b).ok()?;
        Some(Self { value: estimate, low: lo, high: hi, n: a.len().min(b.len()), paired: false })
    }

    /// Whether the interval leaves out 1.
    pub fn is_clear(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_value_has_no_interval() {
        let one = Estimate::of(vec![5.0], 1).unwrap();
        assert_eq!((one.median, one.interval), (5.0, None));
        assert_eq!(Estimate::of(vec![], 1), None);
        assert_eq!(Estimate::of(vec![f64::NAN], 1), None);
    }

    #[test]
    fn pairs_are_made_by_block() {
        let a = [(0, 2.0), (1, 4.0), (2, 8.0), (9, 1000.0)];
        let b = [(2, 4.0), (1, 2.0), (0, 1.0)];
        let ratio = Ratio::paired(&a, &b, 7).unwrap();
        assert_eq!(ratio.n, 3);
        for value in [ratio.value, ratio.low, ratio.high] {
            assert!((value - 2.0).abs() < 1e-9, "{ratio:?}");
        }
        assert!(ratio.is_clear());
        assert_eq!(Ratio::paired(&a, &[(5, 1.0)], 7), None);
    }
}
