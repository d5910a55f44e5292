//! Withholds verdicts from blocks that are not independent.
//!
//! If a block resembles the one before, the interval over blocks is too narrow and the p-value too
//! small. A series whose whole range is negligible compared with the margin is exempt: counters of
//! bytes differ in their last digits, in whatever order.

use super::finding::Finding;
use ioloom_stats::Dependence;

/// Returns the finding, without its answer if neighbouring blocks are alike.
pub(crate) fn withhold(finding: Finding<'_>) -> Finding<'_> {
    let fold = |of: fn(f64, f64) -> f64| finding.series.iter().copied().reduce(of).unwrap_or(0.0);
    if finding.holds.is_none() || fold(f64::max) - fold(f64::min) <= finding.negligible {
        return finding;
    }
    let Ok(test) = Dependence::test(&finding.series) else { return finding };
    if !test.found {
        return finding;
    }
    let words = format!(
        "withheld because neighbouring blocks are alike (autocorrelation {:.2}, p = {:.3}), so they \
         are not independent; repeat the study ({})",
        test.lag1, test.p, finding.words
    );
    Finding { holds: None, p: finding.p.map(|_| 1.0), words, ..finding }
        .number("autocorrelation", test.lag1)
}
