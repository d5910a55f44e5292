//! Factor level above which one family exceeds another.

use super::kind::{Context, Kind, elapsed};
use crate::evaluation::answer::{Answer, inside, undefined_words};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::levels::{Pairs, median_of, pair_up};
use crate::evaluation::pair::{above_noise, is_hidden, log_ratios, noise_floor, ratio_interval};
use crate::evaluation::runs::{Arm, Columns, columns};
use crate::family::Whole;
use crate::location::Location;
use crate::rule::Rule;
use crate::verdict::Effect;
use ioloom_predict::Workload;
use ioloom_stats::{Claimed, Interval, Ratio};
use serde::Deserialize;

/// Factor level above which one family exceeds another.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossing {
    /// Location of the arms; with axis `compute`, all computes of the experiment are used.
    pub at: Location,
    /// Family expected to be higher above the crossing.
    pub a: String,
    /// Family expected to be higher below the crossing.
    pub b: String,
    /// Factor, or `compute` for the mean demand in nanoseconds.
    pub axis: String,
    /// Number or formula.
    #[serde(default = "elapsed")]
    pub metric: String,
    /// Closed form that predicts the crossing.
    #[serde(default)]
    pub law: Option<Law>,
}

/// Closed form that predicts where two families cross.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Law {
    /// `n = 1 + W/R`, where W is the compute time and R the total read wait of all threads.
    ReaderPays {
        /// Maximum error, in units of the factor.
        within: f64,
    },
}

impl Kind for Crossing {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at]
    }

    fn is_resampled(&self) -> bool {
        self.law.is_some()
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.a, &self.b]
    }

    fn axis(&self) -> Option<&str> {
        Some(&self.axis)
    }

    fn families(&self) -> Vec<Whole<'_>> {
        let whole = |pattern| Whole { at: &self.at, pattern, levels: None };
        vec![whole(&self.a), whole(&self.b)]
    }

    fn metrics(&self) -> Vec<&str> {
        vec![&self.metric]
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let Self { metric, .. } = self;
        let rule = &context.rule;
        let runs = context.runs(&self.at, self);
        let Pairs { ran: pairs, lost, top } = pair_up(&runs, &self.a, &self.b, &self.axis)?;
        // Without the highest level, families may cross once more.
        if let Some(gap) = top {
            return Err(gap);
        }
        let x: Vec<f64> = pairs.iter().map(|(x, _)| *x).collect();
        let arms: Vec<&Arm<'a>> = pairs.iter().flat_map(|(_, arms)| *arms).collect();
        let mut wanted: Vec<_> = arms.iter().map(|arm| (*arm, metric.as_str())).collect();
        let compared = wanted.len();
        let (threads, law_wants) = law_columns(&pairs);
        wanted.extend(self.law.iter().flat_map(|_| law_wants));
        let table = columns(&wanted, rule.blocks_min)?;
        let blocks = table.values[0].len();
        let logs: Vec<Vec<f64>> = table.values[..compared]
            .chunks(2)
            .map(|pair| pair[0].iter().zip(&pair[1]).map(|(a, b)| (a / b).ln()).collect())
            .collect();
        let crossing = |drawn: &[usize]| {
            turn(&x, &logs.iter().map(|level| median_of(level, drawn)).collect::<Vec<_>>())
        };
        let found = rule.over_blocks(blocks, crossing).ok().map(|resampled| resampled.interval);
        let all: Vec<usize> = (0..blocks).collect();
        let medians: Vec<f64> = logs.iter().map(|level| median_of(level, &all)).collect();
        let changes = changes(&medians);
        let crossed = crossed_words(&self.axis, (&x, &medians), &changes);
        let top = [arms[arms.len() - 2], arms[arms.len() - 1]];
        let floor = noise_floor(rule, [&runs; 2], top, [metric, metric]);
        let finding = match self.law {
            Some(Law::ReaderPays { within }) => {
                let work = |drawn: &[usize]| break_even(threads, &table.values[compared..], drawn);
                let mut finding = match crossing(&all) {
                    Some(at) => by_law(rule, (blocks, at), [&crossing, &work], within, &self.axis)?,
                    None => {
                        self.never_turns(rule, (&x, &table), (&work, within, &crossed), floor)?
                    }
                };
                if changes.len() > 1 && !finding.words.contains(&crossed) {
                    finding.words.push_str(&format!("; {crossed}"));
                }
                finding
            }
            None => self.turns(rule, (&x, &table), (found.as_ref(), &crossed), floor)?,
        };
        let finding = finding.without(lost, ["level", "levels"]);
        let mut finding = finding.of_arms(&arms, &runs, &table);
        if let Some(interval) = found {
            finding = finding
                .number("crossing", interval.estimate)
                .number("crossing_lo", interval.lo)
                .number("crossing_hi", interval.hi);
        }
        Ok(Finding { series: logs[logs.len() - 1].clone(), ..finding })
    }
}

