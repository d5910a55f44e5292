//! Difference between two shares.

use super::kind::{Context, Kind};
use crate::evaluation::answer::{Answer, Centre};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::pair::{difference_noise, is_below, the_arm};
use crate::evaluation::runs::columns;
use crate::location::Location;
use crate::verdict::Effect;
use ioloom_stats::median;
use serde::Deserialize;

/// Difference between two shares in percentage points.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Location of both arms.
    pub at: Location,
    /// First arm.
    pub a: String,
    /// Second arm.
    pub b: String,
    /// Share or sum of shares, from 0 to 1.
    pub metric: String,
    /// Claims that `a - b` is at least this many points, or at most if negative.
    pub points: f64,
}

impl Kind for Share {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at]
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.a, &self.b]
    }

    fn metrics(&self) -> Vec<&str> {
        vec![&self.metric]
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let Self { metric, points, .. } = self;
        let runs = context.runs(&self.at, self);
        let arms = [the_arm(&runs, &self.a)?, the_arm(&runs, &self.b)?];
        let table = columns(&arms.map(|arm| (arm, metric.as_str())), context.rule.blocks_min)?;
        let series: Vec<f64> =
            table.values[0].iter().zip(&table.values[1]).map(|(a, b)| (a - b) * 100.0).collect();
        let centre = Centre::of(&series)?;
        let interval = centre.interval;
        let sign = points.signum();
        let answer = if sign > 0.0 { centre.at_least(*points) } else { centre.at_most(*points) };
        let rule = &context.rule;
        let floor = difference_noise(rule, &runs, &arms, metric, |a, b| (a - b) * 100.0);
        let below_noise = is_below(interval.estimate.abs(), floor);
        let answer = if below_noise && answer.holds == Some(true) { Answer::OPEN } else { answer };
        let mut words = format!(
            "{metric}: {} - {} is {:+.1} points ({:+.1} to {:+.1}) in {} blocks, claimed: {} \
             {points:+}",
            arms[0].name,
            arms[1].name,
            interval.estimate,
            interval.lo,
            interval.hi,
            series.len(),
            if sign > 0.0 { "at least" } else { "at most" },
        );
        if let Some(floor) = floor.filter(|_| below_noise && answer.holds.is_none()) {
            words.push_str(&format!(", but runs of the same plan differ by {floor:.1} points"));
        }
        let finding = Finding::new(answer, Effect::Points, &interval, words)
            .of_arms(&arms, &runs, &table)
            .noise(floor);
        Ok(Finding { series, below_noise, ..finding }
            .number("a_share", median(&table.values[0]))
            .number("b_share", median(&table.values[1])))
    }
}
