//! The stored runs of one place, arranged by block and arm.
//!
//! Runs are paired only within one block of one session. Several sessions are put together when
//! they are alike: same machine, program, medium and files. Of several such groups one is taken,
//! never a mixture: one with enough blocks before one without, the work directory before other
//! media, published size before scaled, newer before older.

use crate::claim::Place;
use crate::formula::{self, FormulaError};
use crate::pattern;
use ioloom_model::study::AGAIN;
use ioloom_model::{Compute, Distribution, Doubt, Measured, Outcome, RunRecord};
use ioloom_stats::bootstrap::INTERVAL_MIN;
use std::collections::{BTreeMap, BTreeSet};

/// Why an arm or a contrast has no numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Gap {
    /// No stored run of these arms.
    Missing(Vec<String>),
    /// The plan cannot run here.
    Refused { arm: String, reason: String },
    /// It was started and did not end well.
    Failed { arm: String, reason: String },
    /// The runs do not hold this number.
    NoNumber { arm: String, name: String },
    /// The read call was not timed apart from the wait for what it asked for.
    NotTimed { arm: String },
    /// Too few blocks in which all arms finished.
    FewBlocks { have: usize, need: usize },
    /// The statistic is not defined for these numbers.
    Undefined(String),
}

/// One arm of a place with its run in each block.
pub(crate) struct Arm<'a> {
    /// Name for people: the arm, and the compute where several were taken together.
    pub(crate) name: String,
    /// Factors, with `compute` (mean demand in nanoseconds) where the work has a fixed time.
    pub(crate) factors: BTreeMap<String, f64>,
    arm: &'a str,
    runs: BTreeMap<(&'a str, u32), &'a RunRecord>,
}

/// A group of alike sessions at one place.
pub(crate) struct Runs<'a> {
    pub(crate) arms: Vec<Arm<'a>>,
    /// Whether the work was slept, not done.
    pub(crate) sleeps: bool,
}

/// Share of an arm's runs that may be stopped at their deadline.
const STOPPED_MAX: f64 = 0.25;

/// Which sessions may be put together.
type Alike<'a> = (&'a str, &'a str, &'a str, BTreeSet<(&'a str, &'a str)>);

fn at_place<'a>(records: &[&'a RunRecord], place: &Place) -> Vec<&'a RunRecord> {
    records
        .iter()
        .copied()
        .filter(|r| {
            r.key.study == place.study
                && r.key.experiment == place.experiment
                && place.has_set(&r.key.set)
                && place.condition.is_none_or(|c| c == r.key.condition)
                && place.medium.as_ref().is_none_or(|m| *m == r.key.medium)
                && place.compute.as_ref().is_none_or(|c| *c == r.key.compute)
        })
        .collect()
}

/// Time that the work of a run asks for, if it is the same for each file.
fn fixed_demand_ns(compute: &Compute) -> Option<f64> {
    match compute {
        Compute::Spin(Some(Distribution::Identical(ns)))
        | Compute::Sleep(Some(Distribution::Identical(ns))) => Some(*ns as f64),
        _ => None,
    }
}

/// Groups of alike sessions, in no particular order.
fn groups<'a>(records: &[&'a RunRecord]) -> Vec<Vec<&'a RunRecord>> {
    let mut sessions: BTreeMap<(&str, &str), Vec<&RunRecord>> = BTreeMap::new();
    for record in records {
        sessions.entry((&record.key.session, &record.key.medium)).or_default().push(record);
    }
    let mut groups: BTreeMap<Alike<'_>, Vec<&RunRecord>> = BTreeMap::new();
    for ((_, medium), runs) in sessions {
        let files = runs.iter().map(|r| (r.key.set.as_str(), r.set.hash.as_str())).collect();
        let alike = (runs[0].machine.as_str(), runs[0].version.as_str(), medium, files);
        groups.entry(alike).or_default().extend(runs);
    }
    groups.into_values().collect()
}

