//! Reasons to distrust the result of a contrast.

use super::disturbed;
use super::finding::Finding;
use crate::rule::Rule;
use ioloom_model::Doubt;
use ioloom_stats::{Alternation, Drift, FirstRun, TwoRegimes};
use std::collections::BTreeSet;

/// Minimum share of runs that must carry a doubt before the finding carries it. A single run next
/// to a noisy neighbour does not mark the whole finding.
const SHARE_MIN: f64 = 0.25;

/// Returns the doubts that arise from the runs, the effect series and the number of blocks.
pub(crate) fn of(finding: &Finding<'_>, rule: Rule) -> Vec<Doubt> {
    let mut doubts = BTreeSet::new();
    let behind = finding.behind();
    for doubt in Doubt::ALL {
        let marked = finding.used.iter().filter(|r| r.doubts.contains(&doubt)).count();
        let withheld = finding.withheld
            && disturbed::excludes(doubt)
            && behind.iter().any(|r| r.doubts.contains(&doubt));
        if withheld || (marked > 0 && marked as f64 >= SHARE_MIN * finding.used.len() as f64) {
            doubts.insert(doubt);
        }
    }
    let series = &finding.series;
    let tests = [
        (Doubt::Drift, Drift::test(series).is_ok_and(|t| t.found)),
        (Doubt::Alternation, Alternation::test(series).is_ok_and(|t| t.found)),
        (Doubt::FirstRun, FirstRun::test(series).is_ok_and(|t| t.found)),
        (Doubt::TwoRegimes, TwoRegimes::test(series).is_ok_and(|t| t.found)),
        (Doubt::NoiseFloor, finding.below_noise),
        (Doubt::FewSamples, (1..rule.blocks_min).contains(&finding.evidence.blocks)),
    ];
    doubts.extend(tests.iter().filter(|(_, found)| *found).map(|(doubt, _)| *doubt));
    doubts.into_iter().collect()
}
