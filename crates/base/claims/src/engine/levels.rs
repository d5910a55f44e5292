//! Contrasts over the levels of a factor: ladders, lines, crossings, gains and correlations.

use super::compare::{above_noise, holds, noise_floor, ratio_interval};
use super::runs::{Arm, Columns, Gap, Runs, columns};
use super::{Bench, Finding};
use crate::claim::{Contrast, Law, Shape};
use ioloom_predict::Work;
use ioloom_stats::{Better, Claimed, Interval, Judgement, Line, Ratio, knee, median, spearman};

fn wrong<T>() -> Result<T, Gap> {
    Err(Gap::Undefined("the contrast is of another kind".to_owned()))
}

fn undefined(error: impl std::fmt::Display) -> Gap {
    Gap::Undefined(error.to_string())
}

/// A family over its levels, on the blocks that all levels share.
struct Ladder<'r, 'a> {
    x: Vec<f64>,
    arms: Vec<&'r Arm<'a>>,
    table: Columns,
    /// Levels that could not run.
    lost: usize,
}

impl<'r, 'a> Ladder<'r, 'a> {
    fn new(
        bench: &Bench<'a>,
        runs: &'r Runs<'a>,
        (pattern, axis, range): (&str, &str, Option<[f64; 2]>),
        metric: &str,
        least: usize,
    ) -> Result<Self, Gap> {
        let levels = runs.levels(pattern, axis, range)?;
        let all = levels.len();
        let gap = levels.iter().find_map(|(_, arm)| arm.gap());
        let ran: Vec<_> = levels.into_iter().filter(|(_, arm)| arm.gap().is_none()).collect();
        // A ladder with a missing rung is still one, as long as enough are left to see its shape.
        if ran.len() < least {
            return Err(gap.unwrap_or_else(|| {
                Gap::Missing(vec![format!("{pattern} on {least} levels ({} ran)", ran.len())])
            }));
        }
        let (x, arms): (Vec<f64>, Vec<&Arm<'a>>) = ran.into_iter().unzip();
        let wanted: Vec<_> = arms.iter().map(|arm| (*arm, metric)).collect();
        let table = columns(&wanted, bench.rule.blocks_min)?;
        Ok(Self { lost: all - x.len(), x, arms, table })
    }

    fn blocks(&self) -> usize {
        self.table.values[0].len()
    }

    fn medians(&self, drawn: &[usize]) -> Vec<f64> {
        let of = |column: &Vec<f64>| median(&drawn.iter().map(|i| column[*i]).collect::<Vec<_>>());
        self.table.values.iter().map(of).collect()
    }

    fn all(&self) -> Vec<f64> {
        self.medians(&(0..self.blocks()).collect::<Vec<_>>())
    }

    fn ratio(&self, a: usize, b: usize, seed: u64) -> Result<Ratio, Gap> {
        Ratio::of(&self.table.values[a], &self.table.values[b], seed).map_err(undefined)
    }

    fn series(&self, a: usize, b: usize) -> Vec<f64> {
        let pairs = self.table.values[a].iter().zip(&self.table.values[b]);
        pairs.map(|(a, b)| (a / b).ln()).collect()
    }

    /// Adds the arms, the medians by level and the note on lost levels.
    fn finish(&self, mut finding: Finding<'a>, runs: &Runs<'a>, axis: &str) -> Finding<'a> {
        if self.lost > 0 {
            finding.words = format!("{}; {} levels could not run", finding.words, self.lost);
        }
        let mut finding = finding.of_arms(&self.arms, runs, &self.table);
        for (x, y) in self.x.iter().zip(self.all()) {
            finding = finding.number(&format!("median_at_{axis}_{x}"), y);
        }
        finding
    }
}

