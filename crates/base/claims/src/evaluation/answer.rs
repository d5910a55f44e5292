//! Answers to claims, with the p-value of each.
//!
//! An answer needs both: an interval that decides it, and a p-value that survives the correction
//! for the number of contrasts judged together ([`crate::judge`]). P-values are two-sided, so one of
//! 0.05 belongs to a 95 % interval. They come from signed ranks where the effect is a median over
//! blocks, and from the resamples of the interval otherwise. An undecided contrast counts with 1.

use super::gap::Gap;
use ioloom_stats::{Interval, Resampled, SignedRank, median_interval, shift_test};

/// Whether a statement holds, and the probability of such runs if the answer is wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Answer {
    /// `None` if the numbers allow both answers.
    pub(crate) holds: Option<bool>,
    /// Two-sided p-value; 1 if undecided.
    pub(crate) p: f64,
}

impl Answer {
    /// The numbers allow both answers.
    pub(crate) const OPEN: Self = Self { holds: None, p: 1.0 };

    /// Returns an answer from a one-sided p-value.
    pub(crate) fn new(holds: bool, one_sided: f64) -> Self {
        Self { holds: Some(holds), p: (2.0 * one_sided).min(1.0) }
    }

    /// Returns the answer with twice the p-value: for series in which each block's value depends on a
    /// choice made from the other blocks. A low block makes the same choice more likely in the others,
    /// so the values are not quite independent; one half of the blocks judged by a choice from the
    /// other half would be, and there are two such halves.
    #[must_use]
    pub(crate) fn twice(self) -> Self {
        Self { p: (2.0 * self.p).min(1.0), ..self }
    }

    /// Returns the answer to a statement that holds if both parts hold and fails if one fails.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self.holds, other.holds) {
            (Some(true), Some(true)) => Self { holds: Some(true), p: self.p.max(other.p) },
            // One of two failures may be due to chance, hence twice the smaller p-value.
            (Some(false), Some(false)) => {
                Self { holds: Some(false), p: (2.0 * self.p.min(other.p)).min(1.0) }
            }
            (Some(false), _) => Self { holds: Some(false), p: (2.0 * self.p).min(1.0) },
            (_, Some(false)) => Self { holds: Some(false), p: (2.0 * other.p).min(1.0) },
            _ => Self::OPEN,
        }
    }
}

/// The median of one value per block, with its exact interval.
#[derive(Debug)]
pub(crate) struct Centre<'s> {
    series: &'s [f64],
    pub(crate) interval: Interval,
}

impl<'s> Centre<'s> {
    pub(crate) fn of(series: &'s [f64]) -> Result<Self, Gap> {
        let interval = median_interval(series, ioloom_stats::CONFIDENCE).map_err(Gap::undefined)?;
        Ok(Self { series, interval })
    }

    fn ranks(&self, shift: f64) -> SignedRank {
        shift_test(self.series, shift).unwrap_or(SignedRank { below: 1.0, above: 1.0, n: 0 })
    }

    /// Returns the one-sided p-value for "the median is above `bound`".
    pub(crate) fn above(&self, bound: f64) -> f64 {
        self.ranks(bound).above
    }

    /// Returns the one-sided p-value for "the median is below `bound`".
    pub(crate) fn below(&self, bound: f64) -> f64 {
        self.ranks(bound).below
    }

    /// Answers whether the median is at least `least`.
    pub(crate) fn at_least(&self, least: f64) -> Answer {
        if self.interval.lo >= least {
            Answer::new(true, self.above(least - rounding(least)))
        } else if self.interval.hi < least {
            Answer::new(false, self.below(least))
        } else {
            Answer::OPEN
        }
    }

    /// Answers whether the median is at most `most`.
    pub(crate) fn at_most(&self, most: f64) -> Answer {
        if self.interval.hi <= most {
            Answer::new(true, self.below(most + rounding(most)))
        } else if self.interval.lo > most {
            Answer::new(false, self.above(most))
        } else {
            Answer::OPEN
        }
    }

