//! Stored runs of one location, arranged by block and arm.
//!
//! Runs are paired only within one block of one session, and sessions are never pooled: a few
//! sessions differ from each other by more than their blocks show, and joining them until a claim is
//! decided would decide too many. The locations of a contrast share one medium, unless they name it: two
//! media would be compared otherwise. Of several, preference goes to one that the kernel does not slow down,
//! then to one with enough blocks everywhere, then to the work directory over others, then to sets of the
//! published size, then to the first by name.

use super::gap::Gap;
use crate::formula::{self, FormulaError};
use crate::location::Location;
use crate::pattern;
use ioloom_model::study::AGAIN;
use ioloom_model::{Compute, Distribution, Doubt, Measured, Outcome, RunRecord};
use ioloom_stats::INTERVAL_MIN;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// An arm of a location with its run in each block.
pub(crate) struct Arm<'a> {
    /// Display name: the arm, followed by the compute if several computes are levels.
    pub(crate) name: String,
    /// Factors, including `compute` (mean demand in nanoseconds) if the compute time is fixed.
    pub(crate) factors: BTreeMap<String, f64>,
    arm: &'a str,
    runs: BTreeMap<(&'a str, u32), &'a RunRecord>,
}

/// The runs of one session on one medium at one location.
pub(crate) struct Runs<'a> {
    pub(crate) arms: Vec<Arm<'a>>,
    /// Whether compute was simulated by sleeping.
    pub(crate) sleeps: bool,
}

/// Medium of a device that the kernel slows down.
pub(crate) const SLOWED: &str = "slow";

/// Minimum share of runs stopped at their deadline that discredits the arm's remaining runs.
const STOPPED_MAX: f64 = 0.25;

pub(crate) fn at_location<'a>(
    records: &[&'a RunRecord],
    location: &Location,
) -> Vec<&'a RunRecord> {
    records
        .iter()
        .copied()
        .filter(|r| {
            r.key.study == location.study
                && r.key.experiment == location.experiment
                && location.has_set(&r.key.set)
                && location.condition.is_none_or(|c| c == r.key.condition)
                && location.medium.as_ref().is_none_or(|m| *m == r.key.medium)
                && location.compute.as_ref().is_none_or(|c| *c == r.key.compute)
        })
        .collect()
}

/// Returns the compute time per file if it is the same for every file.
pub(crate) fn fixed_demand_ns(compute: &Compute) -> Option<f64> {
    match compute {
        Compute::Spin(Some(Distribution::Identical(ns)))
        | Compute::Sleep(Some(Distribution::Identical(ns))) => Some(*ns as f64),
        _ => None,
    }
}

/// Groups runs by session and medium, in unspecified order.
fn groups<'a>(records: &[&'a RunRecord]) -> Vec<Vec<&'a RunRecord>> {
    let mut groups: BTreeMap<(&str, &str), Vec<&RunRecord>> = BTreeMap::new();
    for record in records {
        groups.entry((&record.key.session, &record.key.medium)).or_default().push(record);
    }
    groups.into_values().collect()
}

impl<'a> Runs<'a> {
    /// Returns the runs of a location in the session and on the medium used to judge it. `sharing` are the
    /// locations that use the same medium, including this one, each with its patterns; `by_compute` makes
    /// each compute of the experiment a separate arm.
    pub(crate) fn of(
        records: &[&'a RunRecord],
        location: &Location,
        sharing: &[(&Location, Vec<&str>)],
        by_compute: bool,
        blocks_min: usize,
    ) -> Self {
        let all: Vec<&RunRecord> =
            sharing.iter().flat_map(|(place, _)| at_location(records, place)).collect();
        let rank = |group: &Vec<&'a RunRecord>| {
            let blocks = |(place, patterns): &(&Location, Vec<&str>)| {
                let arms = arrange(&at_location(group, place), by_compute);
                let most = |pattern: &&str| {
                    arms.iter().filter(|a| a.belongs(pattern)).map(Arm::finished).max().unwrap_or(0)
                };
                patterns.iter().map(most).min().unwrap_or(0)
            };
            let least = sharing.iter().map(blocks).min().unwrap_or(0);
            let scaled = group.iter().any(|r| r.doubts.contains(&Doubt::Scaled));
            let newest = group.iter().map(|r| r.started_unix_ms).max().unwrap_or(0);
            // A slowed device decides only if the claim names it or nothing else has runs.
            let medium = group[0].key.medium.as_str();
            let own = matches!(medium, "work" | "image");
            let name = Reverse(medium.to_owned());
            (medium != SLOWED, least >= blocks_min, own, !scaled, name, newest)
        };
        let mut found = groups(&all);
        let best = if found.len() > 1 { found.into_iter().max_by_key(rank) } else { found.pop() };
        Self::new(&at_location(&best.unwrap_or_default(), location), by_compute)
    }

