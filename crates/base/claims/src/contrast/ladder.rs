//! The shape of a family over the levels of a factor.

use super::kind::{Context, Kind, elapsed, ordered};
use crate::evaluation::answer::{Answer, inside, undefined_words};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::levels::{Axis, Levels};
use crate::evaluation::pair::{above_noise, is_hidden, noise_floor, ratio_interval};
use crate::family::Whole;
use crate::location::Location;
use crate::rule::Rule;
use crate::verdict::Effect;
use ioloom_stats::{Better, Claimed, knee};
use serde::Deserialize;

/// The shape of a family over the levels of a factor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    /// Location of the arms.
    pub at: Location,
    /// The family.
    pub arms: String,
    /// The factor.
    pub axis: String,
    /// Number or formula.
    #[serde(default = "elapsed")]
    pub metric: String,
    /// The claimed shape.
    pub shape: Shape,
    /// Lowest and highest level to consider; all levels if absent.
    #[serde(default)]
    pub levels: Option<[f64; 2]>,
    /// Claimed range of the knee or the minimum.
    #[serde(default)]
    pub within: Option<[f64; 2]>,
    /// Overrides the rule's smallest relevant difference.
    #[serde(default)]
    pub margin: Option<f64>,
}

/// Shape of a ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Every level equals the lowest within the margin.
    Flat,
    /// The highest level is above the lowest, and no step is clearly downward.
    Rising,
    /// The highest level is below the lowest, and no step is clearly upward.
    Falling,
    /// The smallest level within the margin of the best is in `within`.
    Knee,
    /// The level with the lowest value is in `within`.
    Lowest,
}

impl Shape {
    /// Reports whether the shape claims the location of a level.
    const fn names_a_level(self) -> bool {
        matches!(self, Self::Knee | Self::Lowest)
    }
}

impl Kind for Ladder {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at]
    }

    fn is_resampled(&self) -> bool {
        self.shape.names_a_level()
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.arms]
    }

    fn axis(&self) -> Option<&str> {
        Some(&self.axis)
    }

    fn uses_level(&self, level: f64) -> bool {
        self.levels.is_none_or(|[lo, hi]| (lo..=hi).contains(&level))
    }

    fn families(&self) -> Vec<Whole<'_>> {
        let levels = self.levels.map(|levels| (self.axis.as_str(), levels));
        vec![Whole { at: &self.at, pattern: &self.arms, levels }]
    }

    fn metrics(&self) -> Vec<&str> {
        vec![&self.metric]
    }

    fn check(&self) -> Result<(), String> {
        if self.shape.names_a_level() != self.within.is_some() {
            return Err(
                "shapes knee and lowest require within; other shapes do not accept it".to_owned()
            );
        }
        self.within.iter().chain(&self.levels).try_for_each(ordered)
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let Self { axis, metric, .. } = self;
        let rule = &context.rule;
        let runs = context.runs(&self.at, self);
        let least = if self.shape.names_a_level() { 3 } else { 2 };
        let along = Axis { name: axis, range: self.levels };
        let levels = Levels::new(rule, &runs, (&self.arms, along), metric, least)?;
        let ends = [levels.arms[levels.arms.len() - 1], levels.arms[0]];
        let floor = noise_floor(rule, [&runs; 2], ends, [metric, metric]);
        let finding = match self.shape {
            Shape::Flat => self.flat(rule, &levels, floor)?,
            Shape::Rising => self.slope(rule, &levels, Claimed::Greater, floor)?,
            Shape::Falling => self.slope(rule, &levels, Claimed::Less, floor)?,
            Shape::Knee => {
                let share = self.margin.unwrap_or(rule.margin);
                let near =
                    |y: &[f64]| knee(&levels.x, y, Better::Less, share).ok().map(|k| k.near_best);
                let what = format!("the smallest {axis} within {:.0} % of the best", share * 100.0);
                self.located(rule, &levels, &what, near)?
            }
            Shape::Lowest => {
                let lowest = |y: &[f64]| {
                    let at = (0..y.len()).min_by(|i, j| y[*i].total_cmp(&y[*j]))?;
                    Some(levels.x[at])
                };
                let what = format!("the {axis} with the lowest {metric}");
                self.located(rule, &levels, &what, lowest)?
            }
        };
        Ok(levels.finish(finding, &runs, axis))
    }
}

