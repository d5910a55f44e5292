//! The procedure of a trial: how much can be read in the time, which plans are worth it, and rounds in
//! which each of them reads another part of the files.
//!
//! In the first rounds all plans run; then the best three run again, in an order that changes from
//! round to round, so that a drift of the machine does not favour one of them.

use super::candidates::{candidates, default_plan, sweep, window};
use super::choice::{Tried, best};
use super::profile::Condition;
use super::sample::{Listing, Sample, Slice, Total};
use super::trial::{self, Limits, Trial, WARM, flying, in_pieces};
use crate::exit::Failure;
use ioloom::{Error, FnError, Plan};
use ioloom_model::Compute;
use ioloom_sys::mount::Medium;
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
/// Files of the last rounds relative to those of the first ones, alternately: their start and end show in
/// the difference.
const SIZES: [f64; 2] = [1.5, 0.5];
/// Least files of a run if only one plan runs.
const FILES_ALONE: usize = 8;
/// Most files whose pages are counted before the trial, and the share of the time for them.
const LOOKED_AT: usize = 512;
const LOOK: f64 = 0.03;
/// Least time to look at the sizes of files.
const TOTAL_LEAST: Duration = Duration::from_millis(20);
/// Longest run of a sweep.
const SWEPT: Duration = Duration::from_secs(3600);
/// Share of bytes from a device from which files count as cold.
pub(super) const COLD: f64 = 0.95;

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
    /// Bytes read, from memory or a device.
    pub(super) bytes: u64,
    /// The largest piece of a file so far.
    largest: u64,
    /// Time spent to evict files, and their number.
    evicting: Duration,
    evicted: usize,
    /// Failed reads of files in all runs of the trial, and the first error of them or of a sweep.
    pub(super) errors: u64,
    error: Option<String>,
    /// Seed of the random sample.
    pub(super) seed: u64,
    pub(super) sample: Sample,
}

/// What a trial found.
pub(super) struct Found {
    pub(super) tried: Vec<Tried>,
    pub(super) chosen: Option<usize>,
    /// Mean size of a file.
    pub(super) mean: f64,
    /// What was known before plans were compared: the condition for the profile.
    pub(super) before: Condition,
    pub(super) condition: Condition,
    /// Share of the bytes that came from a device, if known.
    pub(super) cold: Option<f64>,
    pub(super) spent: Duration,
    /// Plans that were not compared because of the budget or too few files.
    pub(super) left_out: usize,
}

impl Found {
    /// Reports whether the trial has compared plans, also with the one known from an earlier trial unless it
    /// cannot run here, and met the files in the condition under which its result would be stored.
    pub(super) fn teaches(&self, known: Option<Plan>, evict: bool) -> bool {
        let has_cost = |one: &&Tried| one.cost().is_some();
        let compared = self.tried.iter().filter(has_cost).count() > 1;
        let is_met = |one: &Tried| one.cost().is_some() || one.refused.is_some();
        let with = |plan| self.tried.iter().any(|one| one.plan == plan && is_met(one));
        compared && known.is_none_or(with) && (evict || self.condition == self.before)
    }
}

impl<'a> Search<'a> {
    /// Lists the files, `all` of them even if that takes longer than its share of the budget.
    pub(super) fn new(
        paths: &[std::path::PathBuf],
        compute: &'a Compute,
        budget: Budget,
        (evict, all): (bool, bool),
        stop: Arc<AtomicBool>,
    ) -> Self {
        let start = Instant::now();
        let time = (!all).then(|| budget.time.mul_f64(LIST));
        let seed =
            ioloom_sys::clock::monotonic_ns() ^ u64::from(std::process::id()).rotate_left(40);
        let mut sample = Sample::list(&Listing { paths, time, stop: stop.clone() }, seed);
        sample.again = evict;
        let start = if all { Instant::now() } else { start };
        let (bytes, largest, evicting, evicted) = (0, 0, Duration::ZERO, 0);
        Self {
            compute,
            evict,
            stop,
            start,
            budget,
            bytes,
            largest,
            evicting,
            evicted,
            errors: 0,
            error: None,
            seed,
            sample,
        }
    }

