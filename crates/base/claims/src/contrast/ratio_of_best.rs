//! The best arm of one family compared with the best of another.
//!
//! The arm that looks best does so partly by luck: of nine equal arms, the lowest median is several
//! percent too low, and a family of nine then beats a single equal arm. The winners are therefore
//! chosen again for each block, from the other blocks, and compared in the block that had no part
//! in the choice. The effect is the median of these ratios; if all arms are equal, it is 1.

use super::kind::{Context, Kind, elapsed};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::levels::{best_without, median_of};
use crate::evaluation::pair::{
    above_noise, is_claim_hidden, noise_floor, noise_words, ratio_interval,
};
use crate::evaluation::runs::{Arm, Runs, columns};
use crate::family;
use crate::location::Location;
use crate::rule::Rule;
use crate::verdict::Effect;
use ioloom_stats::{Claimed, Ratio, decide};
use serde::Deserialize;

/// The ratio of the best arm of family `a` to the best arm of family `b`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatioOfBest {
    /// Location of all arms.
    pub at: Location,
    /// First family.
    pub a: Vec<String>,
    /// Second family.
    pub b: Vec<String>,
    /// Number or formula; lower is better.
    #[serde(default = "elapsed")]
    pub metric: String,
    /// Claim about `a / b`.
    pub claim: Claimed,
    /// Overrides the rule's smallest relevant difference.
    #[serde(default)]
    pub margin: Option<f64>,
}

fn patterns_of(family: &[String]) -> Vec<&str> {
    family.iter().map(String::as_str).collect()
}

impl Kind for RatioOfBest {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at]
    }

    fn patterns(&self) -> Vec<&str> {
        [patterns_of(&self.a), patterns_of(&self.b)].concat()
    }

    fn metrics(&self) -> Vec<&str> {
        vec![&self.metric]
    }

    /// Quick mode can omit some patterns of a family, but not all.
    fn skipped_by_quick(&self) -> bool {
        [&self.a, &self.b]
            .iter()
            .any(|patterns| family::skipped_by_quick(&self.at, &patterns_of(patterns)))
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let rule = &context.rule;
        let runs = context.runs(&self.at, self);
        let (of_a, lost_a) = candidates(rule, &runs, &self.a, &self.metric)?;
        let (of_b, lost_b) = candidates(rule, &runs, &self.b, &self.metric)?;
        let families = [of_a, of_b];
        let mut ran = Vec::new();
        let mut partial = lost_a || lost_b;
        for (names, found) in [&self.a, &self.b].into_iter().zip(&families) {
            let patterns = patterns_of(names);
            // A refused arm was tried; an omitted arm could have been the best.
            let tried: usize =
                patterns.iter().map(|p| runs.members(p).map_or(0, |m| m.len())).sum();
            let all = family::count(&self.at, &patterns).map_or(tried, |count| count.all);
            partial |= tried < all;
            ran.push(format!("{} of {all}", found.len()));
        }
        let arms: Vec<&Arm<'a>> = families.iter().flatten().copied().collect();
        let wanted: Vec<_> = arms.iter().map(|arm| (*arm, self.metric.as_str())).collect();
        let table = columns(&wanted, rule.blocks_min)?;
        let (of_a, of_b) = table.values.split_at(families[0].len());
        let blocks = table.blocks.len();
        let series: Vec<f64> = (0..blocks)
            .map(|i| of_a[best_without(of_a, i)][i].ln() - of_b[best_without(of_b, i)][i].ln())
            .collect();
        let ratio = Ratio::of_logs(&series).map_err(Gap::undefined)?;
        let best =
            [families[0][best_without(of_a, blocks)], families[1][best_without(of_b, blocks)]];
        let floor = noise_floor(rule, [&runs; 2], best, [&self.metric; 2]);
        let of_stats = rule.stats(self.margin);
        let answer = above_noise(&series, &ratio, self.claim, &of_stats, floor)?.twice();
        let below_noise = is_claim_hidden(&ratio, self.claim, &of_stats, floor);
        let mut reason = decide(&ratio, self.claim, &of_stats).reason.to_string();
        if let Some(floor) = floor.filter(|_| below_noise && answer.holds.is_none()) {
            reason.push_str(&format!(", but {}", noise_words(floor)));
        }
        let words = format!(
            "best of {} arms ({}) against best of {} ({}), chosen again for each block from the \
             others: {} is {:.3} times as high ({:.3} to {:.3}) in {} blocks: {reason}",
            ran[0],
            best[0].name,
            ran[1],
            best[1].name,
            self.metric,
            ratio.ratio,
            ratio.lo,
            ratio.hi,
            ratio.n
        );
        let all: Vec<usize> = (0..blocks).collect();
        let interval = ratio_interval(&ratio);
        let finding = Finding::new(answer, Effect::Ratio, &interval, words)
            .of_arms(&best, &runs, &table)
            .chosen_from(arms)
            .number("a_median", median_of(&of_a[best_without(of_a, blocks)], &all))
            .number("b_median", median_of(&of_b[best_without(of_b, blocks)], &all))
            .noise(floor);
        Ok(Finding { series, partial, below_noise, ..finding })
    }
}

/// Returns the arms of a family that have enough blocks, and whether others could have been the best: those
/// that were not refused.
fn candidates<'r, 'a>(
    rule: &Rule,
    runs: &'r Runs<'a>,
    families: &[String],
    metric: &str,
) -> Result<(Vec<&'r Arm<'a>>, bool), Gap> {
    let mut found = Vec::new();
    for family in families {
        found.extend(runs.members(family).unwrap_or_default());
    }
    if found.is_empty() {
        return Err(Gap::Missing(families.to_vec()));
    }
    let (mut gap, mut is_lost) = (None, false);
    found.retain(|arm| match columns(&[(*arm, metric)], rule.blocks_min) {
        Ok(_) => true,
        Err(reason) => {
            is_lost |= !matches!(reason, Gap::Refused { .. });
            gap.get_or_insert(reason);
            false
        }
    });
    match gap {
        Some(gap) if found.is_empty() => Err(gap),
        _ => Ok((found, is_lost)),
    }
}
