//! The ratio of two arms, judged against the noise of an arm compared with itself.

use super::answer::{Answer, Centre};
use super::finding::Finding;
use super::gap::Gap;
use super::runs::{Arm, Runs, columns};
use crate::rule::Rule;
use crate::verdict::Effect;
use ioloom_stats::{
    Claimed, Interval, Ratio, Reason, aa_noise, decide, difference_floor, equivalence, median,
};

/// Share of the margin below which the scatter of a series cannot matter.
const NEGLIGIBLE: f64 = 0.1;

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

/// Compares two arms, each from its own runs, using the noise of either arm compared with itself.
pub(crate) fn compare<'a>(
    rule: &Rule,
    runs: [&Runs<'a>; 2],
    arms: [&Arm<'a>; 2],
    claim: &RatioClaim<'_>,
) -> Result<Finding<'a>, Gap> {
    let [a, b] = arms;
    let [metric_a, metric_b] = claim.metrics;
    let table = columns(&[(a, metric_a), (b, metric_b)], rule.blocks_min)?;
    let series = log_ratios(&table.values[0], &table.values[1])?;
    let ratio = Ratio::of_logs(&series).map_err(Gap::undefined)?;
    let noise = noise_floor(rule, runs, arms, claim.metrics);
    let of_stats = rule.stats(claim.margin);
    let below_noise = match claim.times {
        Some(_) => is_below(ratio.effect(), noise),
        None => is_claim_hidden(&ratio, claim.claim, &of_stats, noise),
    };
    let (answer, reason) = match claim.times {
        Some(times) => {
            let (answer, reason) = reaches(&series, claim.claim, times)?;
            let kept = !(answer.holds == Some(true) && below_noise);
            (if kept { answer } else { Answer::OPEN }, reason)
        }
        None => {
            let answer = above_noise(&series, &ratio, claim.claim, &of_stats, noise)?;
            (answer, decide(&ratio, claim.claim, &of_stats).reason.to_string())
        }
    };
    let reason = match noise.filter(|_| below_noise && answer.holds.is_none()) {
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
    let finding = Finding::new(answer, Effect::Ratio, &interval, words)
        .of_arms(&arms, runs[0], &table)
        .number("a_median", median(&table.values[0]))
        .number("b_median", median(&table.values[1]))
        .noise(noise);
    let negligible = NEGLIGIBLE * of_stats.margin;
    Ok(Finding { series, negligible, below_noise, ..finding })
}

/// Returns `ln(a / b)` for each block.
pub(crate) fn log_ratios(a: &[f64], b: &[f64]) -> Result<Vec<f64>, Gap> {
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| a.ln() - b.ln()).collect();
    match logs.iter().all(|log| log.is_finite()) {
        true => Ok(logs),
        false => Err(Gap::Undefined("a ratio needs values above zero".to_owned())),
    }
}

/// Returns the interval of a ratio.
pub(crate) fn ratio_interval(ratio: &Ratio) -> Interval {
    let Ratio { ratio: estimate, lo, hi, confidence, .. } = *ratio;
    Interval { estimate, lo, hi, confidence, resamples: 0 }
}

/// Judges a ratio given the noise floor, the difference between two runs of the same plan. A
/// difference that does not exceed the floor shows nothing in either direction. An interval within
/// the margin shows equality regardless of the floor, and one that does not exceed it, `at most`.
pub(crate) fn above_noise(
    series: &[f64],
    ratio: &Ratio,
    claim: Claimed,
    rule: &ioloom_stats::Rule,
    floor: Option<f64>,
) -> Result<Answer, Gap> {
    if is_claim_hidden(ratio, claim, rule, floor) {
        return Ok(Answer::OPEN);
    }
    let centre = Centre::of(series)?;
    let margin = (1.0 + rule.margin).ln();
    Ok(match decide(ratio, claim, rule).reason {
        Reason::ClaimedSide if claim == Claimed::Less => Answer::new(true, centre.below(0.0)),
        Reason::ClaimedSide => Answer::new(true, centre.above(0.0)),
        Reason::OtherSide if claim == Claimed::Less => Answer::new(false, centre.above(0.0)),
        Reason::OtherSide => Answer::new(false, centre.below(0.0)),
        Reason::WithinMargin => {
            let p = centre.above(-margin).max(centre.below(margin));
            Answer::new(claim == Claimed::Equal, p)
        }
        Reason::OutsideMargin if ratio.ratio > 1.0 => Answer::new(false, centre.above(margin)),
        Reason::OutsideMargin => Answer::new(false, centre.below(-margin)),
        Reason::NotAboveMargin => Answer::new(true, centre.below(margin)),
        Reason::AboveMargin => Answer::new(false, centre.above(margin)),
        Reason::FewBlocks | Reason::SmallEffect | Reason::WideInterval => Answer::OPEN,
    })
}

