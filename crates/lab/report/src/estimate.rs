//! Samples with median and interval, and ratios of two samples. These types wrap `ioloom-stats` and
//! retain the raw values, which every chart mark shows.
//!
//! Each has two ends. For six or more values, they are a 95 % interval, shown in square brackets;
//! for fewer, they are the minimum and maximum, shown in parentheses. The descriptions come from
//! [`ends_words`] and [`RANGE_NOTE`], which keeps the page, tables and terminal consistent.

use ioloom_stats::{Bootstrap, CONFIDENCE, Interval, Ratio as Paired, median};

/// The meaning of parentheses, for texts that contain them.
pub const RANGE_NOTE: &str =
    "Parentheses: minimum to maximum, because there are too few values for a 95\u{A0}% interval.";

/// The two ends of a median or a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ends {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Coverage probability of the ends, 0 to 1.
    pub confidence: f64,
}

impl Ends {
    /// Returns the ends of a 95 % interval.
    pub const fn interval(low: f64, high: f64) -> Self {
        Self { low, high, confidence: CONFIDENCE }
    }

    /// Returns the ends of the inverse of a ratio.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self { low: 1.0 / self.high, high: 1.0 / self.low, ..self }
    }

    /// Returns whether they are a 95 % interval rather than the minimum and maximum of too few
    /// values.
    pub fn is_interval(&self) -> bool {
        self.confidence >= CONFIDENCE
    }
}

/// Returns the meaning of the ends in a chart or a table: `95 % interval`, minimum to maximum, both, or
/// none.
pub fn ends_words(all: impl IntoIterator<Item = Ends>) -> &'static str {
    let (mut intervals, mut ranges) = (false, false);
    for ends in all {
        intervals |= ends.is_interval();
        ranges |= !ends.is_interval();
    }
    match (intervals, ranges) {
        (false, false) => "no interval (one value each)",
        (true, false) => "95\u{A0}% interval",
        (false, true) => "minimum to maximum (too few values for a 95\u{A0}% interval)",
        (true, true) => "95\u{A0}% interval, or minimum to maximum of too few values",
    }
}

/// The values of one arm with their median.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The raw values, in the order of blocks.
    pub values: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// Ends of the median's interval, or minimum and maximum; `None` for fewer than two
    /// values.
    pub ends: Option<Ends>,
}

impl Estimate {
    /// Returns the estimate of a sample; `None` if it is empty or contains a value that is not
    /// finite.
    pub fn of(values: Vec<f64>, seed: u64) -> Option<Self> {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let ends = Bootstrap::new(seed).median(&values).ok().map(|i| Ends {
            low: i.lo,
            high: i.hi,
            confidence: i.confidence,
        });
        Some(Self { median: median(&values), ends, values })
    }

    /// Returns its range: its ends, or the median twice if there are none.
    pub fn reach(&self) -> (f64, f64) {
        self.ends.map_or((self.median, self.median), |e| (e.low, e.high))
    }
}

/// The ratio of two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// The ends of its interval, or the minimum and maximum of too few blocks.
    pub ends: Ends,
    /// Number of paired blocks, or the size of the smaller sample if it is not paired.
    pub n: usize,
    /// Whether the values are paired by block.
    pub paired: bool,
}

impl Ratio {
    /// Returns the ratio of `a` to `b` over their common blocks; values are `(block, value)`.
    pub fn paired(a: &[(u32, f64)], b: &[(u32, f64)]) -> Option<Self> {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (block, value) in a {
            if let Some((_, other)) = b.iter().find(|(k, _)| k == block) {
                left.push(*value);
                right.push(*other);
            }
        }
        let ratio = Paired::of(&left, &right).ok()?;
        let ends = Ends { low: ratio.lo, high: ratio.hi, confidence: ratio.confidence };
        Some(Self { value: ratio.ratio, ends, n: ratio.n, paired: true })
    }

    /// Returns the ratio of the medians of two samples that are not paired.
    pub fn unpaired(a: &[f64], b: &[f64], seed: u64) -> Option<Self> {
        let Interval { estimate, lo, hi, confidence, .. } =
            Bootstrap::new(seed).ratio_of_medians(a, b).ok()?;
        let ends = Ends { low: lo, high: hi, confidence };
        Some(Self { value: estimate, ends, n: a.len().min(b.len()), paired: false })
    }

    /// Returns whether it has an interval that excludes 1.
    pub fn is_clear(&self) -> bool {
        self.ends.is_interval() && (self.ends.low > 1.0 || self.ends.high < 1.0)
    }

    /// Returns whether it is clear and above 1.
    pub fn is_gain(&self) -> bool {
        self.is_clear() && self.ends.low > 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_value_has_no_interval() {
        let one = Estimate::of(vec![5.0], 1).unwrap();
        assert_eq!((one.median, one.ends), (5.0, None));
        assert_eq!(Estimate::of(vec![], 1), None);
        assert_eq!(Estimate::of(vec![f64::NAN], 1), None);
    }

    #[test]
    fn pairs_are_made_by_block() {
        let a = [(0, 2.0), (1, 4.0), (2, 8.0), (9, 1000.0)];
        let b = [(2, 4.0), (1, 2.0), (0, 1.0)];
        let ratio = Ratio::paired(&a, &b).unwrap();
        assert_eq!(ratio.n, 3);
        for value in [ratio.value, ratio.ends.low, ratio.ends.high] {
            assert!((value - 2.0).abs() < 1e-9, "{ratio:?}");
        }
        assert!(!ratio.is_clear(), "three blocks have no interval that could exclude 1");
        let more: Vec<_> = (0..6).map(|block| (block, 2.0)).collect();
        let one: Vec<_> = (0..6).map(|block| (block, 1.0)).collect();
        let ratio = Ratio::paired(&more, &one).unwrap();
        assert!(ratio.is_gain() && !Ratio::paired(&one, &more).unwrap().is_gain());
        assert_eq!(Ratio::paired(&a, &[(5, 1.0)]), None);
    }
    #[test]
    fn only_six_values_and_more_have_an_interval() {
        for n in 2..=9 {
            let values = (0..n).map(|i| f64::from(10 + i)).collect();
            let ends = Estimate::of(values, 1).unwrap().ends.unwrap();
            assert_eq!(ends.is_interval(), n >= 6, "{n}: {ends:?}");
            let (least, most) = (10.0, f64::from(9 + n));
            assert!(n >= 9 || (ends.low, ends.high) == (least, most), "{n}: {ends:?}");
        }
    }

    #[test]
    fn the_words_follow_the_ends() {
        let (sure, few) =
            (Ends::interval(1.0, 2.0), Ends { low: 1.0, high: 2.0, confidence: 0.75 });
        assert_eq!(ends_words([sure, sure]), "95\u{A0}% interval");
        assert!(ends_words([few]).starts_with("minimum to maximum"));
        assert!(ends_words([few, sure]).contains("or minimum to maximum"));
        assert!(ends_words([]).starts_with("no interval"), "one value each");
    }
}
