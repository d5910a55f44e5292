//! Plans a study: its runs and their requirements.

use super::options::RunOptions;
use crate::error::LabError;
use crate::estimate::{History, Range};
use crate::expand::{Comparison, Mode, ReadyArm, SetSource, expand, pictures};
use crate::needs::{self, Needs};
use crate::order::{self, Slot};
use crate::subject::{Subject, Touches};
use ioloom_model::Condition;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// The runs of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The comparisons.
    pub comparisons: Vec<Comparison>,
    /// The runs in order.
    pub order: Vec<Slot>,
    /// Traced runs, which come first.
    pub pictures: Vec<Comparison>,
    /// Seed of the order.
    pub seed: u64,
    /// Fingerprint of the comparisons, 16 digits.
    pub spec_hash: String,
}

/// Maximum number of runs of a session. Its list of runs is in memory, and in the first line of its file.
const RUNS_MAX: u64 = 1_000_000;

/// Expands a study under the options and draws the order of its runs.
///
/// # Errors
/// [`LabError::Usage`] if an override specifies something that does not exist, nothing is left to run, or there
/// are too many runs.
pub fn plan(spec: &ioloom_model::StudySpec, options: &RunOptions<'_>) -> Result<Planned, LabError> {
    let mut words = BTreeSet::new();
    if let Some(twice) = options.workspaces.iter().find(|p| !words.insert(&p.medium.name)) {
        return Err(LabError::Usage(format!("medium {} is specified twice", twice.medium.name)));
    }
    let mut overrides = options.overrides.clone();
    overrides.media = options.workspaces.iter().map(|p| p.medium.name.clone()).collect();
    if options.files.is_some() {
        // All user files are on one medium.
        overrides.media.truncate(1);
        overrides.files = options.files.as_ref().map(|f| f.display().to_string());
    }
    let cores = options.machine.cpus_usable.max(1);
    let comparisons = expand(spec, options.mode, &overrides, cores).map_err(LabError::Usage)?;
    if comparisons.is_empty() {
        let mode = options.mode.name();
        return Err(LabError::Usage(format!(
            "study {} has nothing to run in {mode} mode",
            spec.name
        )));
    }
    let of_comparison = |c: &Comparison| c.arms.len() as u64 * u64::from(c.blocks);
    let runs: u64 = comparisons.iter().map(of_comparison).sum();
    if runs > RUNS_MAX {
        return Err(LabError::Usage(format!(
            "study {} has {runs} runs, and a session at most {RUNS_MAX}; use fewer blocks",
            spec.name
        )));
    }
    let pictures = pictures(spec, options.mode, &overrides, cores, &comparisons);
    let pictures = pictures.map_err(LabError::Usage)?;
    let seed = overrides.seed.unwrap_or(spec.seed);
    let text = serde_json::to_vec(&comparisons).map_err(std::io::Error::from)?;
    let spec_hash = format!("{:016x}", xxh3_64(&text));
    let order = order::draw(&comparisons, seed);
    Ok(Planned { order, pictures, comparisons, seed, spec_hash })
}

/// Has the subject check every plan before anything is created.
pub(super) fn check(planned: &Planned, subject: &dyn Subject) -> Result<(), LabError> {
    for comparison in &planned.comparisons {
        let none = |arm: &ReadyArm| subject.touches_of(&arm.plan) == Touches::Nothing;
        if comparison.condition != Condition::AsIs
            && let Some(arm) = comparison.arms.iter().find(|arm| none(arm))
        {
            return Err(LabError::Usage(format!(
                "experiment '{}': {} reads no files, so its runs cannot be {}; use the condition \
                 as-is",
                comparison.experiment, arm.plan, comparison.condition
            )));
        }
        for arm in &comparison.arms {
            subject.explain(&arm.plan).map_err(|reason| {
                let place = format!("experiment '{}', arm '{}'", comparison.experiment, arm.name);
                LabError::Usage(format!("{place}: {reason}"))
            })?;
        }
    }
    Ok(())
}

/// Removes what killed runs left next to the file sets: it then counts as free.
pub(super) fn clear(planned: &Planned, subject: &dyn Subject, options: &RunOptions<'_>) {
    let mut dirs = BTreeSet::new();
    for place in &options.workspaces {
        let here = planned.comparisons.iter().filter(|c| c.medium == place.medium.name);
        for arm in here.flat_map(|comparison| &comparison.arms) {
            if let SetSource::Made(spec) = &arm.source {
                dirs.insert(place.set_dir(&arm.set, spec));
            }
        }
    }
    dirs.iter().for_each(|dir| subject.sets().clear(dir));
}

/// Computes the requirements of the planned study. `history` contains the durations of earlier
/// runs.
///
/// # Errors
/// The free space of a medium cannot be read.
pub fn needs(
    spec: &ioloom_model::StudySpec,
    planned: &Planned,
    subject: &dyn Subject,
    history: &History,
    options: &RunOptions<'_>,
) -> Result<Needs, LabError> {
    let cores = options.machine.cpus_usable.max(1);
    let (comparisons, reserve) = (&planned.comparisons, options.reserve_bytes);
    let places = &options.workspaces;
    let mut needs = needs::needs(comparisons, places, subject, reserve, cores, history)?;
    for comparison in comparisons {
        let unknown = comparison.arms.iter();
        for arm in unknown.filter(|arm| history.run_seconds(comparison, arm).is_none()) {
            // Without files, the estimate is the time the plan waits regardless of disk speed.
            let waits = Range::exactly(subject.takes_s(&arm.plan, 0, 0));
            needs.runs_s.add(waits, f64::from(comparison.blocks));
        }
    }
    needs.budget_s = budget(spec, options).map(|b| b.as_secs_f64());
    Ok(needs)
}

pub(super) fn budget(spec: &ioloom_model::StudySpec, options: &RunOptions<'_>) -> Option<Duration> {
    options.budget.or(match options.mode {
        Mode::Quick => Some(Duration::from_secs_f64(spec.quick_budget_s)),
        Mode::Full => None,
    })
}

/// Estimates the seconds of a run of each arm, by the indices of its comparison and of the arm. Arms without
/// earlier runs share the rest of the block equally.
pub(super) fn arm_seconds(
    planned: &Planned,
    needs: &Needs,
    history: &History,
) -> BTreeMap<(u32, u32), f64> {
    let blocks = planned.order.last().map_or(1, |slot| slot.2 + 1);
    // The ends of a range are factors away from the truth, so the middle is that of logarithms.
    let block_s = (needs.runs_s.low * needs.runs_s.high).sqrt() / f64::from(blocks);
    let mut known = BTreeMap::new();
    for (comparison, of) in (0_u32..).zip(&planned.comparisons) {
        for (arm, index) in of.arms.iter().zip(0_u32..) {
            known.insert((comparison, index), history.run_seconds(of, arm));
        }
    }
    let unknown = known.values().filter(|seconds| seconds.is_none()).count();
    let rest_s = block_s - known.values().flatten().sum::<f64>();
    let share_s = rest_s.max(0.0) / unknown.max(1) as f64;
    known.into_iter().map(|(arm, seconds)| (arm, seconds.unwrap_or(share_s))).collect()
}
