//! A rising straight line over the levels of a factor.

use super::kind::{Context, Kind};
use crate::evaluation::answer::{Answer, at_least, undefined_words};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::levels::{Axis, Levels};
use crate::evaluation::pair::{is_below, noise_floor, noise_words};
use crate::family::Whole;
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

    fn is_resampled(&self) -> bool {
        true
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.arms]
    }

    fn axis(&self) -> Option<&str> {
        Some(&self.axis)
    }

    fn families(&self) -> Vec<Whole<'_>> {
        vec![Whole { at: &self.at, pattern: &self.arms, levels: None }]
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
        // One reason is enough.
        let undefined = [&explained, &grown].map(undefined_words);
        let undefined = undefined.into_iter().find(|words| !words.is_empty()).unwrap_or_default();
        let (explained, grown) = (explained.interval, grown.interval);
        // A growth within the noise shows no line, however straight.
        let ends = [levels.arms[levels.arms.len() - 1], levels.arms[0]];
        let floor = noise_floor(&context.rule, [&runs; 2], ends, [metric, metric]);
        let size = grown.estimate.ln().abs().exp() - 1.0;
        let below_noise = is_below(size, floor);
        let answer = if below_noise && answer.holds == Some(true) { Answer::OPEN } else { answer };
        let line = Line::fit(&levels.x, &levels.all_medians()).map_err(Gap::undefined)?;
        let mut words = format!(
            "a line over {axis} explains {:.4} ({:.4} to {:.4}) of the variance of {metric}, \
            which grows by a factor of {:.1} ({:.1} to {:.1}) in {blocks} blocks, claimed: at \
            least {r2} and \
             {growth} times",
            explained.estimate, explained.lo, explained.hi, grown.estimate, grown.lo, grown.hi
        );
        words.push_str(&undefined);
        if let Some(floor) = floor.filter(|_| below_noise && answer.holds.is_none()) {
            words.push_str(&format!(", but {}", noise_words(floor)));
        }
        let finding = Finding::new(answer, Effect::Explained, &explained, words)
            .number("slope", line.slope)
            .number("intercept", line.intercept)
            .number("growth", grown.estimate)
            .noise(floor);
        let series = levels.series(levels.x.len() - 1, 0);
        Ok(levels.finish(Finding { series, below_noise, ..finding }, &runs, axis))
    }
}
