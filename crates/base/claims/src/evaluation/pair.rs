//! The ratio of two arms, judged against the noise of an arm compared with itself.

use super::finding::{Finding, at_least};
use super::gap::Gap;
use super::runs::{Arm, Runs, columns};
use crate::rule::Rule;
use crate::verdict::Effect;
use ioloom_stats::{Claimed, Interval, Judgement, Ratio, aa_noise, decide, equivalence, median};

/// Returns the answer of a decision; `None` if undecided.
pub(crate) const fn answer(judgement: Judgement) -> Option<bool> {
    match judgement {
        Judgement::Confirmed => Some(true),
        Judgement::Refuted => Some(false),
        Judgement::Undecided => None,
    }
}

/// Returns the only arm that matches a pattern.
pub(crate) fn the_arm<'r, 'a>(runs: &'r Runs<'a>, pattern: &str) -> Result<&'r Arm<'a>, Gap> {
    let found = runs.members(pattern)?;
    match found.as_slice() {
        [arm] => Ok(arm),
        _ => Err(Gap::Undefined(format!("{pattern} matches {} arms, expected one", found.len()))),
    }
}

/// The claim about the ratio of two arms.
pub(crate) struct RatioClaim<'m> {
    /// Number or formula of each arm.
    pub(crate) metrics: [&'m str; 2],
    pub(crate) claim: Claimed,
    /// Claimed factor, if any.
    pub(crate) times: Option<f64>,
    /// Overrides the rule's margin.
    pub(crate) margin: Option<f64>,
}

/// Compares two arms of `runs`, using the noise of either arm compared with itself.
pub(crate) fn compare<'a>(
    rule: &Rule,
    runs: &Runs<'a>,
    arms: [&Arm<'a>; 2],
    claim: &RatioClaim<'_>,
) -> Result<Finding<'a>, Gap> {
    let [a, b] = arms;
    let [metric_a, metric_b] = claim.metrics;
    let table = columns(&[(a, metric_a), (b, metric_b)], rule.blocks_min)?;
    let ratio = Ratio::of(&table.values[0], &table.values[1], rule.seed).map_err(Gap::undefined)?;
    let noise = noise_floor(rule, runs, arms, claim.metrics);
    let below_noise = noise.is_some_and(|floor| ratio.effect() <= floor);
    let (held, reason) = match claim.times {
        Some(times) => {
            let (held, reason) = reaches(&ratio, claim.claim, times);
            (held.filter(|held| !(*held && below_noise)), reason)
        }
        None => {
            let rule = rule.stats(claim.margin);
            let judgement = above_noise(&ratio, claim.claim, &rule, noise);
            (answer(judgement), decide(&ratio, claim.claim, &rule).reason.to_string())
        }
    };
    let reason = match noise.filter(|_| below_noise && held.is_none()) {
        Some(floor) => format!("{reason}, but {}", noise_words(floor)),
        None => reason,
    };
    let what = if metric_a == metric_b {
        format!("{metric_a}: {} / {}", a.name, b.name)
    } else {
        format!("{metric_a} of {} relative to {metric_b} of {}", a.name, b.name)
    };
    let words = format!(
        "{what} is {:.3} ({:.3} to {:.3}) in {} blocks: {reason}",
        ratio.ratio, ratio.lo, ratio.hi, ratio.n
    );
    let interval = ratio_interval(&ratio);
    let series = table.values[0].iter().zip(&table.values[1]).map(|(a, b)| (a / b).ln()).collect();
    let finding = Finding::new(held, Effect::Ratio, &interval, words)
        .of_arms(&arms, runs, &table)
        .number("a_median", median(&table.values[0]))
        .number("b_median", median(&table.values[1]))
        .noise(noise);
    Ok(Finding { series, below_noise, ..finding })
}

/// Returns the interval of a ratio.
pub(crate) fn ratio_interval(ratio: &Ratio) -> Interval {
    let Ratio { ratio: estimate, lo, hi, confidence, .. } = *ratio;
    Interval { estimate, lo, hi, confidence, resamples: 0 }
}

/// Judges a ratio given the noise floor, the difference between two runs of the same plan. A
/// difference that does not exceed the floor shows nothing in either direction. An interval within
/// the margin shows equality regardless of the floor.
pub(crate) fn above_noise(
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

/// Describes a difference that does not exceed the noise.
pub(crate) fn noise_words(floor: f64) -> String {
    format!("runs of the same plan differ by {:.1} %", floor * 100.0)
}

/// Reports whether a ratio reaches the specified factor on the claimed side of 1, and describes the
/// claim.
fn reaches(ratio: &Ratio, claim: Claimed, times: f64) -> (Option<bool>, String) {
    let (claimed, words) = match claim {
        Claimed::Less => (ratio.inverse(), format!("at most 1/{times} is claimed")),
        Claimed::Greater | Claimed::Equal => (*ratio, format!("at least {times} is claimed")),
    };
    (at_least(claimed.lo, claimed.hi, times), words)
}

/// Returns the noise floor of an arm that ran twice in each block: one of `arms` if possible,
/// otherwise any other arm of the same comparison.
pub(crate) fn noise_floor(
    rule: &Rule,
    runs: &Runs<'_>,
    arms: [&Arm<'_>; 2],
    metrics: [&str; 2],
) -> Option<f64> {
    let others = runs.arms.iter().map(|arm| (arm, metrics[0]));
    arms.into_iter().zip(metrics).chain(others).find_map(|(arm, metric)| {
        let repeat = runs.repeat(arm)?;
        let pair = columns(&[(arm, metric), (repeat, metric)], rule.blocks_min).ok()?;
        aa_noise(&pair.values[0], &pair.values[1], rule.seed).ok().map(|n| n.floor)
    })
}
