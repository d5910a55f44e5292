//! The procedure of a trial: how much can be read in the time, which plans are worth it, and rounds in
//! which each of them reads another part of the files.
//!
//! In the first rounds all plans run; then the best three run again, in an order that changes from
//! round to round, so that a drift of the machine does not favour one of them.

use super::candidates::{candidates, sweep};
use super::choice::{Tried, best};
use super::profile::Condition;
use super::sample::{Sample, Slice};
use super::trial::{self, Limits, Trial};
use crate::exit::Failure;
use ioloom::{Error, FnError, Plan};
use ioloom_model::Compute;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rounds of all plans, of the best ones, and how many these are.
const FIRST_ROUNDS: usize = 2;
const LAST_ROUNDS: usize = 4;
const FINALISTS: usize = 3;
/// Shares of the time for the list of files, for the first impression, and for the runs.
const LIST: f64 = 0.25;
const FIRST: f64 = 0.05;
const RUNS: f64 = 0.9;
/// Least files of one run, and least bytes if that is fewer files.
const FILES_LEAST: usize = 64;
const BYTES_LEAST: f64 = (64 << 20) as f64;
/// Share of bytes from a device below which files count as cached.
const WARM: f64 = 0.05;
const COLD: f64 = 0.95;

/// The limits of a trial.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

/// A trial in progress.
pub(super) struct Search<'a> {
    pub(super) compute: &'a Compute,
    pub(super) evict: bool,
    pub(super) stop: Arc<AtomicBool>,
    start: Instant,
    budget: Budget,
    pub(super) bytes: u64,
    pub(super) sample: Sample,
}

/// What a trial found.
pub(super) struct Found {
    pub(super) tried: Vec<Tried>,
    pub(super) chosen: Option<usize>,
    /// Mean size of a file.
    pub(super) mean: f64,
    pub(super) condition: Condition,
    /// Share of the bytes that came from a device, if known.
    pub(super) cold: Option<f64>,
    pub(super) spent: Duration,
    /// Plans that were not compared because of the budget or too few files.
    pub(super) left_out: usize,
}

impl<'a> Search<'a> {
    /// Lists the files.
    pub(super) fn new(
        paths: &[PathBuf],
        compute: &'a Compute,
        budget: Budget,
        evict: bool,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let start = Instant::now();
        let mut sample = Sample::list(paths, budget.time.mul_f64(LIST), 1)?;
        sample.again = evict;
        Ok(Self { compute, evict, stop, start, budget, bytes: 0, sample })
    }

