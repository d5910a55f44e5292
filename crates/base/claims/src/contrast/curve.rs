//! A number derived from a curve that each run recorded: the stalls of a walk over a mapping.

use super::kind::{Context, Kind, ordered};
use crate::evaluation::answer::Centre;
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::runs::columns;
use crate::location::Location;
use crate::verdict::Effect;
use ioloom_model::Measured;
use ioloom_stats::{INTERVAL_MIN, stalls};
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

/// Number of points to which an export thins longer curves.
const THINNED: usize = 512;
/// Number of stalls of a file after which earlier versions recorded none.
const RECORDED_MAX: usize = 8192;

impl CurveNumber {
    /// Returns the name under which a run records the number.
    fn recorded_as(self, curve: &str) -> String {
        let start = curve.strip_suffix("_ns").unwrap_or(curve);
        match self {
            Self::Period => format!("{start}_period_bytes"),
            Self::Growth => format!("{start}_growth"),
        }
    }

    /// Returns the number that a run recorded, or derives it from the recorded curve.
    ///
    /// # Errors
    /// The run has no such curve, or not the points that the number needs.
    fn of(self, measured: &Measured, curve: &str, arm: &str) -> Result<f64, Gap> {
        let none = || Gap::NoNumber { arm: arm.to_owned(), name: format!("the curve {curve}") };
        let points = measured.curves.get(curve).ok_or_else(none)?;
        if let Some(number) = measured.extra.get(&self.recorded_as(curve)) {
            return Ok(*number);
        }
        let lacks = |what: &str| Err(Gap::Undefined(format!("{curve} of {arm} {what}")));
        if points.len() == THINNED {
            return lacks("was thinned by an export, and the number was not recorded");
        }
        let is_cut = measured.extra.contains_key(&Self::Period.recorded_as(curve))
            || points.chunk_by(|a, b| a.0 < b.0).any(|file| file.len() == RECORDED_MAX);
        match self {
            Self::Growth if is_cut => lacks("lacks the stalls at the start or the end of the file"),
            Self::Period => stalls::period(points).map_or_else(|| lacks(FEW), Ok),
            Self::Growth => stalls::growth(points).map_or_else(|| lacks(FEW), Ok),
        }
    }
}

/// Why a number is undefined.
const FEW: &str = "has too few stalls to measure";

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
            let measured = record.measured().ok_or_else(|| Gap::NoNumber {
                arm: arm.name.clone(),
                name: format!("the curve {curve}"),
            })?;
            series.push(self.of.of(measured, curve, &arm.name)?);
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

    /// Returns the stalls of one file, every 16 KiB.
    fn file(count: u32) -> Vec<(f64, f64)> {
        (0..count).map(|i| (f64::from(i) * 16384.0, 1000.0 + f64::from(i))).collect()
    }

    #[test]
    fn growth_needs_the_end_of_the_file_and_both_need_every_point() {
        let of = |number: CurveNumber, points: Vec<(f64, f64)>, extra: &[(&str, f64)]| {
            let extra = extra.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
            let curves = [("touch_ns".to_owned(), points)].into();
            let measured = Measured { extra, curves, ..Measured::default() };
            number.of(&measured, "touch_ns", "a").ok()
        };
        let (period, growth) = (CurveNumber::Period, CurveNumber::Growth);
        assert_eq!(of(period, file(100), &[]), Some(16384.0));
        assert!(of(growth, file(100), &[]).is_some());
        assert_eq!((of(period, file(512), &[]), of(growth, file(512), &[])), (None, None));
        let cut: Vec<_> = file(8192).into_iter().chain(file(10)).collect();
        assert_eq!((of(period, cut.clone(), &[]), of(growth, cut, &[])), (Some(16384.0), None));
        let recorded = [("touch_period_bytes", 7.0)];
        assert_eq!(of(period, file(512), &recorded), Some(7.0));
        assert_eq!(of(growth, file(100), &recorded), None, "the run recorded no growth");
        assert_eq!(of(growth, file(512), &[("touch_growth", 3.0)]), Some(3.0));
    }
}
