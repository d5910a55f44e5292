//! A statement about every run, which one counterexample refutes.
//!
//! A median would still look right if four of ten runs were wrong, and blocks with errors are excluded from other
//! contrasts: here an error can be what the claim denies. So all runs count, disturbed or not. Any number of runs
//! without a counterexample leaves some share of wrong runs possible, which the words state. A counterexample
//! counts on any medium but a slowed device, unless the claim names one.

use super::kind::{Context, Kind, ordered};
use crate::evaluation::answer::Answer;
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::pair::the_arm;
use crate::evaluation::runs::{Runs, SLOWED, metric as number};
use crate::location::Location;
use crate::rule::Rule;
use crate::verdict::Effect;
use ioloom_stats::{INTERVAL_MIN, proportion_interval};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The claim that a number is in a range in every run of an arm.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Every {
    /// Location of the arm.
    pub at: Location,
    /// The arm.
    pub arm: String,
    /// Number or formula.
    pub metric: String,
    /// Claimed range.
    pub within: [f64; 2],
}

/// Confidence of the interval of the share of runs that violate the claim.
const CONFIDENCE: f64 = 0.95;

/// Returns the probability that none of `runs` violates the claim if half of all runs do.
fn p_of_none(runs: usize) -> f64 {
    0.5_f64.powi(runs as i32)
}

/// A bound beyond which a range counts as open.
const OPEN: f64 = 1e12;

/// Describes numbers outside of a range.
fn outside(least: f64, most: f64) -> String {
    match (least <= -OPEN, most >= OPEN) {
        (true, _) => format!("above {most}"),
        (_, true) => format!("below {least}"),
        _ if least == most => format!("not {least}"),
        _ => format!("outside of {least} to {most}"),
    }
}

impl Kind for Every {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at]
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.arm]
    }

    fn metrics(&self) -> Vec<&str> {
        vec![&self.metric]
    }

    fn check(&self) -> Result<(), String> {
        ordered(&self.within)
    }

    fn is_about_every_run(&self) -> bool {
        true
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let own = self.on(&context.runs(&self.at, self), &context.rule);
        let refutes =
            |found: &Result<Finding<'_>, Gap>| found.as_ref().is_ok_and(|f| f.holds == Some(false));
        let counts = |medium: &str| medium != SLOWED || self.at.medium.is_some();
        if refutes(&own) {
            let is_slowed = |f: &Finding<'_>| f.used.iter().all(|r| !counts(&r.key.medium));
            // It is the slowed device only if no other medium has runs.
            return own.and_then(|found| match is_slowed(&found) {
                true => Err(Gap::Undefined(format!(
                    "it is not so on a device that the kernel slows down, which does not count: {}",
                    found.words
                ))),
                false => Ok(found),
            });
        }
        let media = Runs::by_medium(&context.records, &self.at);
        let media = media.iter().filter(|(medium, _)| counts(medium));
        let mut found = media.map(|(_, runs)| self.on(runs, &context.rule));
        found.find(refutes).unwrap_or(own)
    }
}

impl Every {
    /// Evaluates the runs on one medium.
    fn on<'a>(&self, runs: &Runs<'a>, rule: &Rule) -> Result<Finding<'a>, Gap> {
        let Self { metric, within: [least, most], .. } = self;
        let arm = the_arm(runs, &self.arm)?;
        if let Some(gap) = arm.gap() {
            return Err(gap);
        }
        // One run is enough for a counterexample, so other runs without a number do not matter then.
        let (mut wrong, mut count, mut missing) = (0, 0, None);
        for record in arm.records() {
            let value = record.measured().map(|measured| number(measured, metric));
            match value {
                Some(Ok(value)) if value.is_finite() => {
                    count += 1;
                    wrong += usize::from(!(*least..=*most).contains(&value));
                }
                _ => missing = Some(metric.clone()),
            }
        }
        if let (0, Some(name)) = (wrong, missing) {
            return Err(Gap::NoNumber { arm: arm.name.clone(), name });
        }
        let need = rule.blocks_min.max(INTERVAL_MIN);
        if wrong == 0 && count < need {
            return Err(Gap::FewBlocks { have: count, need });
        }
        if wrong == 0 && count < arm.started() {
            let lost = arm.started() - count;
            return Err(Gap::Undefined(format!(
                "{lost} of {} runs of {} did not finish correctly, so not every run is known",
                arm.started(),
                arm.name
            )));
        }
        let interval = proportion_interval(wrong, count, CONFIDENCE);
        let (answer, bound) = match wrong {
            0 => {
                let bound = format!(
                    "with {:.0} % confidence, it is so in less than {:.1} % of runs",
                    100.0 * CONFIDENCE,
                    100.0 * interval.hi
                );
                (Answer::new(true, p_of_none(count)), bound)
            }
            _ => (Answer::new(false, 0.0), "one is enough".to_owned()),
        };
        let words = format!(
            "{metric} is {} in {wrong} of {count} runs of {}; {bound}",
            outside(*least, *most),
            arm.name
        );
        let effect = Effect::Stated("share of runs that violate it".to_owned());
        let mut finding = Finding::new(answer, effect, &interval, words);
        finding.evidence.arms = vec![arm.name.clone()];
        finding.evidence.blocks = count;
        let sessions: BTreeSet<_> = arm.records().map(|r| r.key.session.clone()).collect();
        finding.evidence.sessions = sessions.into_iter().collect();
        finding.used = arm.records().collect();
        finding.sleeps = runs.sleeps;
        Ok(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_runs_without_a_counterexample_leave_less_room() {
        assert!((p_of_none(12) - 1.0 / 4096.0).abs() < 1e-12);
        let at_most = |runs| proportion_interval(0, runs, CONFIDENCE).hi;
        assert!((at_most(12) - 0.265).abs() < 1e-3);
        assert!(at_most(300) < 0.013);
    }
}
