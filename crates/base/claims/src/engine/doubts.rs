//! Reasons to distrust what a contrast found.

use super::{BLOCKS_FULL, Finding, disturbed};
use ioloom_model::Doubt;
use ioloom_stats::{Alternation, Drift, FirstRun, TwoRegimes};
use std::collections::BTreeSet;

/// Share of the runs that must carry a doubt before it is passed on: one run beside a noisy
/// neighbour does not mark the whole.
const SHARE_MIN: f64 = 0.25;

/// The doubts of the runs, those of the series of effects, and those of the number of blocks.
pub(super) fn of(finding: &Finding<'_>) -> Vec<Doubt> {
    let mut doubts = BTreeSet::new();
    for doubt in Doubt::ALL {
        let marked = finding.used.iter().filter(|r| r.doubts.contains(&doubt)).count();
        let withheld = marked > 0 && disturbed::bars(doubt) && finding.withheld;
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
        (Doubt::FewSamples, (1..BLOCKS_FULL).contains(&finding.evidence.blocks)),
    ];
    doubts.extend(tests.iter().filter(|(_, found)| *found).map(|(doubt, _)| *doubt));
    doubts.into_iter().collect()
}