    /// Returns the runs on each medium of the location, using the newest group of each.
    pub(crate) fn by_medium(records: &[&'a RunRecord], location: &Location) -> Vec<(String, Self)> {
        let mut media: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
        for group in groups(&at_location(records, location)) {
            let newest = |g: &[&RunRecord]| g.iter().map(|r| r.started_unix_ms).max();
            let slot = media.entry(group[0].key.medium.as_str()).or_default();
            if newest(&group) > newest(slot) {
                *slot = group;
            }
        }
        media.into_iter().map(|(m, g)| (m.to_owned(), Self::new(&g, false))).collect()
    }

    fn new(group: &[&'a RunRecord], by_compute: bool) -> Self {
        Self {
            arms: arrange(group, by_compute),
            sleeps: group.iter().any(|r| matches!(r.key.compute, Compute::Sleep(_))),
        }
    }

    /// Returns the arms that match a pattern, or `Missing` if there are none.
    pub(crate) fn members(&self, pattern: &str) -> Result<Vec<&Arm<'a>>, Gap> {
        let found: Vec<_> = self.arms.iter().filter(|a| a.belongs(pattern)).collect();
        if found.is_empty() { Err(Gap::Missing(vec![pattern.to_owned()])) } else { Ok(found) }
    }

    /// Returns the arms that match a pattern in ascending order of a factor, limited to `range`.
    pub(crate) fn levels(
        &self,
        pattern: &str,
        axis: &str,
        range: Option<[f64; 2]>,
    ) -> Result<Vec<(f64, &Arm<'a>)>, Gap> {
        let mut found: Vec<(f64, &Arm<'a>)> = self
            .members(pattern)?
            .into_iter()
            .filter_map(|arm| Some((*arm.factors.get(axis)?, arm)))
            .filter(|(level, _)| range.is_none_or(|[lo, hi]| (lo..=hi).contains(level)))
            .collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        if found.is_empty() { Err(Gap::Missing(vec![pattern.to_owned()])) } else { Ok(found) }
    }

    /// Returns the repeated run of an arm in each block, if the laboratory made one.
    pub(crate) fn repeat(&self, arm: &Arm<'_>) -> Option<&Arm<'a>> {
        let name = format!("{}{AGAIN}", arm.arm);
        self.arms.iter().find(|a| a.arm == name)
    }
}

fn arrange<'a>(group: &[&'a RunRecord], by_compute: bool) -> Vec<Arm<'a>> {
    let mut arms: BTreeMap<(&str, String), Arm<'a>> = BTreeMap::new();
    for record in group {
        let key = &record.key;
        let compute = if by_compute { key.compute.to_string() } else { String::new() };
        let arm = arms.entry((&key.arm, compute.clone())).or_insert_with(|| {
            let mut factors = key.factors.clone();
            factors.extend(fixed_demand_ns(&key.compute).map(|ns| ("compute".to_owned(), ns)));
            let name = if by_compute { format!("{} {compute}", key.arm) } else { key.arm.clone() };
            Arm { name, factors, arm: &key.arm, runs: BTreeMap::new() }
        });
        arm.runs.insert((&key.session, key.block), record);
    }
    arms.into_values().collect()
}

/// Returns the measurements of a run that finished and read the right bytes.
fn usable(record: &RunRecord) -> Option<&Measured> {
    record.measured().filter(|_| !record.doubts.contains(&Doubt::WrongBytes))
}

/// Returns a number or formula of a run. In addition to the model's metrics, it supports `files`,
/// `bytes` and `task_ns_mean`: the time in all calls except waits for other threads, divided by the
/// number of files.
pub(crate) fn metric(measured: &Measured, text: &str) -> Result<f64, FormulaError> {
    formula::evaluate(text, |name| match name {
        "files" => Some(measured.files as f64),
        "bytes" => Some(measured.bytes as f64),
        "task_ns_mean" if measured.files > 0 => {
            let calls = measured
                .calls
                .iter()
                .filter(|(kind, _)| !matches!(kind.name(), "hand-over" | "memory"));
            let total: u64 = calls.map(|(_, stats)| stats.total_ns).sum();
            Some(total as f64 / measured.files as f64)
        }
        _ => measured.metric(name),
    })
}

impl<'a> Arm<'a> {
    fn belongs(&self, pattern: &str) -> bool {
        pattern::matches(pattern, self.arm, &self.factors)
    }

    /// Returns the number of blocks in which it finished correctly.
    pub(crate) fn finished(&self) -> usize {
        self.runs.values().filter(|r| usable(r).is_some()).count()
    }

    /// Returns the number of blocks in which it was started.
    pub(crate) fn started(&self) -> usize {
        self.runs.len()
    }