pub(super) fn ladder<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Ladder { at, arms, axis, metric, shape, levels, within, margin } = contrast
    else {
        return wrong();
    };
    let runs = bench.runs(at, contrast);
    let least = if matches!(shape, Shape::Knee | Shape::Lowest) { 3 } else { 2 };
    let ladder = Ladder::new(bench, &runs, (arms, axis, *levels), metric, least)?;
    let ends = [ladder.arms[ladder.arms.len() - 1], ladder.arms[0]];
    let floor = noise_floor(bench, &runs, ends, [metric, metric]);
    let finding = match shape {
        Shape::Flat => flat(bench, &ladder, metric, *margin, floor)?,
        Shape::Rising => slope(bench, &ladder, metric, *margin, Claimed::Greater, floor)?,
        Shape::Falling => slope(bench, &ladder, metric, *margin, Claimed::Less, floor)?,
        Shape::Knee => {
            let share = margin.unwrap_or(bench.rule.margin);
            let near =
                |y: &[f64]| knee(&ladder.x, y, Better::Less, share).ok().map(|k| k.near_best);
            let what = format!("the smallest {axis} within {:.0} % of the best", share * 100.0);
            located(bench, &ladder, *within, &what, near)?
        }
        Shape::Lowest => {
            let lowest = |y: &[f64]| {
                let at = (0..y.len()).min_by(|i, j| y[*i].total_cmp(&y[*j]))?;
                Some(ladder.x[at])
            };
            located(
                bench,
                &ladder,
                *within,
                &format!("the {axis} with the lowest {metric}"),
                lowest,
            )?
        }
    };
    Ok(ladder.finish(finding, &runs, axis))
}

/// Every level against the lowest one: the same within the margin.
fn flat<'a>(
    bench: &Bench<'a>,
    ladder: &Ladder<'_, 'a>,
    metric: &str,
    margin: Option<f64>,
    floor: Option<f64>,
) -> Result<Finding<'a>, Gap> {
    let rule = bench.rule.stats(margin);
    let mut judged = Vec::new();
    for i in 1..ladder.x.len() {
        let ratio = ladder.ratio(i, 0, bench.rule.seed)?;
        judged.push((i, ratio, above_noise(&ratio, Claimed::Equal, &rule, floor)));
    }
    let held = if judged.iter().any(|(_, _, j)| *j == Judgement::Refuted) {
        Some(false)
    } else if judged.iter().all(|(_, _, j)| *j == Judgement::Confirmed) {
        Some(true)
    } else {
        None
    };
    let farthest = judged.iter().max_by(|a, b| a.1.effect().total_cmp(&b.1.effect()));
    let (i, ratio, _) = farthest.ok_or_else(|| Gap::Undefined("one level".to_owned()))?;
    let words = format!(
        "{metric} of {} is farthest from that of {}: {:.3} ({:.3} to {:.3}) in {} blocks, a margin of {:.1} % is claimed",
        ladder.arms[*i].name,
        ladder.arms[0].name,
        ratio.ratio,
        ratio.lo,
        ratio.hi,
        ratio.n,
        rule.margin * 100.0
    );
    let below_noise = floor.is_some_and(|floor| ratio.effect() <= floor);
    let finding = Finding::new(held, "ratio", &ratio_interval(ratio), words).noise(floor);
    Ok(Finding { series: ladder.series(*i, 0), below_noise, ..finding })
}

/// The highest level against the lowest, and no step clearly the other way.
fn slope<'a>(
    bench: &Bench<'a>,
    ladder: &Ladder<'_, 'a>,
    metric: &str,
    margin: Option<f64>,
    claim: Claimed,
    floor: Option<f64>,
) -> Result<Finding<'a>, Gap> {
    let rule = bench.rule.stats(margin);
    let judged = |ratio: &Ratio, claim| above_noise(ratio, claim, &rule, floor);
    let last = ladder.x.len() - 1;
    let ends = ladder.ratio(last, 0, bench.rule.seed)?;
    let contrary = if claim == Claimed::Greater { Claimed::Less } else { Claimed::Greater };
    let mut against = None;
    for i in 1..=last {
        let step = ladder.ratio(i, i - 1, bench.rule.seed)?;
        if judged(&step, contrary) == Judgement::Confirmed {
            against = against.or(Some((i, step)));
        }
    }
    let mut words = format!(
        "{metric} of {} over {} is {:.3} ({:.3} to {:.3}) in {} blocks",
        ladder.arms[last].name, ladder.arms[0].name, ends.ratio, ends.lo, ends.hi, ends.n
    );
    let mut held = holds(judged(&ends, claim));
    if let Some((i, step)) = against {
        held = Some(false);
        words = format!(
            "{words}, but the step to {} goes the other way ({:.3}, {:.3} to {:.3})",
            ladder.arms[i].name, step.ratio, step.lo, step.hi
        );
    }
    let below_noise = floor.is_some_and(|floor| ends.effect() <= floor);
    let finding = Finding::new(held, "ratio", &ratio_interval(&ends), words).noise(floor);
    Ok(Finding { series: ladder.series(last, 0), below_noise, ..finding })
}

