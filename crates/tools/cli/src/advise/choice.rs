//! Arithmetic of a trial: which plan is the fastest, how sure that is, and how long the job takes.
//!
//! The unit is time per amount of work. Its spread between parts of the job is estimated from all plans
//! together, because a single plan has too few runs. Intervals use Student's t distribution on logarithms.

use super::sample::Total;
use super::trial::{Trial, WARM, work};
use ioloom::Plan;

/// Loss up to which the default is preferred, in addition to the spread between runs.
pub(super) const TIE: f64 = 0.02;
/// Factor between the work of a file of the job and of its runs from which the runs do not represent the job.
const UNLIKE: f64 = 4.0;
/// Relative error that no trial excludes: the job is longer than its parts, and the machine changes.
const FLOOR: f64 = 0.05;

/// A plan and its runs.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    pub(super) plan: Plan,
    pub(super) trials: Vec<Trial>,
    /// Why it cannot run here.
    pub(super) refused: Option<String>,
}

impl Tried {
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan, trials: Vec::new(), refused: None }
    }

    /// Returns the sum of the runs.
    pub(super) fn all(&self) -> Trial {
        let mut trials = self.trials.iter();
        let mut sum = trials.next().cloned().unwrap_or_default();
        trials.for_each(|trial| sum.add(trial));
        sum
    }

    /// Returns nanoseconds per unit of work; `None` without a run.
    pub(super) fn cost(&self) -> Option<f64> {
        let all = self.all();
        (all.work() > 0.0 && self.refused.is_none()).then(|| all.cost())
    }

    fn logs(&self) -> impl Iterator<Item = f64> {
        self.trials.iter().filter(|trial| trial.work() > 0.0).map(|trial| trial.cost().ln())
    }
}

/// Spread of the logarithm of the cost between runs of the same plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    deviation: f64,
    freedom: usize,
}

impl Spread {
    /// Returns the spread within the plans.
    pub(super) fn of(tried: &[Tried]) -> Self {
        let (mut squares, mut freedom) = (0.0, 0);
        for one in tried {
            let logs: Vec<f64> = one.logs().collect();
            let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
            squares += logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
            freedom += logs.len().saturating_sub(1);
        }
        let deviation = (squares / freedom.max(1) as f64).sqrt();
        Self { deviation, freedom }
    }

    /// Returns half the width of a 95 % interval for an effective number of runs.
    fn half(&self, runs: f64) -> f64 {
        if self.freedom == 0 {
            return f64::INFINITY;
        }
        quantile(self.freedom) * self.deviation / runs.sqrt()
    }
}

/// Returns the 97.5 % quantile of Student's t distribution, from the usual table.
fn quantile(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
    match freedom {
        1..=10 => TABLE[freedom - 1],
        11..=20 => 2.2,
        21..=40 => 2.08,
        _ => 2.0,
    }
}

/// Returns the index of the plan to use: the fastest of `among`, or the default, which is the first, unless
/// that loses more than [`TIE`] and the spread between runs. Plans that were dropped after the first rounds
/// have fewer runs, and a lucky one among them must not win.
pub(super) fn best(tried: &[Tried], among: &[usize]) -> Option<usize> {
    let costs = || among.iter().filter_map(|i| Some((*i, tried[*i].cost()?)));
    let (fastest, least) = costs().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let Some(default) = tried[0].cost() else { return Some(fastest) };
    let half = Spread::of(tried).half(effective(&tried[0], &tried[fastest]));
    let is_faster = (default / least).ln() > half + TIE.ln_1p();
    Some(if is_faster { fastest } else { 0 })
}

/// Returns the number of runs that has the error of the ratio of two plans.
fn effective(one: &Tried, other: &Tried) -> f64 {
    1.0 / (1.0 / one.trials.len() as f64 + 1.0 / other.trials.len() as f64)
}

