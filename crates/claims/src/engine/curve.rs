//! Numbers read off a curve that each run recorded: time over offset.

use super::runs::Gap;
use super::{Bench, Finding};
use crate::claim::{Contrast, CurveNumber};
use ioloom_stats::median;

/// A point counts as a stop when it took at least this many times the median point.
const STOP_TIMES: f64 = 10.0;

/// Reads the number off one curve; `None` where it is not defined.
fn read(points: &[(f64, f64)], of: CurveNumber) -> Option<f64> {
    let usual = median(&points.iter().map(|(_, ns)| *ns).collect::<Vec<_>>());
    let stops: Vec<(f64, f64)> =
        points.iter().copied().filter(|(_, ns)| *ns >= STOP_TIMES * usual && *ns > 0.0).collect();
    let number = match of {
        CurveNumber::Period => {
            median(&stops.windows(2).map(|w| w[1].0 - w[0].0).collect::<Vec<_>>())
        }
        CurveNumber::GapShare => {
            let sum = |points: &[(f64, f64)]| points.iter().map(|(_, ns)| ns).sum::<f64>();
            sum(&stops) / sum(points) * 100.0
        }
        CurveNumber::GapGrowth => {
            let end = points.last()?.0;
            let part = |from: f64, to: f64| {
                let inside = |(x, _): &&(f64, f64)| (from * end..=to * end).contains(x);
                median(&stops.iter().filter(inside).map(|(_, ns)| *ns).collect::<Vec<_>>())
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
    let need = bench.rule.blocks_min.max(2);
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
        CurveNumber::GapShare => ("stops take", " % of the time"),
        CurveNumber::GapGrowth => ("stops at the end over stops at the start take", " times"),
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
    fn stops_are_told_from_the_usual() {
        let points: Vec<(f64, f64)> = (0..64)
            .map(|i| {
                let stop = i % 4 == 0;
                (f64::from(i) * 4096.0, if stop { 1000.0 + f64::from(i) * 100.0 } else { 10.0 })
            })
            .collect();
        assert_eq!(read(&points, CurveNumber::Period), Some(16384.0));
        assert!(read(&points, CurveNumber::GapShare).unwrap() > 95.0);
        assert!(read(&points, CurveNumber::GapGrowth).unwrap() > 2.0);
        let even: Vec<(f64, f64)> = (0..64).map(|i| (f64::from(i), 10.0)).collect();
        assert_eq!(read(&even, CurveNumber::Period), None);
        assert_eq!(read(&[], CurveNumber::GapGrowth), None);
    }
}