/// A level that is read off the medians, and where it is claimed to lie.
fn located<'a>(
    bench: &Bench<'a>,
    ladder: &Ladder<'_, 'a>,
    within: Option<[f64; 2]>,
    what: &str,
    level: impl Fn(&[f64]) -> Option<f64>,
) -> Result<Finding<'a>, Gap> {
    let [lo, hi] = within.ok_or_else(|| Gap::Undefined("it does not say where".to_owned()))?;
    let interval =
        bench.rule.over_blocks(ladder.blocks(), |drawn| level(&ladder.medians(drawn)))?;
    let held = if lo <= interval.lo && interval.hi <= hi {
        Some(true)
    } else if interval.hi < lo || hi < interval.lo {
        Some(false)
    } else {
        None
    };
    let claimed = if lo == hi { format!("{lo}") } else { format!("{lo} to {hi}") };
    let words = format!(
        "{what} is {} ({} to {}) in {} blocks, claimed: {claimed}",
        interval.estimate,
        interval.lo,
        interval.hi,
        ladder.blocks()
    );
    Ok(Finding::new(held, "level", &interval, words))
}

pub(super) fn linear<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Linear { at, arms, axis, metric, r2, growth } = contrast else {
        return wrong();
    };
    let runs = bench.runs(at, contrast);
    let ladder = Ladder::new(bench, &runs, (arms, axis, None), metric, 3)?;
    let blocks = ladder.blocks();
    let explained = bench.rule.over_blocks(blocks, |drawn| {
        // A constant is explained by no slope at all.
        Some(Line::fit(&ladder.x, &ladder.medians(drawn)).ok()?.r2.unwrap_or(0.0))
    })?;
    let grown = bench.rule.over_blocks(blocks, |drawn| {
        let y = ladder.medians(drawn);
        Some(y[y.len() - 1] / y[0])
    })?;
    let held = if explained.lo >= *r2 && grown.lo >= *growth {
        Some(true)
    } else if explained.hi < *r2 || grown.hi < *growth {
        Some(false)
    } else {
        None
    };
    let line = Line::fit(&ladder.x, &ladder.all()).map_err(undefined)?;
    let words = format!(
        "a line over {axis} explains {:.4} ({:.4} to {:.4}) of {metric}, which grows {:.1} times ({:.1} to {:.1}) in {blocks} blocks; claimed: at least {r2} and {growth} times",
        explained.estimate, explained.lo, explained.hi, grown.estimate, grown.lo, grown.hi
    );
    let finding = Finding::new(held, "explained", &explained, words)
        .number("slope", line.slope)
        .number("intercept", line.intercept)
        .number("growth", grown.estimate);
    Ok(ladder.finish(finding, &runs, axis))
}

/// Two families on the levels they share.
fn pair_up<'r, 'a>(
    runs: &'r Runs<'a>,
    a: &str,
    b: &str,
    axis: &str,
) -> Result<Vec<(f64, [&'r Arm<'a>; 2])>, Gap> {
    let right = runs.levels(b, axis, None)?;
    let pairs: Vec<_> = runs
        .levels(a, axis, None)?
        .into_iter()
        .filter_map(|(x, arm)| {
            let (_, other) = right.iter().find(|(y, _)| *y == x)?;
            Some((x, [arm, *other]))
        })
        .filter(|(_, arms)| arms.iter().all(|arm| arm.gap().is_none()))
        .collect();
    if pairs.len() < 2 {
        return Err(Gap::Missing(vec![format!("{a} beside {b} on two levels of {axis}")]));
    }
    Ok(pairs)
}