    /// Runs a plan on a part of the files, within what is left of the budget.
    fn run(&mut self, slice: Slice, plan: Plan) -> Result<Result<Trial, String>, Failure> {
        if self.evict && !self.evict_in_time(&slice) {
            let device_bytes = Some(0);
            return Ok(Ok(Trial { cut: true, device_bytes, ..Trial::default() }));
        }
        let limits = Limits {
            time: self.left(),
            bytes: self.rest(),
            largest: self.largest,
            stop: &self.stop,
        };
        match trial::run(slice, plan, self.compute, limits) {
            Ok(trial) => {
                self.bytes += trial.read_bytes();
                self.largest = self.largest.max(trial.largest);
                self.errors += trial.errors;
                keep_first(&mut self.error, &trial);
                Ok(Ok(trial))
            }
            Err(Error::Refused(reason)) => Ok(Err(reason)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the first directory or file that could not be read.
    pub(super) fn first_error(&self) -> Option<String> {
        self.sample.errors.first().or(self.error.as_ref()).cloned()
    }

    /// Returns the time since the start of the trial.
    pub(super) fn spent(&self) -> Duration {
        self.start.elapsed()
    }

    /// Evicts files. Returns whether the time sufficed.
    fn evict_in_time(&mut self, slice: &Slice) -> bool {
        let start = Instant::now();
        let complete = slice.evict(self.left(), &self.stop);
        self.evicting += start.elapsed();
        self.evicted += slice.paths.len();
        complete
    }

    /// Returns the time that is left for runs.
    fn left(&self) -> Duration {
        self.budget.time.mul_f64(RUNS).saturating_sub(self.start.elapsed())
    }

    /// Returns the bytes that may still be read, without a margin.
    fn rest(&self) -> u64 {
        self.budget.bytes.saturating_sub(self.bytes) / 16 * 15
    }

    /// Returns the bytes in flight of a plan at most, in a run of so many files.
    fn flying(&self, plan: &Plan, files: usize) -> u64 {
        flying(&in_pieces(*plan), files, self.largest)
    }

    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.left().is_zero()
            || self.bytes >= self.budget.bytes
    }

    /// Runs the default on more and more files until that takes long enough to be measured.
    fn first_impression(&mut self, default: Plan) -> Result<Trial, Failure> {
        // Nothing is known of the files yet, so each may take a whole piece.
        let mut files = 4;
        while files > 1 && self.flying(&default, files) > self.rest() / 2 {
            files /= 2;
        }
        let mut last = Trial::default();
        let enough = self.budget.time.mul_f64(FIRST);
        loop {
            let slice = self.sample.take(files);
            if slice.paths.is_empty() {
                return Ok(last);
            }
            let evicting = self.evicting;
            let trial = self.run(slice, default)?.map_err(Failure::refused)?;
            if trial.files == 0 && last.files > 0 {
                return Ok(last);
            }
            let elapsed = Duration::from_nanos(trial.elapsed_ns) + (self.evicting - evicting);
            // The first run of a process starts slower, so a longer one replaces it.
            last = trial;
            let room = self.budget.bytes / 8 / last.read_bytes().max(1);
            if elapsed >= enough || room < 2 || self.over() || files > self.sample.left() / 8 {
                return Ok(last);
            }
            files *= if elapsed * 8 < enough { room.min(8) as usize } else { 2 };
        }
    }

    /// Compares the plans. `known`: the best one of an earlier trial of the same kind of job.
    pub(super) fn compare(
        mut self,
        known: impl FnOnce(f64, Condition) -> Option<Plan>,
    ) -> Result<(Self, Found), Failure> {
        let cores = ioloom::usable_cores();
        let default = default_plan();
        let counted = self.on_disk();
        let resident = self.resident(counted);
        let first = self.first_impression(default)?;
        let mean = first.bytes as f64 / first.files.max(1) as f64;
        let before = before(resident, first.cold().filter(|_| counted));
        // Cached files stay cached, so they can be read again.
        self.sample.again |= before == Condition::Warm;
        let mut plans = candidates(default, mean, before != Condition::Warm, cores);
        if let Some(plan) = known(mean, before) {
            // What is known is compared directly after the default, the others while the budget lasts.
            plans.retain(|other| *other != plan || *other == default);
            if !plans.contains(&plan) {
                plans.insert(1, plan);
            }
        }
        let offered = plans.len();
        // What a plan has in flight must fit, too.
        plans.retain(|plan| *plan == default || self.flying(plan, FILES_LEAST) <= self.rest() / 2);
        let (files, count) = self.shares(&first, mean, &plans);
        plans.truncate(count);
        let left_out = offered.saturating_sub(plans.len());
        let mut tried: Vec<Tried> = plans.into_iter().map(Tried::new).collect();
        let total = first.clone();
        if tried.len() == 1 {
            tried[0].trials.push(first);
        }
        let among = self.all_rounds(&mut tried, files, mean)?;
        let chosen = best(&tried, &among);
        let spent = self.spent();
        let cold = cold(total, &tried).filter(|_| counted);
        let condition = match self.evict {
            // Each file was met as it was, or was thought to be in memory.
            false => after(before, cold),
            true => condition(cold),
        };
        let found = Found { tried, chosen, mean, before, condition, cold, spent, left_out };
        Ok((self, found))
    }

    /// Runs all rounds. Returns the plans of the last ones. A single plan has only these, which show its
    /// rate and its spread.
    fn all_rounds(
        &mut self,
        tried: &mut [Tried],
        files: usize,
        mean: f64,
    ) -> Result<Vec<usize>, Failure> {
        let mut among: Vec<usize> = (0..tried.len()).collect();
        if tried.len() > 1 {
            let complete = self.rounds(tried, &among, &[files; FIRST_ROUNDS], mean)?;
            among = finalists(tried);
            if !complete {
                return Ok(among);
            }
        } else if files < FILES_ALONE {
            return Ok(among);
        }
        let sizes = |i: usize| (files as f64 * SIZES[i % 2]) as usize;
        self.rounds(tried, &among, &(0..LAST_ROUNDS).map(sizes).collect::<Vec<_>>(), mean)?;
        Ok(among)
    }

    /// Returns the share of the files in memory, where that is known and the trial does not change it.
    fn resident(&self, counted: bool) -> Option<f64> {
        let time = self.budget.time.mul_f64(LOOK);
        (counted && !self.evict).then(|| self.sample.resident(LOOKED_AT, time))?
    }

    /// Looks at the devices of the files. Reports whether they are on one block device, whose reads the system
    /// counts.
    fn on_disk(&self) -> bool {
        let time = self.budget.time.mul_f64(LOOK);
        let paths = self.sample.one_of_each_device(LOOKED_AT, time);
        let media: Vec<Option<Medium>> =
            paths.into_iter().map(|path| ioloom_sys::mount::medium(path).ok()).collect();
        is_counted(&media)
    }

    /// Returns the files of one run, and how many plans can be compared.
    fn shares(&self, first: &Trial, mean: f64, plans: &[Plan]) -> (usize, usize) {
        let least = ((BYTES_LEAST / mean.max(1.0)) as usize).clamp(4, FILES_LEAST);
        let per_file = first.elapsed_ns as f64 / first.files.max(1) as f64
            + self.evicting.as_nanos() as f64 / self.evicted.max(1) as f64;
        let by_time = self.left().as_nanos() as f64 / per_file.max(1.0);
        let again = if self.sample.again { f64::INFINITY } else { self.sample.left() as f64 };
        // Other plans may be slower than the default; this leaves them a third of the time.
        let most = (0.67 * by_time).min(again);
        let runs = |plans: usize| FIRST_ROUNDS * plans + LAST_ROUNDS * plans.min(FINALISTS);
        let files = |count: usize| {
            let runs = runs(count) as f64;
            (most / runs).min(self.fitting(runs * mean.max(1.0), &plans[..count])) as usize
        };
        let count = (2..=plans.len()).rev().find(|count| files(*count) >= least).unwrap_or(1);
        (files(count).min(self.sample.len()), count)
    }

    /// Returns how many files fit the budget of bytes, if each costs so many bytes in all runs together
    /// and the last run also has its window in flight.
    fn fitting(&self, each: f64, plans: &[Plan]) -> f64 {
        let room = 0.9 * self.budget.bytes.saturating_sub(self.bytes) as f64;
        let of = |plan: &Plan| {
            let (window, piece) = (f64::from(window(plan)), self.piece(plan));
            let few = room / (each + piece);
            if few <= window { few } else { (room - window * piece) / each }
        };
        plans.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    fn piece(&self, plan: &Plan) -> f64 {
        self.flying(plan, 1) as f64
    }

    /// Runs rounds in which each plan reads another part of the files. A round counts as a whole or not
    /// at all, so that all plans have as many runs; only of the first one a part is kept. Returns whether
    /// the budget sufficed for all rounds.
    fn rounds(
        &mut self,
        tried: &mut [Tried],
        among: &[usize],
        rounds: &[usize],
        mean: f64,
    ) -> Result<bool, Failure> {
        for (round, files) in rounds.iter().enumerate() {
            let order = |i: usize| if round % 2 == 0 { i } else { among.len() - 1 - i };
            let order: Vec<usize> = (0..among.len()).map(|i| among[order(i)]).collect();
            if !self.fits(tried, &order, *files, mean) {
                return Ok(false);
            }
            let before: Vec<usize> = tried.iter().map(|one| one.trials.len()).collect();
            if self.round(tried, &order, *files)? {
                continue;
            }
            if order.iter().all(|i| before[*i] > 0 || tried[*i].refused.is_some()) {
                let all = tried.iter_mut().zip(before);
                all.for_each(|(one, count)| one.trials.truncate(count));
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Reports whether the rest of the budget of bytes suffices for a round of these plans.
    fn fits(&self, tried: &[Tried], among: &[usize], files: usize, mean: f64) -> bool {
        let run = || among.iter().map(|i| &tried[*i]).filter(|one| one.refused.is_none());
        let flying = run().map(|one| self.flying(&one.plan, files)).max().unwrap_or(0);
        (mean * files as f64 * run().count() as f64) as u64 + flying <= self.rest()
    }

    /// Runs each plan once. Returns whether no limit ended that.
    fn round(
        &mut self,
        tried: &mut [Tried],
        order: &[usize],
        files: usize,
    ) -> Result<bool, Failure> {
        for i in order {
            let one = &mut tried[*i];
            if one.refused.is_some() {
                continue;
            }
            if self.over() {
                return Ok(false);
            }
            let slice = self.sample.take(files);
            if slice.paths.is_empty() {
                return Ok(false);
            }
            match self.run(slice, one.plan)? {
                Ok(trial) => {
                    // What a limit of the budget ended says little about the plan.
                    let cut = trial.cut;
                    if !cut || one.trials.is_empty() {
                        one.trials.push(trial);
                    }
                    if cut {
                        return Ok(false);
                    }
                }
                Err(reason) => one.refused = Some(reason),
            }
        }
        Ok(true)
    }

    /// Returns the total size of the files, as far as the rest of the time allows.
    pub(super) fn total(&self) -> Total {
        let time = self.budget.time.saturating_sub(self.start.elapsed());
        self.sample.total(time.max(TOTAL_LEAST), &self.stop)
    }

    /// Runs all plans on all files, twice, in opposite orders.
    pub(super) fn exhaustive(&mut self, mean: f64, chosen: Plan) -> Result<Vec<Tried>, Failure> {
        let mut plans = sweep(default_plan(), mean, ioloom::usable_cores());
        if !plans.contains(&chosen) {
            plans.push(chosen);
        }
        let mut tried: Vec<Tried> = plans.into_iter().map(Tried::new).collect();
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
                if self.evict && !all.evict(SWEPT, &self.stop) {
                    one.trials.clear();
                    one.refused = Some("not evicted within an hour".to_owned());
                    continue;
                }
                let (time, bytes) = (SWEPT, u64::MAX);
                let limits = Limits { time, bytes, largest: 0, stop: &self.stop };
                let ran = trial::run(all, one.plan, self.compute, limits);
                if let Ok(trial) = &ran {
                    keep_first(&mut self.error, trial);
                }
                match ran {
                    Ok(trial) if trial.cut => {
                        one.trials.clear();
                        one.refused = Some("not finished within an hour".to_owned());
                    }
                    Ok(trial) => one.trials.push(trial),
                    Err(Error::Refused(reason)) => one.refused = Some(reason),
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(tried)
    }
}

/// Keeps the first error of a run, unless there is an earlier one.
fn keep_first(first: &mut Option<String>, trial: &Trial) {
    if first.is_none() {
        first.clone_from(&trial.error);
    }
}

fn failed(error: Error<FnError>) -> Failure {
    match error {
        Error::Refused(reason) => Failure::refused(reason),
        other => Failure::failed(other),
    }
}

/// Reports whether all these media are one mount, and the system counts its reads from a device or there
/// are none.
fn is_counted(media: &[Option<Medium>]) -> bool {
    let Some(Some(first)) = media.first() else { return false };
    let is_first = |one: &Medium| one.mount.id == first.mount.id;
    let in_memory = matches!(first.mount.file_system.as_str(), "tmpfs" | "ramfs");
    media.iter().all(|one| one.as_ref().is_some_and(is_first))
        && (first.disk.is_some() || in_memory)
}

/// Returns the share of the bytes that came from a device in the first run and all others.
fn cold(mut first: Trial, tried: &[Tried]) -> Option<f64> {
    tried.iter().flat_map(|one| &one.trials).for_each(|trial| first.add(trial));
    first.cold()
}

/// Returns the condition before the trial: by the pages in memory where they are known, because the first
/// files say little about the others, and by the first run.
fn before(resident: Option<f64>, first: Option<f64>) -> Condition {
    match (resident, first) {
        (Some(resident), Some(first)) => {
            let (own, run) = (condition(Some(1.0 - resident)), condition(Some(first)));
            // Pages in memory of files that no device was read for, and the reverse.
            if own == Condition::Warm && run != Condition::Warm { run } else { own }
        }
        _ => condition(first),
    }
}

/// Returns the condition after the trial: what the runs met, if they disagree with what was expected.
fn after(before: Condition, cold: Option<f64>) -> Condition {
    match cold {
        Some(_) if before != Condition::Unknown && condition(cold) != before => Condition::Mixed,
        _ => before,
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
mod tests;
