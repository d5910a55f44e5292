//! A number derived from a curve that each run recorded: the stalls of a walk over a mapping.

use super::kind::{Context, Kind, ordered};
use crate::evaluation::answer::Centre;
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::runs::columns;
use crate::location::Location;
use crate::verdict::Effect;
use ioloom_stats::{INTERVAL_MIN, median};
use serde::Deserialize;

/// A number derived from a curve that each run recorded.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// Location of the arm.
    pub at: Location,
    /// The arm.
    pub arm: String,
    /// Name of the curve in the record: the stalls of a walk as byte offset and time in
    /// nanoseconds, concatenated for all files.
    pub curve: String,
    /// The number to derive.
    pub of: CurveNumber,
    /// Claimed range of the number.
    pub within: [f64; 2],
}

/// A number derived from the stalls of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CurveNumber {
    /// Median distance in bytes between consecutive stalls in a file.
    Period,
    /// Median stall time in the last quarter of the offsets divided by that in the first quarter.
    Growth,
}

impl CurveNumber {
    /// Derives the number from one curve; `None` if it is undefined.
    fn read(self, points: &[(f64, f64)]) -> Option<f64> {
        let number = match self {
            Self::Period => {
                // The curve concatenates files, so a decreasing offset starts a new file.
                let steps = points.windows(2).map(|w| w[1].0 - w[0].0).filter(|step| *step > 0.0);
                median(&steps.collect::<Vec<_>>())
            }
            Self::Growth => {
                let end = points.iter().map(|(x, _)| *x).fold(0.0, f64::max);
                let part = |from: f64, to: f64| {
                    let inside = |(x, _): &&(f64, f64)| (from * end..=to * end).contains(x);
                    median(&points.iter().filter(inside).map(|(_, ns)| *ns).collect::<Vec<_>>())
                };
                part(0.75, 1.0) / part(0.0, 0.25)
            }
        };
        Some(number).filter(|n| n.is_finite())
    }
}

impl Kind for Curve {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at]
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.arm]
    }

    fn check(&self) -> Result<(), String> {
        ordered(&self.within)
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let Self { curve, within, .. } = self;
        let rule = &context.rule;
        let runs = context.runs(&self.at, self);
        let arm = runs.members(&self.arm)?[0];
        if let Some(gap) = arm.gap() {
            return Err(gap);
        }
        let mut series = Vec::new();
        for record in arm.records() {
            let points = record.measured().and_then(|m| m.curves.get(curve)).ok_or_else(|| {
                Gap::NoNumber { arm: arm.name.clone(), name: format!("the curve {curve}") }
            })?;
            let number = self.of.read(points).ok_or_else(|| {
                Gap::Undefined(format!("{curve} of {} has too few stalls to measure", arm.name))
            })?;
            series.push(number);
        }
        let need = rule.blocks_min.max(INTERVAL_MIN);
        if series.len() < need {
            return Err(Gap::FewBlocks { have: series.len(), need });
        }
        let centre = Centre::of(&series)?;
        let (interval, answer) = (centre.interval, centre.inside(*within));
        let (what, unit, effect) = match self.of {
            CurveNumber::Period => ("the distance between stalls is", " bytes", Effect::Bytes),
            CurveNumber::Growth => (
                "the ratio of stall times near the end to those at the start is",
                "",
                Effect::Times,
            ),
        };
        let words = format!(
            "{what} {:.4}{unit} ({:.4} to {:.4}) in {} blocks of {}, claimed: {} to {}",
            interval.estimate,
            interval.lo,
            interval.hi,
            series.len(),
            arm.name,
            within[0],
            within[1]
        );
        let table = columns(&[(arm, "elapsed_ns")], rule.blocks_min)?;
        let finding = Finding::new(answer, effect, &interval, words).of_arms(&[arm], &runs, &table);
        Ok(Finding { series, ..finding })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_have_a_distance_and_a_growth() {
        let file =
            |from: f64| (0..64).map(move |i| (f64::from(i) * 16384.0, from + f64::from(i) * 100.0));
        let points: Vec<(f64, f64)> = file(1000.0).chain(file(1000.0)).collect();
        assert_eq!(CurveNumber::Period.read(&points), Some(16384.0));
        assert!(CurveNumber::Growth.read(&points).unwrap() > 3.0);
        assert_eq!(CurveNumber::Period.read(&points[..1]), None);
        assert_eq!(CurveNumber::Growth.read(&[]), None);
    }
}
