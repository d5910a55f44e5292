//! A rising straight line over the levels of a factor.

use super::kind::{Context, Kind};
use crate::evaluation::answer::at_least;
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::levels::{Axis, Levels};
use crate::location::Location;
use crate::verdict::Effect;
use ioloom_stats::Line;
use serde::Deserialize;

/// A straight line with a rising slope over the levels of a factor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Location of the arms.
    pub at: Location,
    /// The family.
    pub arms: String,
    /// The factor.
    pub axis: String,
    /// Number or formula.
    pub metric: String,
    /// Minimum share of the variance explained by the line.
    pub r2: f64,
    /// Minimum growth factor from the lowest level to the highest.
    pub growth: f64,
}

impl Kind for Linear {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at]
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.arms]
    }

    fn axis(&self) -> Option<&str> {
        Some(&self.axis)
    }

    fn metrics(&self) -> Vec<&str> {
        vec![&self.metric]
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let Self { axis, metric, r2, growth, .. } = self;
        let runs = context.runs(&self.at, self);
        let along = Axis { name: axis, range: None };
        let levels = Levels::new(&context.rule, &runs, (&self.arms, along), metric, 3)?;
        let blocks = levels.blocks();
        let explained = context.rule.over_blocks(blocks, |drawn| {
            // A slope cannot explain a constant.
            Some(Line::fit(&levels.x, &levels.medians(drawn)).ok()?.r2.unwrap_or(0.0))
        })?;
        let grown = context.rule.over_blocks(blocks, |drawn| {
            let y = levels.medians(drawn);
            Some(y[y.len() - 1] / y[0])
        })?;
        let answer = at_least(&explained, *r2).and(at_least(&grown, *growth));
        let (explained, grown) = (explained.interval, grown.interval);
        let line = Line::fit(&levels.x, &levels.all_medians()).map_err(Gap::undefined)?;
        let words = format!(
            "a line over {axis} explains {:.4} ({:.4} to {:.4}) of the variance of {metric}, \
            which grows by a factor of {:.1} ({:.1} to {:.1}) in {blocks} blocks, claimed: at \
            least {r2} and \
             {growth} times",
            explained.estimate, explained.lo, explained.hi, grown.estimate, grown.lo, grown.hi
        );
        let finding = Finding::new(answer, Effect::Explained, &explained, words)
            .number("slope", line.slope)
            .number("intercept", line.intercept)
            .number("growth", grown.estimate);
        let series = levels.series(levels.x.len() - 1, 0);
        Ok(levels.finish(Finding { series, ..finding }, &runs, axis))
    }
}
