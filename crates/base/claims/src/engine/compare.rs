//! Contrasts of two arms: ratios, best against best, shares and media.

use super::runs::{Arm, Gap, Runs, columns};
use super::{Bench, Finding};
use crate::claim::Contrast;
use ioloom_stats::{Claimed, Interval, Judgement, Ratio, aa_noise, decide, equivalence, median};

fn wrong<T>() -> Result<T, Gap> {
    Err(Gap::Undefined("the contrast is of another kind".to_owned()))
}

fn undefined(error: impl std::fmt::Display) -> Gap {
    Gap::Undefined(error.to_string())
}

pub(super) const fn holds(judgement: Judgement) -> Option<bool> {
    match judgement {
        Judgement::Confirmed => Some(true),
        Judgement::Refuted => Some(false),
        Judgement::Undecided => None,
    }
}

pub(super) fn the_arm<'r, 'a>(runs: &'r Runs<'a>, pattern: &str) -> Result<&'r Arm<'a>, Gap> {
    let found = runs.members(pattern)?;
    match found.as_slice() {
        [arm] => Ok(arm),
        _ => Err(Gap::Undefined(format!("{pattern} names {} arms, one is wanted", found.len()))),
    }
}

/// What is asked of two arms.
struct Asked<'m> {
    metrics: [&'m str; 2],
    claim: Claimed,
    times: Option<f64>,
    margin: Option<f64>,
}

/// Compares two arms that were chosen, with the noise of either arm against itself.
fn compare<'a>(
    bench: &Bench<'a>,
    runs: &Runs<'a>,
    arms: [&Arm<'a>; 2],
    asked: &Asked<'_>,
) -> Result<Finding<'a>, Gap> {
    let [a, b] = arms;
    let [metric_a, metric_b] = asked.metrics;
    let table = columns(&[(a, metric_a), (b, metric_b)], bench.rule.blocks_min)?;
    let ratio =
        Ratio::of(&table.values[0], &table.values[1], bench.rule.seed).map_err(undefined)?;
    let noise = noise_floor(bench, runs, arms, asked.metrics);
    let below_noise = noise.is_some_and(|floor| ratio.effect() <= floor);
    let (held, reason) = match asked.times {
        Some(times) => {
            let (held, reason) = at_least(&ratio, asked.claim, times);
            (held.filter(|held| !(*held && below_noise)), reason)
        }
        None => {
            let rule = bench.rule.stats(asked.margin);
            let judgement = above_noise(&ratio, asked.claim, &rule, noise);
            (holds(judgement), decide(&ratio, asked.claim, &rule).reason.to_string())
        }
    };
    let reason = match noise.filter(|_| below_noise && held.is_none()) {
        Some(floor) => {
            format!("{reason}, but a plan differs from itself by {:.1} %", floor * 100.0)
        }
        None => reason,
    };
    let what = if metric_a == metric_b {
        format!("{metric_a} of {} over {}", a.name, b.name)
    } else {
        format!("{metric_a} of {} over {metric_b} of {}", a.name, b.name)
    };
    let words = format!(
        "{what} is {:.3} ({:.3} to {:.3}) in {} blocks: {reason}",
        ratio.ratio, ratio.lo, ratio.hi, ratio.n
    );
    let interval = ratio_interval(&ratio);
    let series = table.values[0].iter().zip(&table.values[1]).map(|(a, b)| (a / b).ln()).collect();
    let finding = Finding::new(held, "ratio", &interval, words)
        .of_arms(&arms, runs, &table)
        .number("a_median", median(&table.values[0]))
        .number("b_median", median(&table.values[1]))
        .noise(noise);
    Ok(Finding { series, below_noise, ..finding })
}

pub(super) fn ratio_interval(ratio: &Ratio) -> Interval {
    let Ratio { ratio: estimate, lo, hi, confidence, .. } = *ratio;
    Interval { estimate, lo, hi, confidence, resamples: 0 }
}

/// The judgement of a ratio when a plan against itself differs by `floor`: a difference that is not
/// above it shows nothing, on either side. An interval within the margin is no difference and stands.
pub(super) fn above_noise(
    ratio: &Ratio,
    claim: Claimed,
    rule: &ioloom_stats::Rule,
    floor: Option<f64>,
) -> Judgement {
    let same = equivalence(ratio, rule.margin).equivalent;
    if !same && floor.is_some_and(|floor| ratio.effect() <= floor) {
        return Judgement::Undecided;
    }
    decide(ratio, claim, rule).judgement
}

/// Whether a ratio is at least a given factor on the claimed side of 1.
fn at_least(ratio: &Ratio, claim: Claimed, times: f64) -> (Option<bool>, String) {
    let turned = if claim == Claimed::Less { ratio.inverse() } else { *ratio };
    let held = if turned.lo >= times {
        Some(true)
    } else if turned.hi < times {
        Some(false)
    } else {
        None
    };
    let side = if claim == Claimed::Less { "less" } else { "more" };
    (held, format!("a factor of at least {times} {side} is claimed"))
}