/// Reports whether an effect of such a size does not exceed the noise floor. A floor of zero, as with runs of
/// the same plan that are all equal, hides nothing.
pub(crate) fn is_below(size: f64, floor: Option<f64>) -> bool {
    floor.is_some_and(|floor| floor > 0.0 && size <= floor)
}

/// Reports whether noise hides a ratio: it does not exceed the floor, and equality is not shown.
pub(crate) fn is_hidden(ratio: &Ratio, rule: &ioloom_stats::Rule, floor: Option<f64>) -> bool {
    is_below(ratio.effect(), floor) && !equivalence(ratio, rule.margin).equivalent
}

/// Reports whether noise hides a ratio that is claimed: an interval that does not exceed the margin shows
/// `at most`, however small the effect.
pub(crate) fn is_claim_hidden(
    ratio: &Ratio,
    claim: Claimed,
    rule: &ioloom_stats::Rule,
    floor: Option<f64>,
) -> bool {
    let is_shown = claim == Claimed::AtMost && ratio.hi <= 1.0 + rule.margin;
    !is_shown && is_hidden(ratio, rule, floor)
}

/// Describes a difference that does not exceed the noise.
pub(crate) fn noise_words(floor: f64) -> String {
    format!("runs of the same plan differ by {:.1} %", floor * 100.0)
}

/// Answers whether a ratio reaches the specified factor on the claimed side of 1, and describes the
/// claim.
fn reaches(series: &[f64], claim: Claimed, times: f64) -> Result<(Answer, String), Gap> {
    let centre = Centre::of(series)?;
    Ok(match claim {
        Claimed::Less => (centre.at_most(-times.ln()), format!("at most 1/{times} is claimed")),
        Claimed::Greater | Claimed::Equal | Claimed::AtMost => {
            (centre.at_least(times.ln()), format!("at least {times} is claimed"))
        }
    })
}

/// Returns the noise floor of a comparison: the larger one if both arms ran twice in each block,
/// otherwise that of the one that did, otherwise that of any other arm of the same comparisons. The
/// second run of an arm is that in its own runs: an arm of the same name at another location did other
/// work.
pub(crate) fn noise_floor(
    rule: &Rule,
    runs: [&Runs<'_>; 2],
    arms: [&Arm<'_>; 2],
    metrics: [&str; 2],
) -> Option<f64> {
    let floor = |runs: &Runs<'_>, arm: &Arm<'_>, metric: &str| {
        let repeat = runs.repeat(arm)?;
        let pair = columns(&[(arm, metric), (repeat, metric)], rule.blocks_min).ok()?;
        aa_noise(&pair.values[0], &pair.values[1]).ok().map(|n| n.floor)
    };
    let own = (0..2).filter_map(|side| floor(runs[side], arms[side], metrics[side]));
    let any = || {
        let sides = (0..2).flat_map(|side| runs[side].arms.iter().map(move |arm| (side, arm)));
        sides.into_iter().find_map(|(side, arm)| floor(runs[side], arm, metrics[side]))
    };
    own.reduce(f64::max).or_else(any)
}

/// Returns the noise floor of a contrast of differences, in their unit: the largest of these arms
/// that ran twice in each block, otherwise that of any other arm of the same comparison.
/// `difference` computes it from the first and the second run of an arm.
pub(crate) fn difference_noise(
    rule: &Rule,
    runs: &Runs<'_>,
    arms: &[&Arm<'_>],
    metric: &str,
    difference: impl Fn(f64, f64) -> f64,
) -> Option<f64> {
    let floor = |arm: &Arm<'_>| {
        let pair = columns(&[(arm, metric), (runs.repeat(arm)?, metric)], rule.blocks_min).ok()?;
        let both = pair.values[0].iter().zip(&pair.values[1]);
        difference_floor(&both.map(|(a, b)| difference(*a, *b)).collect::<Vec<_>>()).ok()
    };
    let own = arms.iter().filter_map(|arm| floor(arm));
    own.reduce(f64::max).or_else(|| runs.arms.iter().find_map(floor))
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn equal_runs_of_a_plan_are_not_noise() {
        assert!(!is_below(0.0, Some(0.0)) && !is_below(0.0, None));
        assert!(is_below(0.0, Some(0.1)) && is_below(0.1, Some(0.1)));
        assert!(!is_below(0.2, Some(0.1)));
    }
}