/// Returns an upper bound, at 95 % for each plan, of the share of time that another plan would save.
/// `None` if nothing was compared.
pub(super) fn regret(tried: &[Tried], chosen: usize, spread: Spread) -> Option<f64> {
    let own = tried[chosen].cost()?;
    let others = tried.iter().enumerate().filter(|(i, _)| *i != chosen);
    let saved = others.filter_map(|(_, other)| {
        let log = (other.cost()? / own).ln();
        let half = spread.half(effective(&tried[chosen], other));
        Some((1.0 - (log - half).exp()).max(0.0))
    });
    saved.fold(None, |most: Option<f64>, x| Some(most.map_or(x, |most| most.max(x))))
}

/// The expected time of the whole job, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expected {
    pub(super) ns: f64,
    /// 95 % interval; `None` if a single run does not show the spread, or the runs do not represent the job.
    pub(super) interval: Option<(f64, f64)>,
}

impl Expected {
    /// Reports whether a measured time is in the interval.
    pub(super) fn contains(&self, ns: f64) -> Option<bool> {
        self.interval.map(|(lo, hi)| (lo..=hi).contains(&ns))
    }
}

/// Returns the expected time with the chosen plan.
pub(super) fn expected(chosen: &Tried, total: Total, spread: Spread) -> Option<Expected> {
    let cost = chosen.cost()?;
    let all = chosen.all();
    let whole = work(total.files as f64, total.bytes);
    let high_ns = cost * whole;
    // The mean of the runs includes their starts and ends, which the job has once. Where runs of several
    // sizes show them, the job continues at the rate in between; the interval covers both.
    let ns = fitted(chosen, whole).map_or(high_ns, |ns| ns.min(high_ns));
    // The parts of the job that were not tried add the error of the mean, and the job itself, which
    // consists of as many parts as are as large as a run, varies like a run of its own.
    let runs = chosen.trials.len() as f64;
    let missing = (1.0 - all.work() / whole.max(1.0)).clamp(0.0, 1.0);
    let share = (all.work() / runs / whole.max(1.0)).min(1.0);
    let runs = spread.half(1.0) * (missing / runs + share).sqrt();
    let sizes = 2.0 * total.error * total.bytes / whole.max(1.0);
    let log = (runs * runs + sizes * sizes + FLOOR * FLOOR).sqrt();
    let is_known = log.is_finite() && !is_unlike(&all, total);
    let interval = is_known.then(|| (ns * (-log).exp(), high_ns * log.exp()));
    Some(Expected { ns, interval })
}

/// Reports whether the files of some runs are much smaller or larger than those of the job on average, as where
/// a few huge files have most of the bytes.
pub(super) fn is_unlike(runs: &Trial, total: Total) -> bool {
    let each = |files: u64, bytes: f64| work(files as f64, bytes) / files as f64;
    let ratio = each(total.files, total.bytes) / each(runs.files, runs.bytes as f64);
    runs.files > 0 && !(1.0 / UNLIKE..=UNLIKE).contains(&ratio)
}

/// Returns the time of `whole` by a straight line through the runs, whose start is at least zero and at
/// most the shortest run; `None` if all runs have about the same size.
fn fitted(chosen: &Tried, whole: f64) -> Option<f64> {
    let runs: Vec<(f64, f64)> = chosen
        .trials
        .iter()
        .filter(|trial| trial.work() > 0.0 && !trial.cut)
        .map(|trial| (trial.work(), trial.elapsed_ns as f64))
        .collect();
    let count = runs.len() as f64;
    let (work, ns) = runs.iter().fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    let (mean, mean_ns) = (work / count, ns / count);
    let spread: f64 = runs.iter().map(|(w, _)| (w - mean).powi(2)).sum();
    if runs.len() < 4 || (spread / count).sqrt() < 0.2 * mean {
        return None;
    }
    let slope = runs.iter().map(|(w, t)| (w - mean) * (t - mean_ns)).sum::<f64>() / spread;
    let least = runs.iter().map(|(_, t)| *t).fold(f64::INFINITY, f64::min);
    let start = (mean_ns - slope * mean).clamp(0.0, least);
    Some(start + (mean_ns - start) / mean * whole)
}