    /// Runs a plan on a part of the files, within what is left of the budget.
    fn run(&mut self, slice: Slice, plan: Plan) -> Result<Result<Trial, String>, Failure> {
        if self.evict {
            slice.evict()?;
        }
        let limits = Limits {
            time: self.budget.time.mul_f64(RUNS).saturating_sub(self.start.elapsed()),
            // Pieces that threads are working on are finished when the limit is reached.
            bytes: self.budget.bytes.saturating_sub(self.bytes) / 16 * 15,
        };
        match trial::run(slice, plan, self.compute, limits) {
            Ok(trial) => {
                self.bytes += trial.bytes;
                Ok(Ok(trial))
            }
            Err(Error::Refused(reason)) => Ok(Err(reason)),
            Err(error) => Err(failed(error)),
        }
    }

    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.start.elapsed() >= self.budget.time.mul_f64(RUNS)
            || self.bytes >= self.budget.bytes
    }

    /// Runs the default on more and more files until that takes long enough to be measured.
    fn first_impression(&mut self, default: Plan) -> Result<Trial, Failure> {
        let mut files = if self.sample.len() < 4 * FILES_LEAST { 4 } else { FILES_LEAST };
        let mut last = Trial::default();
        let enough = self.budget.time.mul_f64(FIRST);
        loop {
            let slice = self.sample.take(files);
            if slice.paths.is_empty() {
                return Ok(last);
            }
            let trial = self.run(slice, default)?.map_err(Failure::refused)?;
            let elapsed = Duration::from_nanos(trial.elapsed_ns);
            // The first run of a process starts slower, so a longer one replaces it.
            last = trial;
            let bytes = last.bytes > self.budget.bytes / 16;
            if elapsed >= enough || bytes || self.over() || files > self.sample.left() / 8 {
                return Ok(last);
            }
            files *= if elapsed * 8 < enough { 8 } else { 2 };
        }
    }

    /// Compares the plans. `known`: the best one of an earlier trial of the same kind of job.
    pub(super) fn compare(
        mut self,
        known: impl FnOnce(f64, Condition) -> Option<Plan>,
    ) -> Result<(Self, Found), Failure> {
        let cores = ioloom::usable_cores();
        let default = candidates(0.0, true, cores)[0];
        let first = self.first_impression(default)?;
        let mean = first.bytes as f64 / first.files.max(1) as f64;
        let cold = first.cold().filter(|_| self.on_disk());
        let condition = condition(cold);
        // Cached files stay cached, so they can be read again.
        self.sample.again |= condition == Condition::Warm;
        let mut plans = candidates(mean, condition != Condition::Warm, cores);
        let offered = plans.len();
        if let Some(plan) = known(mean, condition) {
            // What is known is verified against the default and the most promising other plan.
            plans.truncate(2);
            if !plans.contains(&plan) {
                plans.insert(1, plan);
            }
        }
        let (files, count) = self.shares(&first, mean, plans.len());
        plans.truncate(count);
        let left_out = offered.saturating_sub(plans.len());
        let mut tried: Vec<Tried> = plans.into_iter().map(Tried::new).collect();
        if tried.len() == 1 {
            tried[0].trials.push(first);
        } else {
            let all: Vec<usize> = (0..tried.len()).collect();
            self.rounds(&mut tried, &all, FIRST_ROUNDS, files)?;
            let finalists = finalists(&tried);
            self.rounds(&mut tried, &finalists, LAST_ROUNDS, files)?;
        }
        let chosen = best(&tried);
        let spent = self.start.elapsed();
        let found = Found { tried, chosen, mean, condition, cold, spent, left_out };
        Ok((self, found))
    }

    /// Reports whether the files are on a block device, whose reads the system counts.
    fn on_disk(&self) -> bool {
        let medium = self.sample.first().and_then(|path| ioloom_sys::mount::medium(path).ok());
        medium.is_some_and(|medium| {
            medium.disk.is_some() || matches!(medium.mount.file_system.as_str(), "tmpfs" | "ramfs")
        })
    }

    /// Returns the files of one run, and how many plans can be compared.
    fn shares(&self, first: &Trial, mean: f64, plans: usize) -> (usize, usize) {
        let least = ((BYTES_LEAST / mean.max(1.0)) as usize).clamp(4, FILES_LEAST);
        let per_file = first.elapsed_ns as f64 / first.files.max(1) as f64;
        let time = self.budget.time.mul_f64(RUNS).saturating_sub(self.start.elapsed());
        let by_time = time.as_nanos() as f64 / per_file.max(1.0);
        let by_bytes = 0.9 * self.budget.bytes.saturating_sub(self.bytes) as f64 / mean.max(1.0);
        let again = if self.sample.again { f64::INFINITY } else { self.sample.left() as f64 };
        // Other plans may be slower than the default; this leaves them a third of the time.
        let files = (0.67 * by_time).min(by_bytes).min(again) as usize;
        let runs = |plans: usize| FIRST_ROUNDS * plans + LAST_ROUNDS * plans.min(FINALISTS);
        let count = (2..=plans).rev().find(|count| files / runs(*count) >= least).unwrap_or(1);
        ((files / runs(count)).min(self.sample.len()), count)
    }

    fn rounds(
        &mut self,
        tried: &mut [Tried],
        among: &[usize],
        rounds: usize,
        files: usize,
    ) -> Result<(), Failure> {
        for round in 0..rounds {
            for i in 0..among.len() {
                let turn = if round % 2 == 0 { i } else { among.len() - 1 - i };
                let one = &mut tried[among[turn]];
                if one.refused.is_some() {
                    continue;
                }
                if self.over() {
                    return Ok(());
                }
                let slice = self.sample.take(files);
                if slice.paths.is_empty() {
                    return Ok(());
                }
                match self.run(slice, one.plan)? {
                    // What a limit of the budget ended says little about the plan.
                    Ok(trial) if trial.cut && !one.trials.is_empty() => {}
                    Ok(trial) => one.trials.push(trial),
                    Err(reason) => one.refused = Some(reason),
                }
            }
        }
        Ok(())
    }

    /// Returns the time that is left.
    pub(super) fn time_left(&self) -> Duration {
        self.budget.time.saturating_sub(self.start.elapsed())
    }

    /// Runs all plans on all files, twice, in opposite orders.
    pub(super) fn exhaustive(&mut self, mean: f64, chosen: Plan) -> Result<Vec<Tried>, Failure> {
        let mut plans = sweep(mean, ioloom::usable_cores());
        if !plans.contains(&chosen) {
            plans.push(chosen);
        }
        let mut tried: Vec<Tried> = plans.into_iter().map(Tried::new).collect();
        let limits = Limits { time: Duration::from_secs(3600), bytes: u64::MAX };
        for round in 0..2 {
            let count = tried.len();
            for i in 0..count {
                let one = &mut tried[if round == 0 { i } else { count - 1 - i }];
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(tried);
                }
                if one.refused.is_some() {
                    continue;
                }
                let all = self.sample.all();
                if self.evict {
                    all.evict()?;
                }
                match trial::run(all, one.plan, self.compute, limits) {
                    Ok(trial) => one.trials.push(trial),
                    Err(Error::Refused(reason)) => one.refused = Some(reason),
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(tried)
    }
}

fn failed(error: Error<FnError>) -> Failure {
    match error {
        Error::Refused(reason) => Failure::refused(reason),
        other => Failure::failed(other),
    }
}

fn condition(cold: Option<f64>) -> Condition {
    match cold {
        None => Condition::Unknown,
        Some(share) if share <= WARM => Condition::Warm,
        Some(share) if share >= COLD => Condition::Cold,
        Some(_) => Condition::Mixed,
    }
}

/// Returns the default and the fastest others.
fn finalists(tried: &[Tried]) -> Vec<usize> {
    let mut order: Vec<(usize, f64)> =
        tried.iter().enumerate().filter_map(|(i, one)| Some((i, one.cost()?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut among: Vec<usize> = order.iter().take(FINALISTS).map(|(i, _)| *i).collect();
    if !among.contains(&0) && order.iter().any(|(i, _)| *i == 0) {
        among.pop();
        among.push(0);
    }
    among
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_follows_from_the_share_of_the_device() {
        let of = |share| condition(share).word();
        assert_eq!(of(Some(0.0)), "warm");
        assert_eq!(of(Some(0.5)), "mixed");
        assert_eq!(of(Some(0.99)), "cold");
        assert_eq!(of(None), "unknown");
    }

    #[test]
    fn the_default_is_always_a_finalist() {
        let tried = |ns| {
            let trial = Trial { files: 1, elapsed_ns: ns, ..Trial::default() };
            let mut one = Tried::new("read/threads:n=1".parse().unwrap());
            one.trials.push(trial);
            one
        };
        assert_eq!(finalists(&[9, 4, 3, 2, 1].map(tried)), [4, 3, 0]);
        assert_eq!(finalists(&[1, 4, 3].map(tried)), [0, 2, 1]);
    }
}