impl Crossing {
    /// Checks that `a` is higher at the highest level and lower at some lower level.
    fn turns<'a>(
        &self,
        rule: &Rule,
        (x, table): (&[f64], &Columns),
        (found, crossed): (Option<&Interval>, &str),
        floor: Option<f64>,
    ) -> Result<Finding<'a>, Gap> {
        let judge = |level, claim| at_level(rule, table, level, claim, floor);
        let highest = x.len() - 1;
        let (top, above) = judge(highest, Claimed::Greater)?;
        // Any lower level may show it, so the smallest p-value counts as often as there are levels.
        let mut below = Answer::OPEN;
        let mut lowest: Option<(usize, Ratio)> = None;
        for level in 0..highest {
            let (ratio, lower) = judge(level, Claimed::Less)?;
            if lowest.is_none_or(|(_, least)| ratio.hi < least.hi) {
                lowest = Some((level, ratio));
            }
            if lower.holds == Some(true) {
                let p = (lower.p * highest as f64).min(1.0);
                below = Answer { holds: Some(true), p: p.min(below.p) };
            }
        }
        let answer = match (above.holds, below.holds) {
            (Some(true), Some(true)) => above.and(below),
            (Some(false), _) => above,
            _ => Answer::OPEN,
        };
        let Self { a, b, axis, .. } = self;
        let lowest = lowest.map_or(String::new(), |(level, ratio)| {
            let Ratio { ratio, lo, hi, .. } = ratio;
            format!(", and at {axis} {} it is {ratio:.3} ({lo:.3} to {hi:.3})", x[level])
        });
        // Of several crossings, the interval is that of the last one.
        let crossing = found.map_or(String::new(), |i| {
            format!(", interpolated: {axis} {:.4} ({:.4} to {:.4})", i.estimate, i.lo, i.hi)
        });
        let words = format!(
            "at {axis} {}, {a} / {b} is {:.3} ({:.3} to {:.3}){lowest} in {} blocks; \
             {crossed}{crossing}",
            x[highest], top.ratio, top.lo, top.hi, top.n
        );
        let below_noise = is_hidden(&top, &rule.stats(None), floor);
        let interval = ratio_interval(&top);
        let finding = Finding::new(answer, Effect::Ratio, &interval, words).noise(floor);
        Ok(Finding { below_noise, ..finding })
    }

    /// Judges a prediction for families that do not cross: it fails if they are in the wrong order at a
    /// level farther from it than its error and the permitted one.
    fn never_turns<'a>(
        &self,
        rule: &Rule,
        (x, table): (&[f64], &Columns),
        (predicted, within, crossed): (&Statistic<'_>, f64, &str),
        floor: Option<f64>,
    ) -> Result<Finding<'a>, Gap> {
        let Self { a, b, axis, .. } = self;
        let law = rule.over_blocks(table.blocks.len(), predicted)?.interval;
        // The opposite of what the law predicts there.
        let contrary = |at: f64| match at {
            _ if at >= law.hi + within => Some(Claimed::Less),
            _ if at <= law.lo - within => Some(Claimed::Greater),
            _ => None,
        };
        let beyond: Vec<(usize, Claimed)> =
            x.iter().enumerate().filter_map(|(level, at)| Some((level, contrary(*at)?))).collect();
        let mut against: Option<(usize, Ratio, f64)> = None;
        for (level, claim) in &beyond {
            let (ratio, answer) = at_level(rule, table, *level, *claim, floor)?;
            // Any of the levels may show it.
            let p = (answer.p * beyond.len() as f64).min(1.0);
            if answer.holds == Some(true) && against.is_none_or(|(_, _, least)| p < least) {
                against = Some((*level, ratio, p));
            }
        }
        let expected = law.estimate;
        let (level, ratio, p) = against.ok_or_else(|| {
            Gap::Undefined(format!(
                "{crossed}; the law predicts that {a} becomes higher at {axis} {expected:.2}"
            ))
        })?;
        let words = format!(
            "{crossed}, the law predicts {axis} {expected:.2} ({:.2} to {:.2}), claimed: an error \
             of at most {within}; at {axis} {}, {a} / {b} is {:.3} ({:.3} to {:.3}) in {} blocks",
            law.lo, law.hi, x[level], ratio.ratio, ratio.lo, ratio.hi, ratio.n
        );
        let answer = Answer { holds: Some(false), p };
        let finding = Finding::new(answer, Effect::Ratio, &ratio_interval(&ratio), words);
        Ok(finding.noise(floor).number("predicted", expected))
    }
}

