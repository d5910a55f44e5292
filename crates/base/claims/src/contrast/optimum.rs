//! The cost of transferring the best arm of one location to another.
//!
//! The cost is, block by block, the metric of the first location's best arm in the second location
//! divided by that of the second location's best arm. It is 1 if the same arm is best in both. The
//! choice of the best arm is itself an estimate and can be due to chance, so each resample chooses
//! again in both locations: if two arms tie in the first and differ in the second, the interval
//! spans both costs and the result is undecided. Blocks of both locations are resampled together
//! because those of one session are close in time. Choosing again slightly overestimates the cost
//! of a resample if many arms tie in the second location. This can only prevent a refutation; a
//! confirmation must exceed margin and noise.

use super::kind::{Context, Kind, elapsed};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::pair::{
    above_noise, answer, noise_floor, noise_words, ratio_interval, the_arm,
};
use crate::evaluation::runs::{Arm, Runs, columns};
use crate::location::Location;
use crate::rule::Rule;
use crate::verdict::Effect;
use ioloom_stats::{Claimed, Judgement, Ratio, decide, median};
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
}

impl<'r, 'a> Family<'r, 'a> {
    fn new(rule: &Rule, runs: &'r Runs<'a>, arms: &str, metric: &str) -> Result<Self, Gap> {
        let (mut found, mut gap) = (Vec::new(), None);
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
                Err(reason) => gap = gap.or(Some(reason)),
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
        Ok(Self { members: members.collect(), blocks })
    }

    /// Returns every block once.
    fn all(&self) -> Vec<usize> {
        (0..self.blocks.len()).collect()
    }

    /// Returns the member with the lowest median over these blocks, ignoring blocks it lacks.
    fn best(&self, drawn: &[usize]) -> Option<&Member<'r, 'a>> {
        let middle = |member: &Member<'_, '_>| {
            median(&drawn.iter().filter_map(|i| member.values[*i]).collect::<Vec<_>>())
        };
        let known = self.members.iter().map(|m| (middle(m), m)).filter(|(v, _)| !v.is_nan());
        known.min_by(|x, y| x.0.total_cmp(&y.0)).map(|(_, member)| member)
    }

    fn named(&self, name: &str) -> Option<&Member<'r, 'a>> {
        self.members.iter().find(|member| member.arm.name == name)
    }
}

/// Returns the logarithm of the ratio of two members in each of these blocks that contains both.
fn logs(one: &Member<'_, '_>, other: &Member<'_, '_>, drawn: &[usize]) -> Vec<f64> {
    let pairs = drawn.iter().filter_map(|i| Some((one.values[*i]?, other.values[*i]?)));
    pairs.map(|(one, other)| (one / other).ln()).collect()
}

impl Kind for Optimum {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at, &self.other]
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.arms]
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
        let here = from.best(&from.all()).ok_or_else(no_median)?.arm;
        let best = to.best(&to.all()).ok_or_else(no_median)?;
        // Report an arm that did not run in the second location as missing.
        let moved = the_arm(&second, &here.name)?;
        let table = columns(&[(moved, metric), (best.arm, metric)], rule.blocks_min)?;
        let ratio = cost(rule, &from, &to, table.blocks.len())?;
        let floor = noise_floor(rule, &second, [moved, best.arm], [metric, metric]);
        let judgement = above_noise(&ratio, Claimed::Greater, &rule.stats(None), floor);
        let same = moved.name == best.arm.name;
        let below_noise = !same && floor.is_some_and(|floor| ratio.effect() <= floor);
        let mut reason = decide(&ratio, Claimed::Greater, &rule.stats(None)).reason.to_string();
        if let Some(floor) = floor.filter(|_| below_noise && judgement == Judgement::Undecided) {
            reason.push_str(&format!(", but {}", noise_words(floor)));
        }
        let words = format!("{}: {reason}", cost_words(moved, best.arm, metric, &ratio));
        let both = [moved, best.arm];
        let interval = ratio_interval(&ratio);
        let mut finding = Finding::new(answer(judgement), Effect::Ratio, &interval, words)
            .of_arms(if same { &both[..1] } else { &both }, &second, &table)
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
        if !same {
            finding.below_noise = below_noise;
            finding.series = to.named(&moved.name).map_or(Vec::new(), |m| logs(m, best, &to.all()));
        }
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
        second's best arm ({:.3} to {:.3}, both chosen again in each resample) in {} blocks",
        ratio.ratio, ratio.lo, ratio.hi, ratio.n,
    )
}

/// Returns the cost of using the best arm of `from` in `to`, relative to the best arm of `to`, over
/// `n` blocks. The interval comes from resamples that choose both arms again.
fn cost(rule: &Rule, from: &Family<'_, '_>, to: &Family<'_, '_>, n: usize) -> Result<Ratio, Gap> {
    let (all, all_from) = (to.blocks.len(), from.blocks.len());
    let interval = rule.over_blocks(all, |drawn| {
        let drawn_from: Vec<usize> = drawn.iter().map(|i| i * all_from / all).collect();
        let best = from.best(&drawn_from)?;
        let (moved, best) = (to.named(&best.arm.name)?, to.best(drawn)?);
        Some(median(&logs(moved, best, drawn)))
    })?;
    Ok(Ratio {
        ratio: interval.estimate.exp(),
        lo: interval.lo.exp(),
        hi: interval.hi.exp(),
        confidence: interval.confidence,
        n,
        noise: 0.0,
    })
}