/// Where a ladder of differences turns from negative to positive for good, by interpolation.
fn turn(x: &[f64], y: &[f64]) -> Option<f64> {
    let last = (1..y.len()).rev().find(|i| y[*i - 1] < 0.0 && y[*i] >= 0.0)?;
    if y[last..].iter().any(|v| *v < 0.0) {
        return None;
    }
    let share = -y[last - 1] / (y[last] - y[last - 1]);
    Some(x[last - 1] + share * (x[last] - x[last - 1]))
}

pub(super) fn crossing<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Crossing { at, a, b, axis, metric, law } = contrast else {
        return wrong();
    };
    let runs = bench.runs(at, contrast);
    let pairs = pair_up(&runs, a, b, axis)?;
    let x: Vec<f64> = pairs.iter().map(|(x, _)| *x).collect();
    let arms: Vec<&Arm<'a>> = pairs.iter().flat_map(|(_, arms)| *arms).collect();
    let mut wanted: Vec<_> = arms.iter().map(|arm| (*arm, metric.as_str())).collect();
    let compared = wanted.len();
    let (threads, law_wants) = law_columns(&pairs);
    wanted.extend(law.iter().flat_map(|_| law_wants));
    let table = columns(&wanted, bench.rule.blocks_min)?;
    let blocks = table.values[0].len();
    let logs: Vec<Vec<f64>> = table.values[..compared]
        .chunks(2)
        .map(|pair| pair[0].iter().zip(&pair[1]).map(|(a, b)| (a / b).ln()).collect())
        .collect();
    let at_level = |level: &Vec<f64>, drawn: &[usize]| {
        median(&drawn.iter().map(|i| level[*i]).collect::<Vec<_>>())
    };
    let place = |drawn: &[usize]| {
        turn(&x, &logs.iter().map(|level| at_level(level, drawn)).collect::<Vec<_>>())
    };
    let found = bench.rule.over_blocks(blocks, place).ok();
    let finding = match law {
        Some(Law::ReaderPays { within }) => {
            let work = |drawn: &[usize]| break_even(threads, &table.values[compared..], drawn);
            by_law(bench, blocks, &place, work, *within, axis)?
        }
        None => {
            let top = [arms[arms.len() - 2], arms[arms.len() - 1]];
            let floor = noise_floor(bench, &runs, top, [metric, metric]);
            turns(bench, [a.as_str(), b.as_str()], axis, (&x, &table), found.as_ref(), floor)?
        }
    };
    let mut finding = finding.of_arms(&arms, &runs, &table);
    if let Some(interval) = found {
        finding = finding
            .number("crossing", interval.estimate)
            .number("crossing_lo", interval.lo)
            .number("crossing_hi", interval.hi);
    }
    Ok(Finding { series: logs[logs.len() - 1].clone(), ..finding })
}

/// Whether `a` is higher at the highest level and lower at some level below.
fn turns<'a>(
    bench: &Bench<'a>,
    [a, b]: [&str; 2],
    axis: &str,
    (x, table): (&[f64], &Columns),
    found: Option<&Interval>,
    floor: Option<f64>,
) -> Result<Finding<'a>, Gap> {
    let judge = |level: usize, claim| -> Result<_, Gap> {
        let pair = &table.values[2 * level..2 * level + 2];
        let ratio = Ratio::of(&pair[0], &pair[1], bench.rule.seed).map_err(undefined)?;
        Ok((ratio, above_noise(&ratio, claim, &bench.rule.stats(None), floor)))
    };
    let highest = x.len() - 1;
    let (top, above) = judge(highest, Claimed::Greater)?;
    let mut below = false;
    for level in 0..highest {
        below |= judge(level, Claimed::Less)?.1 == Judgement::Confirmed;
    }
    let held = match (above, below) {
        (Judgement::Confirmed, true) => Some(true),
        (Judgement::Refuted, _) => Some(false),
        _ => None,
    };
    let place = found.map_or("no crossing between the levels".to_owned(), |i| {
        format!("they cross at {axis} {:.4} ({:.4} to {:.4})", i.estimate, i.lo, i.hi)
    });
    let words = format!(
        "at {axis} {} {a} over {b} is {:.3} ({:.3} to {:.3}) in {} blocks; {place}",
        x[highest], top.ratio, top.lo, top.hi, top.n
    );
    let below_noise = floor.is_some_and(|floor| top.effect() <= floor);
    let finding = Finding::new(held, "ratio", &ratio_interval(&top), words).noise(floor);
    Ok(Finding { below_noise, ..finding })
}