    /// Returns why the arm has no numbers, if it has none.
    pub(crate) fn gap(&self) -> Option<Gap> {
        if self.finished() > 0 {
            return None;
        }
        let arm = self.name.clone();
        let reason = self.runs.values().map(|r| match &r.outcome {
            Outcome::Refused { reason } => {
                Gap::Refused { arm: arm.clone(), reason: reason.clone() }
            }
            Outcome::Failed { reason } => Gap::Failed { arm: arm.clone(), reason: reason.clone() },
            Outcome::TimedOut { seconds } => {
                let reason = format!("stopped at its deadline of {seconds:.0} s");
                Gap::Failed { arm: arm.clone(), reason }
            }
            Outcome::Done { .. } => {
                Gap::Failed { arm: arm.clone(), reason: "it read the wrong bytes".into() }
            }
        });
        reason.into_iter().next()
    }

    /// Returns why the finished runs of the arm are not representative: too many runs were stopped
    /// at their deadline, which leaves a biased selection of fast ones.
    fn stopped(&self) -> Option<Gap> {
        let longest = self.runs.values().filter_map(|r| match r.outcome {
            Outcome::TimedOut { seconds } => Some(seconds),
            _ => None,
        });
        let (count, seconds) = longest.fold((0, 0.0), |(n, most), s| (n + 1, s.max(most)));
        let all = self.runs.len();
        (count > 0 && count as f64 >= STOPPED_MAX * all as f64).then(|| {
            let reason = format!(
                "{count} of {all} runs were stopped at their deadline of {seconds:.0} s, so only fast \
                 runs are left"
            );
            Gap::Failed { arm: self.name.clone(), reason }
        })
    }

    /// Returns the records that finished correctly, in block order.
    pub(crate) fn records(&self) -> impl Iterator<Item = &'a RunRecord> {
        self.runs.values().copied().filter(|r| usable(r).is_some())
    }
}

/// A read call through a ring that takes fewer nanoseconds did not enter the kernel: it only queued
/// the request, which was submitted later with the wait for completions.
const QUEUED_NS: f64 = 400.0;

/// Reports whether a formula uses read call times that the run did not measure.
fn not_timed(record: &RunRecord, measured: &Measured, text: &str) -> bool {
    let used = formula::names(text).iter().any(|name| name.starts_with("calls.read."));
    used && record.plan.files().is_some_and(|plan| plan.method.needs_ring())
        && measured.metric("calls.read.p50_ns").is_some_and(|ns| ns < QUEUED_NS)
}

/// Several columns of numbers over the same blocks.
#[derive(Debug)]
pub(crate) struct Columns {
    /// One column for each arm and metric, all of the same length.
    pub(crate) values: Vec<Vec<f64>>,
    /// Session and number of each block, in the same order as the values.
    pub(crate) blocks: Vec<(String, u32)>,
    /// Sessions that contain the blocks.
    pub(crate) sessions: Vec<String>,
}

/// Returns the numbers of arms for the blocks in which all of them finished correctly.
///
/// # Errors
/// Fails if an arm has no usable run, a run lacks a number, or there are too few common blocks.
pub(crate) fn columns(wanted: &[(&Arm<'_>, &str)], blocks_min: usize) -> Result<Columns, Gap> {
    if let Some(gap) = wanted.iter().find_map(|(arm, _)| arm.gap().or_else(|| arm.stopped())) {
        return Err(gap);
    }
    let mut blocks: BTreeSet<(&str, u32)> = BTreeSet::new();
    for (i, (arm, _)) in wanted.iter().enumerate() {
        let ended: BTreeSet<_> =
            arm.runs.iter().filter(|(_, r)| usable(r).is_some()).map(|(b, _)| *b).collect();
        blocks = if i == 0 { ended } else { blocks.intersection(&ended).copied().collect() };
    }
    // Fewer blocks give no interval, whatever the rule requires.
    let need = blocks_min.max(INTERVAL_MIN);
    if blocks.len() < need {
        return Err(Gap::FewBlocks { have: blocks.len(), need });
    }
    let mut values = Vec::with_capacity(wanted.len());
    for (arm, text) in wanted {
        let mut column = Vec::with_capacity(blocks.len());
        for block in &blocks {
            let record = arm.runs[block];
            let measured = usable(record).expect("only usable blocks were kept");
            if not_timed(record, measured, text) {
                return Err(Gap::NotTimed { arm: arm.name.clone() });
            }
            let value = metric(measured, text).map_err(|error| match error {
                FormulaError::Name { name } => Gap::NoNumber { arm: arm.name.clone(), name },
                FormulaError::Form { .. } => Gap::Undefined(error.to_string()),
            })?;
            if !value.is_finite() {
                return Err(Gap::Undefined(format!("{text} of {} is not finite", arm.name)));
            }
            column.push(value);
        }
        values.push(column);
    }
    let mut sessions: Vec<String> = blocks.iter().map(|(s, _)| (*s).to_owned()).collect();
    sessions.dedup();
    let blocks = blocks.into_iter().map(|(session, n)| (session.to_owned(), n)).collect();
    Ok(Columns { values, blocks, sessions })
}
