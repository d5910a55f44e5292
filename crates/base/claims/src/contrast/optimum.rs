//! The cost of transferring the best arm of one location to another.
//!
//! The cost is, block by block, the metric of the first location's best arm in the second location
//! divided by that of the second location's best arm. It is 1 if the same arm is best in both. The
//! choice of the best arm is itself an estimate and partly luck, which would make the second
//! location's best arm look better than it is. Both choices are therefore made again for each block,
//! from the other blocks, and compared in the block that had no part in them.

use super::kind::{Context, Kind, elapsed};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::pair::{
    above_noise, is_hidden, noise_floor, noise_words, ratio_interval, the_arm,
};
use crate::evaluation::runs::{Arm, Runs, columns};
use crate::family::Whole;
use crate::location::Location;
use crate::rule::Rule;
use crate::verdict::Effect;
use ioloom_stats::{Claimed, Ratio, decide, median};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The claim that the best arm in one location is not the best in another.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimum {
    /// First location.
    pub at: Location,
    /// Second location.
    pub other: Location,
    /// The family.
    pub arms: String,
    /// Number or formula; lower is better.
    #[serde(default = "elapsed")]
    pub metric: String,
}

/// Session and number of a block.
type Block = (String, u32);

/// An arm of the family with its number in each block that contains it.
struct Member<'r, 'a> {
    arm: &'r Arm<'a>,
    values: Vec<Option<f64>>,
}

/// The arms of a family that have numbers at one location, and the union of their blocks.
struct Family<'r, 'a> {
    members: Vec<Member<'r, 'a>>,
    blocks: Vec<Block>,
    /// Whether an arm that was not refused lacks blocks. It could have been the best.
    is_partial: bool,
}

impl<'r, 'a> Family<'r, 'a> {
    fn new(rule: &Rule, runs: &'r Runs<'a>, arms: &str, metric: &str) -> Result<Self, Gap> {
        let (mut found, mut gap, mut is_partial) = (Vec::new(), None, false);
        let mut blocks = BTreeSet::new();
        for arm in runs.members(arms)? {
            match columns(&[(arm, metric)], rule.blocks_min) {
                Ok(table) => {
                    blocks.extend(table.blocks.iter().cloned());
                    let values = table.values.into_iter().flatten();
                    let values: BTreeMap<Block, f64> =
                        table.blocks.into_iter().zip(values).collect();
                    found.push((arm, values));
                }
                Err(reason) => {
                    is_partial |= !matches!(reason, Gap::Refused { .. });
                    gap = gap.or(Some(reason));
                }
            }
        }
        if found.is_empty() {
            return Err(gap.unwrap_or_else(|| Gap::Missing(vec![arms.to_owned()])));
        }
        let blocks: Vec<Block> = blocks.into_iter().collect();
        let members = found.into_iter().map(|(arm, values)| Member {
            arm,
            values: blocks.iter().map(|block| values.get(block).copied()).collect(),
        });
        Ok(Self { members: members.collect(), blocks, is_partial })
    }

    /// Returns the member with the lowest median, ignoring one block and those that it lacks.
    fn best(&self, without: Option<&Block>) -> Option<&Member<'r, 'a>> {
        let middle = |member: &Member<'_, '_>| {
            let known = self.blocks.iter().zip(&member.values);
            let kept = known.filter(|(block, _)| Some(*block) != without);
            median(&kept.filter_map(|(_, value)| *value).collect::<Vec<_>>())
        };
        let known = self.members.iter().map(|m| (middle(m), m)).filter(|(v, _)| !v.is_nan());
        known.min_by(|x, y| x.0.total_cmp(&y.0)).map(|(_, member)| member)
    }

    fn named(&self, name: &str) -> Option<&Member<'r, 'a>> {
        self.members.iter().find(|member| member.arm.name == name)
    }
}