/// Number of threads near which law D1 is fed.
const LAW_THREADS: f64 = 4.0;

/// What law D1 needs to know of the synchronous arm nearest to four threads, and its threads.
fn law_columns<'r, 'a>(
    pairs: &[(f64, [&'r Arm<'a>; 2])],
) -> (f64, [(&'r Arm<'a>, &'static str); 3]) {
    let near = |x: f64| (x - LAW_THREADS).abs();
    let nearest = pairs.iter().min_by(|a, b| near(a.0).total_cmp(&near(b.0)));
    let (threads, [sync, _]) = nearest.expect("there are at least two levels");
    let names = ["calls.compute.total_ns", "elapsed_ns", "share.io"];
    (*threads, names.map(|name| (*sync, name)))
}

/// The break-even of law D1: the compute of all files, and what the threads waited for input.
fn break_even(threads: f64, columns: &[Vec<f64>], drawn: &[usize]) -> Option<f64> {
    let mid = |column: &Vec<f64>| median(&drawn.iter().map(|i| column[*i]).collect::<Vec<_>>());
    let compute_s = mid(&columns[0]) / 1e9;
    let wait_s = mid(&columns[1]) * mid(&columns[2]) * threads / 1e9;
    Some(Work::new(compute_s, wait_s).ok()?.break_even_threads()).filter(|n| n.is_finite())
}

/// Measured crossing less the predicted one.
fn by_law<'a>(
    bench: &Bench<'a>,
    blocks: usize,
    place: &dyn Fn(&[usize]) -> Option<f64>,
    predicted: impl Fn(&[usize]) -> Option<f64>,
    within: f64,
    axis: &str,
) -> Result<Finding<'a>, Gap> {
    let all: Vec<usize> = (0..blocks).collect();
    let expected = predicted(&all)
        .ok_or_else(|| Gap::Undefined("the law has no value for these runs".to_owned()))?;
    let measured = place(&all).ok_or_else(|| {
        Gap::Undefined(format!(
            "no crossing between the levels that ran; the law expects it at {axis} {expected:.2}"
        ))
    })?;
    let error = bench.rule.over_blocks(blocks, |drawn| Some(place(drawn)? - predicted(drawn)?))?;
    let held = if -within <= error.lo && error.hi <= within {
        Some(true)
    } else if error.hi < -within || within < error.lo {
        Some(false)
    } else {
        None
    };
    let words = format!(
        "they cross at {axis} {measured:.2}, the law says {expected:.2}: {:+.2} ({:+.2} to {:+.2}) in {blocks} blocks, at most {within} is claimed",
        error.estimate, error.lo, error.hi
    );
    Ok(Finding::new(held, "level", &error, words).number("predicted", expected))
}

pub(super) fn gain<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Gain { at, a, b, axis, levels, relative, metric, claim } = contrast else {
        return wrong();
    };
    let runs = bench.runs(at, contrast);
    let pairs = pair_up(&runs, a, b, axis)?;
    let mut arms = Vec::new();
    for level in levels {
        let (_, found) = pairs
            .iter()
            .find(|(x, _)| x == level)
            .ok_or_else(|| Gap::Missing(vec![format!("{a} beside {b} at {axis} {level}")]))?;
        arms.extend(found);
    }
    let wanted: Vec<_> = arms.iter().map(|arm| (*arm, metric.as_str())).collect();
    let table = columns(&wanted, bench.rule.blocks_min)?;
    let gains = |slow: &[f64], fast: &[f64]| -> Vec<f64> {
        let of = |(a, b): (&f64, &f64)| if *relative { 1.0 - b / a } else { a - b };
        slow.iter().zip(fast).map(of).collect()
    };
    let low = gains(&table.values[0], &table.values[1]);
    let high = gains(&table.values[2], &table.values[3]);
    let series: Vec<f64> = high.iter().zip(&low).map(|(h, l)| h - l).collect();
    let interval = bench.rule.over_blocks(series.len(), |drawn| {
        Some(median(&drawn.iter().map(|i| series[*i]).collect::<Vec<_>>()))
    })?;
    let (above, below) = (interval.lo > 0.0, interval.hi < 0.0);
    let held = match claim {
        Claimed::Greater => above.then_some(true).or_else(|| below.then_some(false)),
        Claimed::Less => below.then_some(true).or_else(|| above.then_some(false)),
        // The rule knows no margin for a difference of gains, so sameness is never shown.
        Claimed::Equal => (above || below).then_some(false),
    };
    let (unit, scale) = if *relative { (" points", 100.0) } else { ("", 1.0) };
    let kind = if *relative { "relative gain" } else { "gain" };
    let words = format!(
        "the {kind} of {b} over {a} in {metric} at {axis} {} less that at {} is {:+.4}{unit} ({:+.4} to {:+.4}) in {} blocks",
        levels[1],
        levels[0],
        interval.estimate * scale,
        interval.lo * scale,
        interval.hi * scale,
        series.len()
    );
    let unit = if *relative { "share" } else { "difference" };
    let finding = Finding::new(held, unit, &interval, words)
        .of_arms(&arms, &runs, &table)
        .number("gain_low", median(&low))
        .number("gain_high", median(&high));
    Ok(Finding { series, ..finding })
}