/// The noise floor of an arm that ran twice in each block: one of the two if it did, else any
/// other of the same comparison.
pub(super) fn noise_floor(
    bench: &Bench<'_>,
    runs: &Runs<'_>,
    arms: [&Arm<'_>; 2],
    metrics: [&str; 2],
) -> Option<f64> {
    let others = runs.arms.iter().map(|arm| (arm, metrics[0]));
    arms.into_iter().zip(metrics).chain(others).find_map(|(arm, metric)| {
        let again = runs.again(arm)?;
        let pair = columns(&[(arm, metric), (again, metric)], bench.rule.blocks_min).ok()?;
        aa_noise(&pair.values[0], &pair.values[1], bench.rule.seed).ok().map(|n| n.floor)
    })
}

pub(super) fn ratio<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Ratio { at, at_b, a, b, metric, metric_b, claim, times, margin } = contrast
    else {
        return wrong();
    };
    let runs = bench.runs(at, contrast);
    let elsewhere = at_b.as_ref().map(|place| bench.runs(place, contrast));
    let asked = Asked {
        metrics: [metric, metric_b.as_deref().unwrap_or(metric)],
        claim: *claim,
        times: *times,
        margin: *margin,
    };
    let first = the_arm(&runs, a)?;
    let second = the_arm(elsewhere.as_ref().unwrap_or(&runs), b)?;
    compare(bench, &runs, [first, second], &asked)
}

/// The arm with the lowest median among those that ran, and how many did.
fn best_of<'r, 'a>(
    bench: &Bench<'a>,
    runs: &'r Runs<'a>,
    families: &[String],
    metric: &str,
) -> Result<(&'r Arm<'a>, usize), Gap> {
    let mut candidates = Vec::new();
    for family in families {
        candidates.extend(runs.members(family).unwrap_or_default());
    }
    if candidates.is_empty() {
        return Err(Gap::Missing(families.to_vec()));
    }
    let mut gap = None;
    let mut ranked = Vec::new();
    for arm in candidates {
        match columns(&[(arm, metric)], bench.rule.blocks_min) {
            Ok(table) => ranked.push((median(&table.values[0]), arm)),
            Err(reason) => gap = gap.or(Some(reason)),
        }
    }
    let count = ranked.len();
    let best = ranked.into_iter().min_by(|x, y| x.0.total_cmp(&y.0));
    match (best, gap) {
        (Some((_, arm)), _) => Ok((arm, count)),
        (None, Some(gap)) => Err(gap),
        (None, None) => Err(Gap::Missing(families.to_vec())),
    }
}

pub(super) fn ratio_of_best<'a>(
    bench: &Bench<'a>,
    contrast: &Contrast,
) -> Result<Finding<'a>, Gap> {
    let Contrast::RatioOfBest { at, a, b, metric, claim, margin } = contrast else {
        return wrong();
    };
    let runs = bench.runs(at, contrast);
    let mut best = Vec::new();
    let mut ran = Vec::new();
    let mut partial = false;
    for family in [a, b] {
        let (arm, count) = best_of(bench, &runs, family, metric)?;
        best.push(arm);
        let patterns: Vec<&str> = family.iter().map(String::as_str).collect();
        // An arm that was refused was tried; one that was left out may have been the best.
        let tried: usize = patterns.iter().map(|p| runs.members(p).map_or(0, |m| m.len())).sum();
        let all = crate::family::count(at, &patterns).map_or(tried, |(all, _)| all);
        partial |= tried < all;
        ran.push(format!("{count} of {all}"));
    }
    let asked = Asked { metrics: [metric, metric], claim: *claim, times: None, margin: *margin };
    let found = compare(bench, &runs, [best[0], best[1]], &asked)?;
    let words =
        format!("the best of {} against the best of {} arms: {}", ran[0], ran[1], found.words);
    Ok(Finding { words, partial, ..found })
}

pub(super) fn share<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Share { at, a, b, metric, points } = contrast else {
        return wrong();
    };
    let runs = bench.runs(at, contrast);
    let arms = [the_arm(&runs, a)?, the_arm(&runs, b)?];
    let table = columns(&arms.map(|arm| (arm, metric.as_str())), bench.rule.blocks_min)?;
    let series: Vec<f64> =
        table.values[0].iter().zip(&table.values[1]).map(|(a, b)| (a - b) * 100.0).collect();
    let drawn =
        |blocks: &[usize]| Some(median(&blocks.iter().map(|i| series[*i]).collect::<Vec<_>>()));
    let interval = bench.rule.over_blocks(series.len(), drawn)?;
    let sign = points.signum();
    let ends = [interval.lo * sign, interval.hi * sign];
    let (least, most) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    let held = if least >= points.abs() {
        Some(true)
    } else if most < points.abs() {
        Some(false)
    } else {
        None
    };
    let words = format!(
        "{metric} of {} less that of {} is {:+.1} points ({:+.1} to {:+.1}) in {} blocks, {} {points:+} claimed",
        arms[0].name,
        arms[1].name,
        interval.estimate,
        interval.lo,
        interval.hi,
        series.len(),
        if sign > 0.0 { "at least" } else { "at most" },
    );
    let finding = Finding::new(held, "points", &interval, words).of_arms(&arms, &runs, &table);
    Ok(Finding { series, ..finding }
        .number("a_share", median(&table.values[0]))
        .number("b_share", median(&table.values[1])))
}

pub(super) fn media<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Media { at, arm, metric, margin } = contrast else {
        return wrong();
    };
    let media = Runs::by_medium(&bench.records, at);
    let mut ran = Vec::new();
    for (name, runs) in &media {
        if let Ok(arm) = the_arm(runs, arm) {
            match arm.gap() {
                None => ran.push((name, runs, arm)),
                Some(gap) if media.len() == 1 => return Err(gap),
                Some(_) => {}
            }
        }
    }
    let [first, second, ..] = ran.as_slice() else {
        let arms =
            vec![format!("{arm} on a second medium (ioloom study pipeline --on DIR --on DIR)")];
        return Err(Gap::Missing(arms));
    };
    let asked =
        Asked { metrics: [metric, metric], claim: Claimed::Equal, times: None, margin: *margin };
    let mut found = compare(bench, first.1, [first.2, second.2], &asked)?;
    found.words = format!("{} against {}: {}", first.0, second.0, found.words);
    Ok(found)
}