/// Compares the families at one level.
fn at_level(
    rule: &Rule,
    table: &Columns,
    level: usize,
    claim: Claimed,
    floor: Option<f64>,
) -> Result<(Ratio, Answer), Gap> {
    let pair = &table.values[2 * level..2 * level + 2];
    let series = log_ratios(&pair[0], &pair[1])?;
    let ratio = Ratio::of_logs(&series).map_err(Gap::undefined)?;
    Ok((ratio, above_noise(&series, &ratio, claim, &rule.stats(None), floor)?))
}

/// Returns where a series of differences changes from negative to positive for good, by linear
/// interpolation.
fn turn(x: &[f64], y: &[f64]) -> Option<f64> {
    let last = (1..y.len()).rev().find(|i| y[*i - 1] < 0.0 && y[*i] >= 0.0)?;
    if y[last..].iter().any(|v| *v < 0.0) {
        return None;
    }
    let share = -y[last - 1] / (y[last] - y[last - 1]);
    Some(x[last - 1] + share * (x[last] - x[last - 1]))
}

/// Returns the levels at which the sign of a series of differences is not that of the level before.
fn changes(y: &[f64]) -> Vec<usize> {
    (1..y.len()).filter(|i| (y[*i - 1] < 0.0) != (y[*i] < 0.0)).collect()
}

/// Says between which levels families cross, with the ratio of the families at each.
fn crossed_words(axis: &str, (x, medians): (&[f64], &[f64]), changes: &[usize]) -> String {
    let level = |i: usize| format!("{axis} {} (ratio {:.3})", x[i], medians[i].exp());
    let between = |i: &usize| format!("between {} and {}", level(i - 1), level(*i));
    let all: Vec<String> = changes.iter().map(between).collect();
    match all.as_slice() {
        [] => "they do not cross between the measured levels".to_owned(),
        [one] => format!("they cross {one}"),
        several => format!("they cross {} times, {}", several.len(), several.join(" and ")),
    }
}

/// The inputs of law D1 are taken near this number of threads.
const LAW_THREADS: f64 = 4.0;