    /// Answers whether the median is in a range.
    pub(crate) fn inside(&self, [lo, hi]: [f64; 2]) -> Answer {
        let Interval { lo: from, hi: to, .. } = self.interval;
        if lo <= from && to <= hi {
            let above = self.above(lo - rounding(lo));
            Answer::new(true, above.max(self.below(hi + rounding(hi))))
        } else if to < lo {
            Answer::new(false, self.below(lo))
        } else if hi < from {
            Answer::new(false, self.above(hi))
        } else {
            Answer::OPEN
        }
    }
}

/// Returns a distance so small that a value within it is at the bound, which counts as reached. A
/// signed-rank test would ignore such values.
fn rounding(bound: f64) -> f64 {
    1e-9 * (1.0 + bound.abs())
}

/// Greatest share of resamples without a value for an answer: one tail of a 95 % interval.
const UNDEFINED_MAX: f64 = 0.025;

/// Reports whether so many resamples have no value that the interval of the others decides nothing.
fn too_often_undefined(resampled: &Resampled) -> bool {
    resampled.undefined_share() > UNDEFINED_MAX
}

/// Says why a resampled statistic decides nothing, if it has no value in too many resamples.
pub(crate) fn undefined_words(resampled: &Resampled) -> String {
    if !too_often_undefined(resampled) {
        return String::new();
    }
    let percent = 100.0 * resampled.undefined_share();
    format!("; it has no value in {percent:.1} % of the resamples, so it decides nothing")
}

/// Answers whether a resampled statistic is at least `least`.
pub(crate) fn at_least(resampled: &Resampled, least: f64) -> Answer {
    let Interval { lo, hi, .. } = resampled.interval;
    if too_often_undefined(resampled) {
        Answer::OPEN
    } else if lo >= least {
        Answer::new(true, resampled.at_least(least))
    } else if hi < least {
        Answer::new(false, resampled.below(least))
    } else {
        Answer::OPEN
    }
}

/// Answers whether a resampled statistic is at most `most`.
pub(crate) fn at_most(resampled: &Resampled, most: f64) -> Answer {
    let Interval { lo, hi, .. } = resampled.interval;
    if too_often_undefined(resampled) {
        Answer::OPEN
    } else if hi <= most {
        Answer::new(true, resampled.at_most(most))
    } else if lo > most {
        Answer::new(false, resampled.above(most))
    } else {
        Answer::OPEN
    }
}

/// Answers whether a resampled statistic is in a range.
pub(crate) fn inside(resampled: &Resampled, [lo, hi]: [f64; 2]) -> Answer {
    let Interval { lo: from, hi: to, .. } = resampled.interval;
    if too_often_undefined(resampled) {
        Answer::OPEN
    } else if lo <= from && to <= hi {
        Answer::new(true, resampled.at_least(lo).max(resampled.at_most(hi)))
    } else if to < lo {
        Answer::new(false, resampled.below(lo))
    } else if hi < from {
        Answer::new(false, resampled.above(hi))
    } else {
        Answer::OPEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_stats::Bootstrap;

    #[test]
    fn resamples_without_a_value_count_against_every_statement() {
        let values: Vec<f64> = (0..12).map(f64::from).collect();
        // The mean of twelve values below 12, undefined if the resample has fewer than `least` different ones.
        let mean = |least: usize| {
            let statistic = move |drawn: &[f64]| {
                let different: std::collections::BTreeSet<u64> =
                    drawn.iter().map(|v| v.to_bits()).collect();
                let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
                if different.len() < least { f64::NAN } else { mean }
            };
            Bootstrap::new(1).resampled(&values, statistic).unwrap()
        };
        let (always, often) = (mean(0), mean(8));
        assert!(always.undefined_share() == 0.0 && often.undefined_share() > UNDEFINED_MAX);
        assert_eq!(at_least(&always, -1.0).holds, Some(true));
        assert_eq!(at_most(&always, -1.0).holds, Some(false));
        assert!(often.at_least(-1.0) > always.at_least(-1.0));
        for answer in [at_least(&often, -1.0), at_most(&often, -1.0), inside(&often, [-1.0, 20.0])]
        {
            assert_eq!(answer, Answer::OPEN);
        }
        assert!(undefined_words(&always).is_empty() && !undefined_words(&often).is_empty());
    }
}
