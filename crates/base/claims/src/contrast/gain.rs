//! Change of a gain between two levels of a factor.

use super::kind::{Context, Kind, elapsed, ordered};
use crate::evaluation::answer::{Answer, Centre};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::levels::pair_up;
use crate::evaluation::pair::{difference_noise, is_below};
use crate::evaluation::runs::columns;
use crate::location::Location;
use crate::verdict::Effect;
use ioloom_stats::{Claimed, median};
use serde::Deserialize;

/// Change of the gain `a - b` between two levels of a factor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// Location of the arms; with axis `compute`, all computes of the experiment are used.
    pub at: Location,
    /// Slower family.
    pub a: String,
    /// Faster family.
    pub b: String,
    /// Factor, or `compute` for the mean demand in nanoseconds.
    pub axis: String,
    /// Lower and upper level.
    pub levels: [f64; 2],
    /// Whether the gain is relative to `a` rather than in units of the metric.
    pub relative: bool,
    /// Number or formula.
    #[serde(default = "elapsed")]
    pub metric: String,
    /// Claimed gain at the upper level compared with the lower level.
    pub claim: Claimed,
}

impl Kind for Gain {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at]
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.a, &self.b]
    }

    fn axis(&self) -> Option<&str> {
        Some(&self.axis)
    }

    fn uses_level(&self, level: f64) -> bool {
        self.levels.contains(&level)
    }

    fn metrics(&self) -> Vec<&str> {
        vec![&self.metric]
    }

    fn check(&self) -> Result<(), String> {
        if self.claim == Claimed::AtMost {
            return Err("a gain has no margin, so the claim at-most is not possible".to_owned());
        }
        ordered(&self.levels)
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let Self { a, b, axis, levels, relative, metric, .. } = self;
        let runs = context.runs(&self.at, self);
        let pairs = pair_up(&runs, a, b, axis)?.ran;
        let mut arms = Vec::new();
        for level in levels {
            let (_, found) = pairs
                .iter()
                .find(|(x, _)| x == level)
                .ok_or_else(|| Gap::Missing(vec![format!("both {a} and {b} at {axis} {level}")]))?;
            arms.extend(found);
        }
        let wanted: Vec<_> = arms.iter().map(|arm| (*arm, metric.as_str())).collect();
        let table = columns(&wanted, context.rule.blocks_min)?;
        let gain = |a: f64, b: f64| if *relative { 1.0 - b / a } else { a - b };
        let gains = |slow: &[f64], fast: &[f64]| -> Vec<f64> {
            slow.iter().zip(fast).map(|(a, b)| gain(*a, *b)).collect()
        };
        let low = gains(&table.values[0], &table.values[1]);
        let high = gains(&table.values[2], &table.values[3]);
        let series: Vec<f64> = high.iter().zip(&low).map(|(h, l)| h - l).collect();
        let centre = Centre::of(&series)?;
        let interval = centre.interval;
        let floor = difference_noise(&context.rule, &runs, &arms, metric, gain);
        let below_noise = is_below(interval.estimate.abs(), floor);
        let (above, below) = (interval.lo > 0.0, interval.hi < 0.0);
        // The rule has no margin for a difference of gains, so equality cannot be shown.
        let rises = self.claim == Claimed::Greater;
        let falls = self.claim == Claimed::Less;
        let answer = match (above, below) {
            _ if below_noise => Answer::OPEN,
            (true, _) => Answer::new(rises, centre.above(0.0)),
            (_, true) => Answer::new(falls, centre.below(0.0)),
            _ => Answer::OPEN,
        };
        let (unit, scale) = if *relative { (" points", 100.0) } else { ("", 1.0) };
        let kind = if *relative { "relative gain" } else { "gain" };
        let mut words = format!(
            "the {kind} of {b} over {a} in {metric} changes by {:+.4}{unit} ({:+.4} to {:+.4}) from \
             {axis} {} to {} in {} blocks",
            interval.estimate * scale,
            interval.lo * scale,
            interval.hi * scale,
            levels[0],
            levels[1],
            series.len()
        );
        if let Some(floor) = floor.filter(|_| below_noise) {
            let floor = floor * scale;
            words.push_str(&format!(", but runs of the same plan differ by {floor:.4}{unit}"));
        }
        let effect = if *relative { Effect::Share } else { Effect::Difference };
        let finding = Finding::new(answer, effect, &interval, words)
            .of_arms(&arms, &runs, &table)
            .number("gain_low", median(&low))
            .number("gain_high", median(&high))
            .noise(floor);
        Ok(Finding { series, below_noise, ..finding })
    }
}
