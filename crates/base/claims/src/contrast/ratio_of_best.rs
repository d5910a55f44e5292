//! The best arm of one family compared with the best of another.

use super::kind::{Context, Kind, elapsed};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::pair::{RatioClaim, compare};
use crate::evaluation::runs::{Arm, Runs, columns};
use crate::family;
use crate::location::Location;
use crate::rule::Rule;
use ioloom_stats::{Claimed, median};
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
        let runs = context.runs(&self.at, self);
        let mut best = Vec::new();
        let mut ran = Vec::new();
        let mut partial = false;
        for family in [&self.a, &self.b] {
            let (arm, count) = best_of(&context.rule, &runs, family, &self.metric)?;
            best.push(arm);
            let patterns = patterns_of(family);
            // A refused arm was tried; an omitted arm could have been the best.
            let tried: usize =
                patterns.iter().map(|p| runs.members(p).map_or(0, |m| m.len())).sum();
            let all = family::count(&self.at, &patterns).map_or(tried, |count| count.all);
            partial |= tried < all;
            ran.push(format!("{count} of {all}"));
        }
        let claim = RatioClaim {
            metrics: [&self.metric; 2],
            claim: self.claim,
            times: None,
            margin: self.margin,
        };
        let found = compare(&context.rule, &runs, [best[0], best[1]], &claim)?;
        let words = format!("best of {} arms against best of {}: {}", ran[0], ran[1], found.words);
        Ok(Finding { words, partial, ..found })
    }
}

/// Returns the arm with the lowest median among those that ran, and the number that ran.
fn best_of<'r, 'a>(
    rule: &Rule,
    runs: &'r Runs<'a>,
    families: &[String],
    metric: &str,
) -> Result<(&'r Arm<'a>, usize), Gap> {
    let mut candidates = Vec::new();
    for family in families {
        candidates.extend(runs.members(family).unwrap_or_default());
    }
    if candidates.is_empty() {
        return Err(Gap::Missing(families.to_vec()));
    }
    let mut gap = None;
    let mut ranked = Vec::new();
    for arm in candidates {
        match columns(&[(arm, metric)], rule.blocks_min) {
            Ok(table) => ranked.push((median(&table.values[0]), arm)),
            Err(reason) => gap = gap.or(Some(reason)),
        }
    }
    let count = ranked.len();
    let best = ranked.into_iter().min_by(|x, y| x.0.total_cmp(&y.0));
    match (best, gap) {
        (Some((_, arm)), _) => Ok((arm, count)),
        (None, Some(gap)) => Err(gap),
        (None, None) => Err(Gap::Missing(families.to_vec())),
    }
}