pub(super) fn correlation<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Correlation { at, arms, x, y, rising, rho } = contrast else {
        return wrong();
    };
    /// Fewer points have no rank correlation worth the name.
    const POINTS_MIN: usize = 5;
    let runs = bench.runs(at, contrast);
    let mut found = Vec::new();
    for family in arms {
        found.extend(runs.members(family).unwrap_or_default());
    }
    if found.is_empty() {
        return Err(Gap::Missing(arms.clone()));
    }
    let gap = found.iter().find_map(|arm| arm.gap());
    found.retain(|arm| arm.gap().is_none());
    if found.len() < POINTS_MIN {
        let few = format!("{} arms ran, {POINTS_MIN} are needed", found.len());
        return Err(gap.unwrap_or(Gap::Undefined(few)));
    }
    let wanted: Vec<_> =
        found.iter().flat_map(|arm| [(*arm, x.as_str()), (*arm, y.as_str())]).collect();
    let table = columns(&wanted, bench.rule.blocks_min)?;
    let blocks = table.values[0].len();
    let interval = bench.rule.over_blocks(blocks, |drawn| {
        let mid = |column: &Vec<f64>| median(&drawn.iter().map(|i| column[*i]).collect::<Vec<_>>());
        let side = |start| table.values.iter().skip(start).step_by(2).map(mid).collect::<Vec<_>>();
        Some(spearman(&side(0), &side(1))).filter(|r| r.is_finite())
    })?;
    let ends = if *rising { [interval.lo, interval.hi] } else { [-interval.hi, -interval.lo] };
    let held = if ends[0] >= *rho {
        Some(true)
    } else if ends[1] < *rho {
        Some(false)
    } else {
        None
    };
    let words = format!(
        "over {} arms the rank correlation of {x} and {y} is {:+.2} ({:+.2} to {:+.2}) in {blocks} blocks, claimed: {} {:+.2}",
        found.len(),
        interval.estimate,
        interval.lo,
        interval.hi,
        if *rising { "at least" } else { "at most" },
        if *rising { *rho } else { -*rho },
    );
    Ok(Finding::new(held, "correlation", &interval, words).of_arms(&found, &runs, &table))
}

#[cfg(test)]
mod tests {
    use super::turn;

    #[test]
    fn the_turn_is_found_where_it_is_for_good() {
        let x = [2.0, 4.0, 8.0];
        assert_eq!(turn(&x, &[-1.0, 1.0, 2.0]), Some(3.0));
        assert_eq!(turn(&x, &[-1.0, -1.0, 1.0]), Some(6.0));
        assert_eq!(turn(&x, &[1.0, -1.0, 1.0]), Some(6.0));
        assert_eq!(turn(&x, &[-1.0, 1.0, -1.0]), None);
        assert_eq!(turn(&x, &[1.0, 1.0, 1.0]), None);
        assert_eq!(turn(&x, &[-1.0, -1.0, -1.0]), None);
    }
}
