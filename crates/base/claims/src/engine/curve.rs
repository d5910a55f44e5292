//! Numbers read off a curve that each run recorded: the stops of a walk over a mapping.

use super::runs::Gap;
use super::{Bench, Finding};
use crate::claim::{Contrast, CurveNumber};
use ioloom_stats::bootstrap::INTERVAL_MIN;
use ioloom_stats::median;

/// Reads the number off one curve; `None` where it is not defined.
fn read(points: &[(f64, f64)], of: CurveNumber) -> Option<f64> {
    let number = match of {
        CurveNumber::Period => {
            // Files follow each other, so a step back is a new file and no distance.
            let steps = points.windows(2).map(|w| w[1].0 - w[0].0).filter(|step| *step > 0.0);
            median(&steps.collect::<Vec<_>>())
        }
        CurveNumber::Growth => {
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

pub(super) fn curve<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Curve { at, arm, curve, of, within } = contrast else {
        return Err(Gap::Undefined("the contrast is of another kind".to_owned()));
    };
    let runs = bench.runs(at, contrast);
    let arm = runs.members(arm)?[0];
    if let Some(gap) = arm.gap() {
        return Err(gap);
    }
    let mut series = Vec::new();
    for record in arm.records() {
        let points = record.measured().and_then(|m| m.curves.get(curve)).ok_or_else(|| {
            Gap::NoNumber { arm: arm.name.clone(), name: format!("the curve {curve}") }
        })?;
        let number = read(points, *of).ok_or_else(|| {
            Gap::Undefined(format!("{curve} of {} has no stops to measure", arm.name))
        })?;
        series.push(number);
    }
    let need = bench.rule.blocks_min.max(INTERVAL_MIN);
    if series.len() < need {
        return Err(Gap::FewBlocks { have: series.len(), need });
    }
    let interval = bench.rule.over_blocks(series.len(), |drawn| {
        Some(median(&drawn.iter().map(|i| series[*i]).collect::<Vec<_>>()))
    })?;
    let held = if within[0] <= interval.lo && interval.hi <= within[1] {
        Some(true)
    } else if interval.hi < within[0] || within[1] < interval.lo {
        Some(false)
    } else {
        None
    };
    let (what, unit) = match of {
        CurveNumber::Period => ("stops come apart by", " bytes"),
        CurveNumber::Growth => ("stops at the end over stops at the start take", " times"),
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
    let table = super::runs::columns(&[(arm, "elapsed_ns")], bench.rule.blocks_min)?;
    let finding = Finding::new(held, unit.trim(), &interval, words).of_arms(&[arm], &runs, &table);
    Ok(Finding { series, ..finding })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_have_a_distance_and_a_growth() {
        let file =
            |from: f64| (0..64).map(move |i| (f64::from(i) * 16384.0, from + f64::from(i) * 100.0));
        let points: Vec<(f64, f64)> = file(1000.0).chain(file(1000.0)).collect();
        assert_eq!(read(&points, CurveNumber::Period), Some(16384.0));
        assert!(read(&points, CurveNumber::Growth).unwrap() > 3.0);
        assert_eq!(read(&points[..1], CurveNumber::Period), None);
        assert_eq!(read(&[], CurveNumber::Growth), None);
    }
}
