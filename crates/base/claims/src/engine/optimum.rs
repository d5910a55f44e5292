//! Whether the best arm of one place is the best of another.
//!
//! What is judged is the cost of moving: how many times as much the best arm of the first place takes
//! in the second as the best of the second does, block by block. With the same best arm in both the
//! cost is 1. Which arm is best is itself read off the blocks and may have come about by chance, so
//! it is chosen again in every resample, in both places: where two arms tie in the first and differ
//! in the second, the interval reaches from the one cost to the other and nothing is decided. Blocks
//! are drawn for both places together, because those of one session stand next to each other in time.
//! Choosing again makes the cost in a resample a little too high where many arms tie in the second
//! place, which can only keep it from being refuted; what confirms must be above margin and noise.

use super::compare::{above_noise, holds, noise_floor, ratio_interval, the_arm};
use super::runs::{Arm, Gap, Runs, columns};
use super::{Bench, Finding};
use crate::claim::Contrast;
use ioloom_stats::{Claimed, Judgement, Ratio, decide, median};
use std::collections::{BTreeMap, BTreeSet};

/// Session and number of a block.
type Block = (String, u32);

/// A member of the family with its number in each block of the family, where it has one.
struct Member<'r, 'a> {
    arm: &'r Arm<'a>,
    values: Vec<Option<f64>>,
}

/// The members of a family that have numbers at one place, and the blocks of all of them.
struct Family<'r, 'a> {
    members: Vec<Member<'r, 'a>>,
    blocks: Vec<Block>,
}

impl<'r, 'a> Family<'r, 'a> {
    fn new(bench: &Bench<'a>, runs: &'r Runs<'a>, arms: &str, metric: &str) -> Result<Self, Gap> {
        let (mut found, mut gap) = (Vec::new(), None);
        let mut blocks = BTreeSet::new();
        for arm in runs.members(arms)? {
            match columns(&[(arm, metric)], bench.rule.blocks_min) {
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

    /// Every block once.
    fn all(&self) -> Vec<usize> {
        (0..self.blocks.len()).collect()
    }

    /// The member with the lowest median over these blocks; a block that it lacks does not count.
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

/// The logarithm of one member over another in each of these blocks that both have.
fn logs(one: &Member<'_, '_>, other: &Member<'_, '_>, drawn: &[usize]) -> Vec<f64> {
    let pairs = drawn.iter().filter_map(|i| Some((one.values[*i]?, other.values[*i]?)));
    pairs.map(|(one, other)| (one / other).ln()).collect()
}

pub(super) fn optimum<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Optimum { at, other, arms, metric } = contrast else {
        return Err(Gap::Undefined("the contrast is of another kind".to_owned()));
    };
    let (first, second) = (bench.runs(at, contrast), bench.runs(other, contrast));
    let from = Family::new(bench, &first, arms, metric)?;
    let to = Family::new(bench, &second, arms, metric)?;
    let nothing = || Gap::Undefined(format!("{metric} has no median"));
    let here = from.best(&from.all()).ok_or_else(nothing)?.arm;
    let there = to.best(&to.all()).ok_or_else(nothing)?;
    // An arm that did not run in the second place is named as missing.
    let moved = the_arm(&second, &here.name)?;
    let table = columns(&[(moved, metric), (there.arm, metric)], bench.rule.blocks_min)?;
    let ratio = cost(bench, &from, &to, table.blocks.len())?;
    let rule = bench.rule.stats(None);
    let floor = noise_floor(bench, &second, [moved, there.arm], [metric, metric]);
    let judgement = above_noise(&ratio, Claimed::Greater, &rule, floor);
    let same = moved.name == there.arm.name;
    let below_noise = !same && floor.is_some_and(|floor| ratio.effect() <= floor);
    let mut reason = decide(&ratio, Claimed::Greater, &rule).reason.to_string();
    if let Some(floor) = floor.filter(|_| below_noise && judgement == Judgement::Undecided) {
        reason.push_str(&format!(", but a plan differs from itself by {:.1} %", floor * 100.0));
    }
    let which = match same {
        true => format!("{} is the best arm in both places", moved.name),
        false => format!("the best there is {}, of the other place {}", there.arm.name, moved.name),
    };
    let words = format!(
        "{which}; moved there, the best of the other place has {:.3} times the {metric} ({:.3} to \
         {:.3}, both chosen again each time) in {} blocks: {reason}",
        ratio.ratio, ratio.lo, ratio.hi, ratio.n,
    );
    let both = [moved, there.arm];
    let mut finding = Finding::new(holds(judgement), "ratio", &ratio_interval(&ratio), words)
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
        finding.series = to.named(&moved.name).map_or(Vec::new(), |m| logs(m, there, &to.all()));
    }
    Ok(finding)
}

/// What the best arm of one place costs in another over the best there, in `n` blocks; the ends come
/// from resamples in each of which both are chosen again.
fn cost(
    bench: &Bench<'_>,
    from: &Family<'_, '_>,
    to: &Family<'_, '_>,
    n: usize,
) -> Result<Ratio, Gap> {
    let (all, all_from) = (to.blocks.len(), from.blocks.len());
    let interval = bench.rule.over_blocks(all, |drawn| {
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