impl Kind for Optimum {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at, &self.other]
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.arms]
    }

    fn families(&self) -> Vec<Whole<'_>> {
        let whole = |at| Whole { at, pattern: &self.arms, levels: None };
        vec![whole(&self.at), whole(&self.other)]
    }

    fn metrics(&self) -> Vec<&str> {
        vec![&self.metric]
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let Self { arms, metric, .. } = self;
        let rule = &context.rule;
        let (first, second) = (context.runs(&self.at, self), context.runs(&self.other, self));
        let from = Family::new(rule, &first, arms, metric)?;
        let to = Family::new(rule, &second, arms, metric)?;
        let no_median = || Gap::Undefined(format!("{metric} has no median"));
        let here = from.best(None).ok_or_else(no_median)?.arm;
        let best = to.best(None).ok_or_else(no_median)?;
        // Report an arm that did not run in the second location as missing.
        let moved = the_arm(&second, &here.name)?;
        let table = columns(&[(moved, metric), (best.arm, metric)], rule.blocks_min)?;
        let series = costs(&from, &to);
        if series.len() < rule.blocks_min {
            return Err(Gap::FewBlocks { have: series.len(), need: rule.blocks_min });
        }
        let ratio = Ratio::of_logs(&series).map_err(Gap::undefined)?;
        let floor = noise_floor(rule, [&second; 2], [moved, best.arm], [metric, metric]);
        let answer =
            above_noise(&series, &ratio, Claimed::Greater, &rule.stats(None), floor)?.twice();
        let same = moved.name == best.arm.name;
        let below_noise = !same && is_hidden(&ratio, &rule.stats(None), floor);
        let mut reason = decide(&ratio, Claimed::Greater, &rule.stats(None)).reason.to_string();
        if let Some(floor) = floor.filter(|_| below_noise && answer.holds.is_none()) {
            reason.push_str(&format!(", but {}", noise_words(floor)));
        }
        let words = format!("{}: {reason}", cost_words(moved, best.arm, metric, &ratio));
        let both = [moved, best.arm];
        let interval = ratio_interval(&ratio);
        let mut finding = Finding::new(answer, Effect::Ratio, &interval, words)
            .of_arms(if same { &both[..1] } else { &both }, &second, &table)
            .chosen_from(from.members.iter().chain(&to.members).map(|member| member.arm))
            .number("a_median", median(&table.values[0]))
            .number("b_median", median(&table.values[1]))
            .noise(floor);
        finding.used.extend(here.records());
        let sessions: BTreeSet<String> =
            from.blocks.iter().map(|(session, _)| session.clone()).collect();
        let known = &mut finding.evidence.sessions;
        known.extend(sessions);
        known.sort();
        known.dedup();
        finding.partial = from.is_partial || to.is_partial;
        finding.below_noise = below_noise;
        finding.series = series;
        Ok(finding)
    }
}

/// Describes which arms are best and the cost of transferring one.
fn cost_words(moved: &Arm<'_>, best: &Arm<'_>, metric: &str, ratio: &Ratio) -> String {
    let which = if moved.name == best.name {
        format!("{} is best in both locations", moved.name)
    } else {
        format!("{} is best in the first location and {} in the second", moved.name, best.name)
    };
    format!(
        "{which}; in the second, the first's best arm has {:.3} times the {metric} of the \
        second's best arm ({:.3} to {:.3}, both chosen again for each block from the others) in {} blocks",
        ratio.ratio, ratio.lo, ratio.hi, ratio.n,
    )
}

/// Returns, for each block of `to`, the logarithm of the cost of using the best arm of `from` instead
/// of its own best arm, both chosen without that block.
fn costs(from: &Family<'_, '_>, to: &Family<'_, '_>) -> Vec<f64> {
    let cost = |(i, block): (usize, &Block)| {
        let moved = to.named(&from.best(Some(block))?.arm.name)?.values[i]?;
        let best = to.best(Some(block))?.values[i]?;
        Some((moved / best).ln())
    };
    to.blocks.iter().enumerate().filter_map(cost).filter(|log| log.is_finite()).collect()
}
