//! Rank correlation of two numbers over arms.

use super::kind::{Context, Kind};
use crate::evaluation::answer::{at_least, at_most, undefined_words};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::levels::median_of;
use crate::evaluation::runs::columns;
use crate::family::Whole;
use crate::location::Location;
use crate::verdict::Effect;
use ioloom_stats::{median, spearman};
use serde::Deserialize;

/// Minimum number of arms for a meaningful rank correlation.
const ARMS_MIN: usize = 5;

/// Rank correlation of two numbers over arms.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correlation {
    /// Location of the arms.
    pub at: Location,
    /// Families.
    pub arms: Vec<String>,
    /// First number or formula.
    pub x: String,
    /// Second number or formula.
    pub y: String,
    /// Whether `y` increases with `x`.
    pub rising: bool,
    /// Minimum absolute rank correlation.
    pub rho: f64,
}

impl Kind for Correlation {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at]
    }

    fn is_resampled(&self) -> bool {
        true
    }

    fn patterns(&self) -> Vec<&str> {
        self.arms.iter().map(String::as_str).collect()
    }

    fn families(&self) -> Vec<Whole<'_>> {
        let whole = |pattern| Whole { at: &self.at, pattern, levels: None };
        self.arms.iter().map(|pattern| whole(pattern)).collect()
    }

    fn metrics(&self) -> Vec<&str> {
        vec![&self.x, &self.y]
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let Self { x, y, rising, rho, .. } = self;
        let runs = context.runs(&self.at, self);
        let mut found = Vec::new();
        for family in &self.arms {
            found.extend(runs.members(family).unwrap_or_default());
        }
        if found.is_empty() {
            return Err(Gap::Missing(self.arms.clone()));
        }
        let count = found.len();
        let gap = found.iter().find_map(|arm| arm.gap());
        found.retain(|arm| arm.gap().is_none());
        if found.len() < ARMS_MIN {
            let few = format!("{} arms ran, at least {ARMS_MIN} are needed", found.len());
            return Err(gap.unwrap_or(Gap::Undefined(few)));
        }
        let wanted: Vec<_> =
            found.iter().flat_map(|arm| [(*arm, x.as_str()), (*arm, y.as_str())]).collect();
        let table = columns(&wanted, context.rule.blocks_min)?;
        let blocks = table.values[0].len();
        let resampled = context.rule.over_blocks(blocks, |drawn| {
            let side = |start| {
                let columns = table.values.iter().skip(start).step_by(2);
                columns.map(|column| median_of(column, drawn)).collect::<Vec<_>>()
            };
            Some(spearman(&side(0), &side(1))).filter(|r| r.is_finite())
        })?;
        let interval = resampled.interval;
        let answer = if *rising { at_least(&resampled, *rho) } else { at_most(&resampled, -*rho) };
        let words = format!(
            "the rank correlation of {x} and {y} over {} arms is {:+.2} ({:+.2} to {:+.2}) in \
             {blocks} blocks, claimed: {} {:+.2}",
            found.len(),
            interval.estimate,
            interval.lo,
            interval.hi,
            if *rising { "at least" } else { "at most" },
            if *rising { *rho } else { -*rho },
        ) + &undefined_words(&resampled);
        // Blocks that are alike would show as a slow drift of all arms together.
        let series = (0..blocks).map(|i| block_level(&table.values, i)).collect();
        let finding = Finding::new(answer, Effect::Correlation, &interval, words)
            .without(count - found.len(), ["arm", "arms"])
            .of_arms(&found, &runs, &table);
        Ok(Finding { series, ..finding })
    }
}

/// Returns the median over all columns of a block, each relative to its own median.
fn block_level(columns: &[Vec<f64>], block: usize) -> f64 {
    let own = columns.iter().map(|column| column[block] / median(column));
    median(&own.filter(|value| value.is_finite()).collect::<Vec<_>>())
}
