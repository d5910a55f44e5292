//! Chooses the best of several arms without favouring the one that was lucky.
//!
//! The arm with the best median of many equal arms is several percent too good, because luck is part of
//! the choice. So the blocks are divided before the first run: every fourth block only serves to choose,
//! and the chosen arm is compared in the other blocks, which had no part in the choice. Whatever the
//! noise, a chosen arm that is no better is then called better no more often than the interval allows.
//!
//! A comparison of two arms chooses nothing and uses all blocks. With fewer than six other blocks, the
//! choice and the comparison use the same blocks, and the ends of the ratio never count as an interval.

use crate::estimate::{Ends, Ratio};
use crate::group::{ArmRuns, Group};
use crate::quantity::Better;
use ioloom_stats::{INTERVAL_MIN, median};
use std::collections::BTreeSet;

/// One block of this many serves to choose.
const EVERY: u32 = 4;

/// Which blocks choose and which compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// All blocks compare: there is nothing to choose.
    All,
    /// Every fourth block chooses, the others compare.
    Divided,
    /// Too few: all blocks choose and compare, which shows nothing.
    Shared,
}

impl Blocks {
    /// Returns how a comparison of `arms` divides its blocks.
    pub(crate) fn of(group: &Group<'_>, arms: &[&ArmRuns<'_>]) -> Self {
        let metric = &group.experiment.metric;
        let blocks: BTreeSet<u32> =
            arms.iter().flat_map(|arm| arm.blocks(metric)).map(|(block, _)| block).collect();
        if arms.len() <= 2 {
            return Self::All;
        }
        let compare = blocks.iter().filter(|block| **block % EVERY != 0).count();
        if compare >= INTERVAL_MIN { Self::Divided } else { Self::Shared }
    }

    /// Returns the best of the candidates in the blocks that choose.
    pub(crate) fn choose<'g, 'a>(
        self,
        group: &Group<'_>,
        candidates: &[&'g ArmRuns<'a>],
    ) -> Option<&'g ArmRuns<'a>> {
        let better = group.better();
        let middle = |arm: &ArmRuns<'_>| {
            let values = arm.blocks(&group.experiment.metric).into_iter();
            let own = values.filter(|(block, _)| self != Self::Divided || block % EVERY == 0);
            let own: Vec<f64> = own.map(|(_, value)| value).collect();
            (!own.is_empty()).then(|| median(&own))
        };
        let known = candidates.iter().filter_map(|arm| Some((middle(arm)?, *arm)));
        let best = known.reduce(|x, y| if better.prefers(y.0, x.0) { y } else { x });
        best.map(|(_, arm)| arm).or(candidates.first().copied())
    }

    /// Returns how many times as good `a` is as `b` in the blocks that compare; `None` if runs of either
    /// were killed so often that it is not judged.
    pub(crate) fn gain(self, group: &Group<'_>, a: &ArmRuns<'_>, b: &ArmRuns<'_>) -> Option<Ratio> {
        if a.is_cut_short() || b.is_cut_short() {
            return None;
        }
        let values = |arm: &ArmRuns<'_>| {
            let mut values = arm.blocks(&group.experiment.metric);
            values.retain(|(block, _)| self != Self::Divided || block % EVERY != 0);
            values
        };
        let (a, b) = (values(a), values(b));
        let ratio = match group.better() {
            Better::Higher => Ratio::paired(&a, &b),
            _ => Ratio::paired(&b, &a),
        }?;
        // Chosen by the same blocks, so nothing is known about the confidence.
        let unknown = Ends { confidence: 0.0, ..ratio.ends };
        Some(if self == Self::Shared { Ratio { ends: unknown, ..ratio } } else { ratio })
    }
}