impl<'a> Runs<'a> {
    /// The group of sessions to judge a place by; `wanted` are the patterns of the contrast, and
    /// `by_compute` takes each compute of the experiment as an arm of its own.
    pub(crate) fn of(
        records: &[&'a RunRecord],
        place: &Place,
        wanted: &[&str],
        by_compute: bool,
        blocks_min: usize,
    ) -> Self {
        let found = at_place(records, place);
        let best = groups(&found).into_iter().max_by_key(|group| {
            let arms = arrange(group, by_compute);
            let blocks = |pattern: &&str| {
                arms.iter().filter(|a| a.belongs(pattern)).map(Arm::finished).max().unwrap_or(0)
            };
            let least = wanted.iter().map(blocks).min().unwrap_or(0);
            let scaled = group.iter().any(|r| r.doubts.contains(&Doubt::Scaled));
            let newest = group.iter().map(|r| r.started_unix_ms).max().unwrap_or(0);
            // A slowed device or memory speaks only where a claim names it.
            let own = matches!(group[0].key.medium.as_str(), "work" | "image");
            (least >= blocks_min, own, !scaled, newest)
        });
        Self::new(&best.unwrap_or_default(), by_compute)
    }

    /// The runs of each medium of the place, the newest group of each.
    pub(crate) fn by_medium(records: &[&'a RunRecord], place: &Place) -> Vec<(String, Self)> {
        let mut media: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
        for group in groups(&at_place(records, place)) {
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

    /// The arms of a pattern; `Missing` if there is none.
    pub(crate) fn members(&self, pattern: &str) -> Result<Vec<&Arm<'a>>, Gap> {
        let found: Vec<_> = self.arms.iter().filter(|a| a.belongs(pattern)).collect();
        if found.is_empty() { Err(Gap::Missing(vec![pattern.to_owned()])) } else { Ok(found) }
    }

    /// The arms of a pattern by a factor, ascending, the lowest and highest level given.
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

    /// The second run of an arm in each block, if the laboratory made one.
    pub(crate) fn again(&self, arm: &Arm<'_>) -> Option<&Arm<'a>> {
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

/// The numbers of a run that may be used: it ended, and the bytes were right.
fn usable(record: &RunRecord) -> Option<&Measured> {
    record.measured().filter(|_| !record.doubts.contains(&Doubt::WrongBytes))
}

/// A number or formula of a run. Beside the metrics of the model there are `files`, `bytes` and
/// `task_ns_mean`: the time in all calls but waiting for others, over the files.
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

    /// Blocks in which it ended well.
    pub(crate) fn finished(&self) -> usize {
        self.runs.values().filter(|r| usable(r).is_some()).count()
    }

    /// Why it has no numbers at all, if it has none.
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
                let reason = format!("it was stopped at its deadline of {seconds:.0} s");
                Gap::Failed { arm: arm.clone(), reason }
            }
            Outcome::Done { .. } => {
                Gap::Failed { arm: arm.clone(), reason: "it did not see the right bytes".into() }
            }
        });
        reason.into_iter().next()
    }

    /// Why what is left of its runs speaks too well of it: so many were stopped at their deadline that
    /// those which ended are a choice of the fast ones.
    fn stopped(&self) -> Option<Gap> {
        let longest = self.runs.values().filter_map(|r| match r.outcome {
            Outcome::TimedOut { seconds } => Some(seconds),
            _ => None,
        });
        let (count, seconds) = longest.fold((0, 0.0), |(n, most), s| (n + 1, s.max(most)));
        let all = self.runs.len();
        (count > 0 && count as f64 >= STOPPED_MAX * all as f64).then(|| {
            let reason = format!(
                "{count} of {all} runs were stopped at their deadline of {seconds:.0} s, so those \
                 that ended are the fast ones"
            );
            Gap::Failed { arm: self.name.clone(), reason }
        })
    }

    /// The records that ended well, in the order of blocks.
    pub(crate) fn records(&self) -> impl Iterator<Item = &'a RunRecord> {
        self.runs.values().copied().filter(|r| usable(r).is_some())
    }
}

/// A read call through a ring that returns sooner than this did not enter the kernel, nanoseconds:
/// the request was only queued, and handed over later together with the wait for completions.
const QUEUED_NS: f64 = 400.0;

/// Whether a formula asks for the cost of read calls that the run did not time.
fn not_timed(record: &RunRecord, measured: &Measured, text: &str) -> bool {
    let asked = formula::names(text).iter().any(|name| name.starts_with("calls.read."));
    asked
        && record.plan.files().is_some_and(|plan| plan.method.needs_ring())
        && measured.metric("calls.read.p50_ns").is_some_and(|ns| ns < QUEUED_NS)
}

/// Numbers of several columns on the same blocks.
#[derive(Debug)]
pub(crate) struct Columns {
    /// One column for each arm and metric, all of one length.
    pub(crate) values: Vec<Vec<f64>>,
    /// Session and number of each block, in the order of the values.
    pub(crate) blocks: Vec<(String, u32)>,
    /// Sessions that the blocks come from.
    pub(crate) sessions: Vec<String>,
}

/// The numbers of arms in the blocks where all of them ended well.
///
/// # Errors
/// An arm without a usable run, a number that a run does not hold, or too few common blocks.
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
    // Whatever a rule asks for, fewer have no interval.
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
