//! `ioloom predict --verify --runs SESSION`: stored ladders of threads, predicted from three probes.
//!
//! A ladder is a family of arms whose names differ in the number at their end. The times at 1, 4 and 64
//! are the probes; all others are predicted. They are held out, unless the law was chosen on the session. A
//! run with a doubt counts only if its arm has no run without one. The prediction that a time is that of the
//! nearest probe is scored next to the law: a law that does not beat it explains nothing.

use super::show::WIDTH;
use crate::directories::StoreArg;
use crate::exit::Failure;
use crate::{out, sessions};
use ioloom_lab::Session;
use ioloom_model::record::Outcome;
use ioloom_model::{Compute, Condition, RunRecord};
use ioloom_predict::knee::{Knee, TUNED_ON};
use ioloom_predict::walk_media::PROBES;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Fewest held-out thread counts of a ladder.
const HELD_OUT_MIN: usize = 3;
/// Error within which a prediction counts as good.
const GOOD: f64 = 0.10;

/// A thread count that was not probed.
#[derive(Debug, Serialize)]
pub(super) struct Held {
    threads: u32,
    measured_s: f64,
    predicted_s: f64,
    /// Relative error of the law.
    error: f64,
    /// Relative error of the time of the nearest probe.
    error_nearest: f64,
}

/// A ladder of one session.
#[derive(Debug, Serialize)]
pub(super) struct Ladder {
    session: String,
    name: String,
    /// Whether the form of the law was chosen on this session.
    tuned: bool,
    held_out: Vec<Held>,
}

/// Predicts the ladders of the selected sessions.
pub(super) fn all(store: &StoreArg, word: &str) -> Result<Vec<Ladder>, Failure> {
    let opened = sessions::open(store)?;
    let mut ladders = Vec::new();
    for session in sessions::batch(&opened, word)? {
        for (name, times) in times(&session) {
            let known = |n: u32| times.get(&n).map(|step| step.seconds);
            let probes: Vec<(u32, f64)> =
                PROBES.iter().filter_map(|n| Some((*n, known(*n)?))).collect();
            if probes.len() < PROBES.len() || times.len() < PROBES.len() + HELD_OUT_MIN {
                continue;
            }
            let busy = PROBES.last().and_then(|n| times.get(n)).map_or(0.0, |step| step.busy);
            let knee = Knee::fit_busy(&probes, busy).map_err(Failure::failed)?;
            let rest = times.iter().filter(|(n, _)| !PROBES.contains(n));
            let held = |(n, step): (&u32, &Step)| {
                let measured = step.seconds;
                let predicted = knee.seconds(*n);
                Held {
                    threads: *n,
                    measured_s: measured,
                    predicted_s: predicted,
                    error: predicted / measured - 1.0,
                    error_nearest: nearest(&probes, *n) / measured - 1.0,
                }
            };
            let held_out = rest.map(held).collect();
            let session = session.header.session.clone();
            let tuned = session == TUNED_ON;
            ladders.push(Ladder { session, name, tuned, held_out });
        }
    }
    if ladders.is_empty() {
        return Err(Failure::failed(format!(
            "the session {word} has no arms with 1, 4, 64 and at least {HELD_OUT_MIN} other numbers \
             of threads; run 'ioloom study walk --full' first"
        )));
    }
    Ok(ladders)
}

/// Returns the time of the probe whose number is nearest by quotient.
fn nearest(probes: &[(u32, f64)], threads: u32) -> f64 {
    let distance = |n: u32| (f64::from(n) / f64::from(threads)).ln().abs();
    let best = probes.iter().min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)));
    best.map_or(f64::NAN, |(_, time)| *time)
}

/// A step of a ladder.
struct Step {
    /// Elapsed time.
    seconds: f64,
    /// Share of the time of all processors that was used; 0 if their number is not known.
    busy: f64,
}

/// Returns the medians of the finished runs, by ladder and number.
fn times(session: &Session) -> BTreeMap<String, BTreeMap<u32, Step>> {
    let mut runs: BTreeMap<String, BTreeMap<u32, Vec<&RunRecord>>> = BTreeMap::new();
    for run in &session.runs {
        if let Some((name, threads)) = step(run) {
            runs.entry(name).or_default().entry(threads).or_default().push(run);
        }
    }
    let cores = f64::from(session.header.machine.cpus_usable);
    let ladder = |steps: BTreeMap<u32, Vec<&RunRecord>>| {
        steps.into_iter().filter_map(|(n, all)| Some((n, middle(&all, cores)?))).collect()
    };
    runs.into_iter().map(|(name, steps)| (name, ladder(steps))).collect()
}

/// Returns the medians of the runs without doubts, or of all.
fn middle(runs: &[&RunRecord], cores: f64) -> Option<Step> {
    let measured = |without: bool| {
        let used = runs.iter().filter(move |run| !without || run.doubts.is_empty());
        used.filter_map(|run| match &run.outcome {
            Outcome::Done { measured } => Some(measured),
            _ => None,
        })
    };
    let without = measured(true).next().is_some();
    let seconds = median(measured(without).map(|m| m.elapsed_ns as f64 / 1e9).collect())?;
    let cpu = measured(without).map(|m| (m.cpu_user_ns + m.cpu_kernel_ns) as f64 / 1e9).collect();
    let busy = if cores > 0.0 { median(cpu)? / seconds / cores } else { 0.0 };
    Some(Step { seconds, busy })
}

fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    let half = all.len() / 2;
    match all.len() {
        0 => None,
        n if n % 2 == 1 => Some(all[half]),
        _ => Some(f64::midpoint(all[half - 1], all[half])),
    }
}

/// Splits the name of an arm into a ladder and a number.
fn step(run: &RunRecord) -> Option<(String, u32)> {
    if !matches!(run.outcome, Outcome::Done { .. }) {
        return None;
    }
    let key = &run.key;
    let stem = key.arm.trim_end_matches(|c: char| c.is_ascii_digit());
    let threads: u32 = key.arm[stem.len()..].parse().ok().filter(|n| *n > 0)?;
    let condition = match key.condition {
        Condition::Cold => "cold",
        Condition::Warm => "warm",
        Condition::AsIs => "as-is",
    };
    let compute = match &key.compute {
        Compute::None => String::new(),
        compute => format!("{compute}, "),
    };
    let name =
        format!("{}, {}, {condition}, {}, {compute}{stem}N", key.experiment, key.set, key.medium);
    Some((name, threads))
}

/// Returns the mean of the absolute errors, in per cent.
fn mean(errors: &[f64]) -> f64 {
    100.0 * errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len().max(1) as f64
}

/// Formats all ladders and their scores.
pub(super) fn text(ladders: &[Ladder]) -> String {
    let mut all = String::from("Stored runs, not probed: each ladder from 1, 4 and 64\n");
    for ladder in ladders {
        let of = |error: &dyn Fn(&Held) -> f64| -> Vec<f64> {
            ladder.held_out.iter().map(error).collect()
        };
        let (own, nearest) = (of(&|held| held.error), of(&|held| held.error_nearest));
        all.push_str(&out::wrap(&format!("  {}", ladder.name), WIDTH, 4));
        let _ = writeln!(
            all,
            "    {} cells, mean {:.1} %, nearest probe {:.1} %",
            own.len(),
            mean(&own),
            mean(&nearest)
        );
        for held in &ladder.held_out {
            let _ = writeln!(
                all,
                "    {:>5} {:>9.3} s measured {:>9.3} s predicted {:>+7.1} % {:>+7.1} % nearest",
                held.threads,
                held.measured_s,
                held.predicted_s,
                100.0 * held.error,
                100.0 * held.error_nearest
            );
        }
    }
    let tuned = |wanted: bool| ladders.iter().filter(move |ladder| ladder.tuned == wanted);
    all.push_str(&score("held out", tuned(false)));
    all.push_str(&score("not held out, the law was chosen on them", tuned(true)));
    all
}

/// Formats the scores of some ladders together; nothing without any.
fn score<'a>(what: &str, ladders: impl Iterator<Item = &'a Ladder>) -> String {
    let cells = ladders.flat_map(|ladder| &ladder.held_out);
    let (law, near): (Vec<f64>, Vec<f64>) =
        cells.map(|held| (held.error, held.error_nearest)).unzip();
    if law.is_empty() {
        return String::new();
    }
    let good = |errors: &[f64]| {
        let count = errors.iter().filter(|error| error.abs() <= GOOD).count();
        100.0 * count as f64 / errors.len() as f64
    };
    format!(
        "  {what}: {} cells\n    mean {:.1} %, {:.0} % within 10 %\n    \
         nearest probe: mean {:.1} %, {:.0} % within 10 %\n",
        law.len(),
        mean(&law),
        good(&law),
        mean(&near),
        good(&near)
    )
}

#[cfg(test)]
mod tests {
    use super::{Held, Ladder, nearest, text};

    #[test]
    fn the_nearest_probe_is_nearest_by_quotient() {
        let probes = [(1, 10.0), (4, 5.0), (64, 2.0)];
        assert_eq!(nearest(&probes, 2), 10.0);
        assert_eq!(nearest(&probes, 8), 5.0);
        assert_eq!(nearest(&probes, 32), 2.0);
        assert_eq!(nearest(&probes, 256), 2.0);
    }

    #[test]
    fn ladders_that_the_law_was_chosen_on_are_scored_apart() {
        let ladder = |tuned, error| {
            let (measured_s, predicted_s) = (1.0, 1.0 + error);
            let held = Held { threads: 8, measured_s, predicted_s, error, error_nearest: 0.5 };
            let (session, name) = (String::new(), "walks".to_owned());
            Ladder { session, name, tuned, held_out: vec![held] }
        };
        let both = text(&[ladder(false, 0.2), ladder(true, 0.0)]);
        assert!(both.contains("\n  held out: 1 cells\n    mean 20.0 %, 0 % within"), "{both}");
        assert!(both.contains("chosen on them: 1 cells\n    mean 0.0 %, 100 % within"), "{both}");
        assert!(!text(&[ladder(true, 0.0)]).to_lowercase().contains("  held out"), "{both}");
    }
}