/// Returns the inputs of law D1, taken from the synchronous arm nearest to four threads, and its
/// number of threads.
fn law_columns<'r, 'a>(
    pairs: &[(f64, [&'r Arm<'a>; 2])],
) -> (f64, [(&'r Arm<'a>, &'static str); 3]) {
    let near = |x: f64| (x - LAW_THREADS).abs();
    let nearest = pairs.iter().min_by(|a, b| near(a.0).total_cmp(&near(b.0)));
    let (threads, [sync, _]) = nearest.expect("pair_up returns at least two levels");
    let names = ["calls.compute.total_ns", "elapsed_ns", "share.io"];
    (*threads, names.map(|name| (*sync, name)))
}

/// Returns the break-even point of law D1 from the total compute time and the time that threads
/// waited for input.
fn break_even(threads: f64, columns: &[Vec<f64>], drawn: &[usize]) -> Option<f64> {
    let compute_s = median_of(&columns[0], drawn) / 1e9;
    let elapsed_ns = median_of(&columns[1], drawn);
    let wait_s = elapsed_ns * median_of(&columns[2], drawn) * threads / 1e9;
    Some(Workload::new(compute_s, wait_s).ok()?.break_even_threads()).filter(|n| n.is_finite())
}

/// A statistic over block indices.
type Statistic<'a> = dyn Fn(&[usize]) -> Option<f64> + 'a;

/// Compares the measured crossing with the prediction.
fn by_law<'a>(
    rule: &Rule,
    (blocks, measured): (usize, f64),
    [crossing, predicted]: [&Statistic<'_>; 2],
    within: f64,
    axis: &str,
) -> Result<Finding<'a>, Gap> {
    let all: Vec<usize> = (0..blocks).collect();
    let expected = predicted(&all)
        .ok_or_else(|| Gap::Undefined("the law has no value for these runs".to_owned()))?;
    let resampled = rule.over_blocks(blocks, |drawn| Some(crossing(drawn)? - predicted(drawn)?))?;
    let error = resampled.interval;
    let words = format!(
        "they cross at {axis} {measured:.2}, the law predicts {expected:.2}: an error of {:+.2} \
         ({:+.2} to {:+.2}) in {blocks} blocks, claimed: at most {within}",
        error.estimate, error.lo, error.hi
    ) + &undefined_words(&resampled);
    let answer = inside(&resampled, [-within, within]);
    Ok(Finding::new(answer, Effect::Level, &error, words).number("predicted", expected))
}

#[cfg(test)]
mod tests {
    use super::{changes, crossed_words, turn};

    #[test]
    fn every_crossing_is_named_with_its_levels() {
        let words = |y: &[f64]| crossed_words("n", (&[2.0, 4.0, 8.0], y), &changes(y));
        let log = f64::ln;
        assert_eq!(words(&[0.1, 0.1, 0.1]), "they do not cross between the measured levels");
        assert_eq!(
            words(&[log(0.5), log(0.75), log(2.0)]),
            "they cross between n 4 (ratio 0.750) and n 8 (ratio 2.000)"
        );
        assert_eq!(
            words(&[log(1.5), log(0.75), log(2.0)]),
            "they cross 2 times, between n 2 (ratio 1.500) and n 4 (ratio 0.750) and between n 4 \
             (ratio 0.750) and n 8 (ratio 2.000)"
        );
    }

    #[test]
    fn the_last_turn_counts_if_nothing_turns_back() {
        let x = [2.0, 4.0, 8.0];
        assert_eq!(turn(&x, &[-1.0, 1.0, 2.0]), Some(3.0));
        assert_eq!(turn(&x, &[-1.0, -1.0, 1.0]), Some(6.0));
        assert_eq!(turn(&x, &[1.0, -1.0, 1.0]), Some(6.0));
        assert_eq!(turn(&x, &[-1.0, 1.0, -1.0]), None);
        assert_eq!(turn(&x, &[1.0, 1.0, 1.0]), None);
        assert_eq!(turn(&x, &[-1.0, -1.0, -1.0]), None);
    }
}