impl Ladder {
    /// Checks that every level equals the lowest one within the margin.
    fn flat<'a>(
        &self,
        rule: &Rule,
        levels: &Levels<'_, 'a>,
        floor: Option<f64>,
    ) -> Result<Finding<'a>, Gap> {
        let of_stats = rule.stats(self.margin);
        let mut judged = Vec::new();
        for i in 1..levels.x.len() {
            let (ratio, series) = (levels.ratio(i, 0)?, levels.series(i, 0));
            let answer = above_noise(&series, &ratio, Claimed::Equal, &of_stats, floor)?;
            judged.push((i, ratio, answer));
        }
        let answer = all_equal(judged.iter().map(|(_, _, answer)| *answer));
        let farthest = judged.iter().max_by(|a, b| a.1.effect().total_cmp(&b.1.effect()));
        let (i, ratio, _) = farthest.ok_or_else(|| Gap::Undefined("only one level".to_owned()))?;
        let words = format!(
            "{}: {} differs most from {}: {:.3} ({:.3} to {:.3}) in {} blocks, claimed: within \
             {:.1} %",
            self.metric,
            levels.arms[*i].name,
            levels.arms[0].name,
            ratio.ratio,
            ratio.lo,
            ratio.hi,
            ratio.n,
            of_stats.margin * 100.0
        );
        let below_noise = is_hidden(ratio, &of_stats, floor);
        let interval = ratio_interval(ratio);
        let finding = Finding::new(answer, Effect::Ratio, &interval, words).noise(floor);
        Ok(Finding { series: levels.series(*i, 0), below_noise, ..finding })
    }

    /// Compares the highest level with the lowest, and checks that no step clearly goes in the
    /// opposite direction.
    fn slope<'a>(
        &self,
        rule: &Rule,
        levels: &Levels<'_, 'a>,
        claim: Claimed,
        floor: Option<f64>,
    ) -> Result<Finding<'a>, Gap> {
        let of_stats = rule.stats(self.margin);
        let judged = |i: usize, j: usize, claim| -> Result<_, Gap> {
            let (ratio, series) = (levels.ratio(i, j)?, levels.series(i, j));
            Ok((above_noise(&series, &ratio, claim, &of_stats, floor)?, ratio))
        };
        let last = levels.x.len() - 1;
        let (mut answer, ends) = judged(last, 0, claim)?;
        let contrary = if claim == Claimed::Greater { Claimed::Less } else { Claimed::Greater };
        let mut against = None;
        for i in 1..=last {
            let (step, ratio) = judged(i, i - 1, contrary)?;
            // One of several steps may go the other way by chance.
            let p = (step.p * last as f64).min(1.0);
            if step.holds == Some(true) && p <= rule.false_rate {
                against = against.or(Some((i, ratio, p)));
            }
        }
        let mut words = format!(
            "{}: {} / {} is {:.3} ({:.3} to {:.3}) in {} blocks",
            self.metric,
            levels.arms[last].name,
            levels.arms[0].name,
            ends.ratio,
            ends.lo,
            ends.hi,
            ends.n
        );
        if let Some((i, step, p)) = against {
            answer = Answer { holds: Some(false), p };
            words = format!(
                "{words}, but the step to {} goes in the opposite direction: {:.3} ({:.3} to \
                 {:.3})",
                levels.arms[i].name, step.ratio, step.lo, step.hi
            );
        }
        let below_noise = is_hidden(&ends, &of_stats, floor);
        let interval = ratio_interval(&ends);
        let finding = Finding::new(answer, Effect::Ratio, &interval, words).noise(floor);
        Ok(Finding { series: levels.series(last, 0), below_noise, ..finding })
    }

    /// Finds a level from the medians and checks that it is in the claimed range.
    fn located<'a>(
        &self,
        rule: &Rule,
        levels: &Levels<'_, 'a>,
        what: &str,
        level: impl Fn(&[f64]) -> Option<f64>,
    ) -> Result<Finding<'a>, Gap> {
        let range =
            self.within.ok_or_else(|| Gap::Undefined("the claim specifies no range".to_owned()))?;
        let resampled = rule.over_blocks(levels.blocks(), |drawn| level(&levels.medians(drawn)))?;
        let interval = resampled.interval;
        let [lo, hi] = range;
        let claimed = if lo == hi { format!("{lo}") } else { format!("{lo} to {hi}") };
        let words = format!(
            "{what} is {} ({} to {}) in {} blocks, claimed: {claimed}",
            interval.estimate,
            interval.lo,
            interval.hi,
            levels.blocks()
        ) + &undefined_words(&resampled);
        let finding = Finding::new(inside(&resampled, range), Effect::Level, &interval, words);
        Ok(Finding { series: levels.series(levels.x.len() - 1, 0), ..finding })
    }
}

/// Answers whether all levels equal the lowest. All must be shown equal, so the largest p-value
/// counts; one that differs is enough, so the smallest counts as often as there are levels.
fn all_equal(answers: impl ExactSizeIterator<Item = Answer> + Clone) -> Answer {
    let levels = answers.len() as f64;
    let differing = answers.clone().filter(|a| a.holds == Some(false)).map(|a| a.p);
    if let Some(p) = differing.reduce(f64::min) {
        return Answer { holds: Some(false), p: (p * levels).min(1.0) };
    }
    if answers.clone().all(|a| a.holds == Some(true)) {
        return Answer { holds: Some(true), p: answers.map(|a| a.p).fold(0.0, f64::max) };
    }
    Answer::OPEN
}