/// What other machines would give, in nanoseconds at best; `None` where nothing is gained or that is
/// unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Upgrades {
    /// With storage that takes no time.
    pub(super) storage_ns: Option<f64>,
    /// With twice the cores.
    pub(super) cores_ns: Option<f64>,
    /// Share of the cores in use.
    pub(super) busy: f64,
    /// Share of the time in which the work waits, on all threads that compute.
    pub(super) waits: f64,
    /// Share of the usable processor time that other programs took.
    pub(super) others: f64,
    /// Whether the files were in memory.
    pub(super) in_memory: bool,
}

/// Share of the cores in use from which they are the limit, or from which they are not.
const BUSY: f64 = 0.9;

/// Returns bounds from the processor time and the waits of the work: no storage makes a job faster than
/// its work, nor one that reads nothing from it, and more cores do not help where the present ones wait.
/// `from_device`: share of the bytes that came from a device, if that is known.
pub(super) fn upgrades(
    all: &Trial,
    from_device: Option<f64>,
    expected_ns: f64,
    cores: u32,
) -> Upgrades {
    let busy = all.cpu_ns as f64 / (all.elapsed_ns as f64 * f64::from(cores)).max(1.0);
    let busy = busy.min(1.0);
    let waits = (all.waited_ns as f64 / (all.elapsed_ns as f64).max(1.0)).min(1.0);
    let work = busy.max(waits);
    let in_memory = from_device.is_some_and(|share| share <= WARM);
    Upgrades {
        storage_ns: (work < BUSY && !in_memory).then_some(expected_ns * work),
        cores_ns: (busy >= BUSY).then_some(expected_ns * (busy / 2.0).max(waits)),
        busy,
        waits,
        others: (all.others_ns as f64 / (all.elapsed_ns as f64).max(1.0)).min(1.0),
        in_memory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(plan: &str, costs: &[f64]) -> Tried {
        let trial = |cost: &f64| Trial {
            files: 100,
            elapsed_ns: (cost * work(100.0, 0.0)) as u64,
            ..Trial::default()
        };
        let trials = costs.iter().map(trial).collect();
        Tried { trials, ..Tried::new(plan.parse().unwrap()) }
    }

    #[test]
    fn the_default_wins_ties_and_loses_otherwise() {
        let default = tried("nowait/window:l=512,p=2", &[1.01, 1.0]);
        let other = tried("read/window:l=8,p=2", &[1.0, 0.99]);
        let best = |tried: &[Tried]| best(tried, &(0..tried.len()).collect::<Vec<_>>());
        assert_eq!(best(&[default.clone(), other]), Some(0));
        let other = tried("read/window:l=8,p=2", &[0.9, 0.9]);
        assert_eq!(best(&[default.clone(), other.clone()]), Some(1));
        let refused = Tried { refused: Some("no ring".to_owned()), ..other };
        assert_eq!(best(&[default, refused]), Some(0));
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn a_gain_within_the_spread_of_the_runs_does_not_win() {
        let best = |default: &[f64], other: &[f64]| {
            let default = tried("nowait/window:l=512,p=2", default);
            best(&[default, tried("read/window:l=8,p=2", other)], &[0, 1])
        };
        assert_eq!(best(&[1.5, 0.8, 1.4], &[1.0, 0.7, 1.3]), Some(0));
        assert_eq!(best(&[1.50, 1.51, 1.49], &[1.0, 1.01, 0.99]), Some(1));
        assert_eq!(best(&[1.5], &[1.0]), Some(0), "single runs do not show the spread");
    }

    #[test]
    fn a_plan_that_was_dropped_does_not_win() {
        let all = [
            tried("nowait/window:l=512,p=2", &[1.0, 1.0, 1.0]),
            tried("read/window:l=8,p=2", &[0.9, 0.9, 0.9]),
            tried("read/window:l=32,p=2", &[0.8]),
        ];
        assert_eq!(best(&all, &[0, 1]), Some(1));
    }

    #[test]
    fn the_start_of_each_run_is_not_multiplied() {
        let run = |files: u64| Trial {
            files,
            elapsed_ns: 5_000_000 + files * 10_000,
            ..Trial::default()
        };
        let plan = tried("nowait/window:l=512,p=2", &[]);
        let chosen = Tried { trials: [100, 100, 150, 50, 150, 50].map(run).to_vec(), ..plan };
        let total = Total { files: 100_000, bytes: 0.0, error: 0.0 };
        let spread = Spread::of(std::slice::from_ref(&chosen));
        let e = expected(&chosen, total, spread).unwrap();
        assert!((e.ns / 1.005e9 - 1.0).abs() < 0.01, "{e:?}");
        assert!(e.interval.unwrap().1 > 6e9, "the mean of the runs is in the interval: {e:?}");
    }

    #[test]
    fn the_bound_of_regret_shrinks_with_more_runs() {
        let costs = |n: usize| (0..n).map(|i| 1.0 + 0.02 * (i % 2) as f64).collect::<Vec<_>>();
        let bound = |n| {
            let all =
                [tried("nowait/window:l=512,p=2", &costs(n)), tried("read/threads:n=2", &costs(n))];
            regret(&all, 0, Spread::of(&all)).unwrap()
        };
        assert!(bound(4) > bound(16) && bound(16) > 0.0, "{} {}", bound(4), bound(16));
        let alone = [tried("nowait/window:l=512,p=2", &costs(4))];
        assert_eq!(regret(&alone, 0, Spread::of(&alone)), None);
    }

    #[test]
    fn the_expected_time_covers_what_was_not_tried() {
        let chosen = tried("nowait/window:l=512,p=2", &[1.0, 1.0, 1.0]);
        let total = Total { files: 3_000, bytes: 0.0, error: 0.0 };
        let spread = Spread { deviation: 0.1, freedom: 8 };
        let e = expected(&chosen, total, spread).unwrap();
        assert!((e.ns / work(3_000.0, 0.0) - 1.0).abs() < 1e-6);
        let (lo, hi) = e.interval.unwrap();
        assert!(lo < 0.88 * e.ns && hi > 1.13 * e.ns, "{e:?}");
        assert_eq!((e.contains(e.ns), e.contains(2.0 * e.ns)), (Some(true), Some(false)));
        let once = Spread { freedom: 0, ..spread };
        assert_eq!(expected(&chosen, total, once).unwrap().interval, None);
        let known = expected(&chosen, Total { files: 300, ..total }, spread).unwrap();
        let hi = known.interval.unwrap().1;
        assert!((1.06..1.2).contains(&(hi / known.ns)), "only the job itself varies: {known:?}");
        let whole = expected(&chosen, Total { files: 100, ..total }, spread).unwrap();
        assert!(whole.interval.unwrap().1 / whole.ns > 1.2, "each run was the job: {whole:?}");
    }

    #[test]
    fn runs_of_files_of_another_size_show_no_interval() {
        let chosen = tried("nowait/window:l=512,p=2", &[1.0, 1.0, 1.0]);
        let spread = Spread { deviation: 0.1, freedom: 8 };
        let interval = |bytes| {
            let total = Total { files: 20_000, bytes, error: 0.0 };
            expected(&chosen, total, spread).unwrap().interval
        };
        assert!(interval(1e6).is_some());
        assert_eq!(interval(6e9), None, "one file has most of the bytes");
    }

    #[test]
    fn processors_that_wait_gain_nothing_from_more_of_them() {
        let all = Trial { cpu_ns: 400, elapsed_ns: 1_000, ..Trial::default() };
        assert_eq!(upgrades(&all, Some(0.0), 1e9, 2).storage_ns, None, "nothing came from a disk");
        let waits = upgrades(&all, None, 1e9, 2);
        assert_eq!((waits.storage_ns, waits.cores_ns), (Some(2e8), None));
        let asleep = upgrades(&Trial { waited_ns: 990, ..all.clone() }, None, 1e9, 2);
        assert_eq!((asleep.storage_ns, asleep.cores_ns), (None, None));
        let half = upgrades(&Trial { waited_ns: 500, ..all.clone() }, None, 1e9, 2);
        assert_eq!(half.storage_ns, Some(5e8));
        let all = Trial { cpu_ns: 1_960, ..all };
        let busy = upgrades(&all, None, 1e9, 2);
        assert_eq!((busy.storage_ns, busy.cores_ns), (None, Some(4.9e8)));
    }
}
