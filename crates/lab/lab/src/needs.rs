//! Estimates the space and time needed by a study.
//!
//! A study reports both before it starts, and is refused if it would leave less than the reserve
//! free.

use crate::estimate::{History, Range, Task};
use crate::expand::{Comparison, ReadyArm, SetSource};
use crate::subject::{Cost, Room, Sets, Subject};
use crate::workspace::{Workspace, reserve_and_free};
use ioloom_model::units::{format_count, format_counted, format_ns, format_size};
use ioloom_model::{Compute, FileSetSpec};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Space requirements of a study in one workspace.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkspaceNeeds {
    /// Name of the medium.
    pub medium: String,
    /// Its directory.
    pub dir: PathBuf,
    /// Bytes of the sets yet to be created.
    pub bytes: u64,
    /// Number of files yet to be created.
    pub files: u64,
    /// Space that the largest run needs in addition to the sets.
    pub run: Room,
    /// Bytes currently free.
    pub free_bytes: u64,
    /// Bytes that must stay free.
    pub reserve_bytes: u64,
}

impl WorkspaceNeeds {
    /// Returns whether the sets and the files of the largest run fit.
    pub fn enough(&self) -> bool {
        let all = self.all_bytes();
        all == 0 || self.free_bytes >= all.saturating_add(self.reserve_bytes)
    }

    /// Returns the bytes of the sets yet to be created and of the files of the largest run.
    pub fn all_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.run.bytes)
    }
}

/// Space and time requirements of a study. Times are estimates; see [`crate::estimate`].
#[derive(Debug, Clone, PartialEq)]
pub struct Needs {
    /// Each workspace.
    pub workspaces: Vec<WorkspaceNeeds>,
    /// Complete sets.
    pub sets_ready: usize,
    /// Sets yet to be created.
    pub sets_missing: usize,
    /// Runs in the list.
    pub runs: usize,
    /// Estimated seconds to create the sets.
    pub sets_s: Range,
    /// Estimated seconds of all runs, without a budget.
    pub runs_s: Range,
    /// Number of runs in the list with an earlier run to estimate from.
    pub runs_known: usize,
    /// The budget in seconds, if there is one.
    pub budget_s: Option<f64>,
}

impl Needs {
    /// Returns a reason for refusing the study if a workspace has too little space.
    pub fn refusal(&self) -> Option<String> {
        let short = self.workspaces.iter().find(|p| !p.enough())?;
        Some(format!(
            "not enough space on {} ({}): {} need {}, {} are free and {} must stay \
            free; use --dir with a larger file system, or run `ioloom clean`",
            short.medium,
            short.dir.display(),
            if short.run.bytes == 0 {
                "the file sets"
            } else {
                "the file sets and the files of a run"
            },
            format_size(short.all_bytes()),
            format_size(short.free_bytes),
            format_size(short.reserve_bytes),
        ))
    }
}

impl Needs {
    /// Returns the expected duration in words: one number if similar runs were recorded on this
    /// machine, otherwise the range from a fast disk to a slow one. The budget does not limit it.
    pub fn time_words(&self) -> String {
        let low = self.sets_s.low + self.runs_s.low;
        let high = self.sets_s.high + self.runs_s.high;
        let is_more = self.budget_s.is_some_and(|budget| low > budget);
        let more = if is_more { ", more than the budget" } else { "" };
        let words = |seconds: f64| format_ns(seconds * 1e9);
        if high > low * ABOUT {
            return format!("{} on a fast disk to {} on a slow one{more}", words(low), words(high));
        }
        let why = if self.runs_known * 2 > self.runs { ", based on earlier runs here" } else { "" };
        format!("about {}{more}{why}", words(f64::midpoint(low, high)))
    }
}

/// A range narrower than this factor is printed as one number.
const ABOUT: f64 = 1.3;

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", format_counted(self.runs as u64, "run", "runs"), self.time_words())?;
        if self.sets_missing == 0 {
            return write!(f, "; no file sets to make");
        }
        let missing = format_counted(self.sets_missing as u64, "file set", "file sets");
        write!(f, "; {missing} to make")?;
        for place in self.workspaces.iter().filter(|p| p.files > 0) {
            write!(
                f,
                "; {} in {} files on {} ({}), where {} are free",
                format_size(place.bytes),
                format_count(place.files),
                place.medium,
                place.dir.display(),
                format_size(place.free_bytes),
            )?;
        }
        Ok(())
    }
}

/// Computes the space requirements of the comparisons in each workspace.
///
/// # Errors
/// The free space of a workspace cannot be read.
pub fn needs(
    comparisons: &[Comparison],
    workspaces: &[Workspace],
    subject: &dyn Subject,
    reserve_bytes: u64,
    cores: u32,
    history: &History,
) -> io::Result<Needs> {
    let mut needs = Needs {
        workspaces: Vec::new(),
        sets_ready: 0,
        sets_missing: 0,
        runs: 0,
        sets_s: Range::default(),
        runs_s: Range::default(),
        runs_known: 0,
        budget_s: None,
    };
    let sets = subject.sets();
    let mut costs = Costs { sets, known: BTreeMap::new() };
    for place in workspaces {
        let (reserve_bytes, free_bytes) = reserve_and_free(&place.dir, reserve_bytes)?;
        let mut wanted = BTreeMap::new();
        let mut run = Room::default();
        for comparison in comparisons.iter().filter(|c| c.medium == place.medium.name) {
            for arm in &comparison.arms {
                let blocks = comparison.blocks;
                needs.runs += blocks as usize;
                let known = history.run_seconds(comparison, arm);
                needs.runs_known += if known.is_some() { blocks as usize } else { 0 };
                let guess = || run_range(&mut costs, arm, &comparison.compute, cores);
                needs.runs_s.add(known.map_or_else(guess, Range::exactly), f64::from(blocks));
                if let SetSource::Made(spec) = &arm.source {
                    wanted.insert(place.set_dir(&arm.set, spec), spec);
                    run = run.max(subject.writes(&arm.plan, spec));
                }
            }
        }
        let (mut bytes, mut files) = (0, 0);
        for (dir, spec) in wanted {
            if sets.known(spec, &dir).is_some() {
                needs.sets_ready += 1;
                continue;
            }
            let cost = costs.of(spec);
            needs.sets_missing += 1;
            // The subject's estimate is for an ordinary disk.
            let range = Range { low: cost.seconds / SETS_FAST, high: cost.seconds * SETS_SLOW };
            needs.sets_s.add(range, 1.0);
            bytes += cost.bytes;
            files += cost.files;
        }
        needs.workspaces.push(WorkspaceNeeds {
            medium: place.medium.name.clone(),
            dir: place.dir.clone(),
            bytes,
            files,
            run,
            free_bytes,
            reserve_bytes,
        });
    }
    Ok(needs)
}

/// Costs are cached because a subject may draw a million sizes to compute one.
struct Costs<'a> {
    sets: &'a dyn Sets,
    known: BTreeMap<Vec<u8>, Cost>,
}

impl Costs<'_> {
    fn of(&mut self, spec: &FileSetSpec) -> Cost {
        let key = serde_json::to_vec(spec).unwrap_or_default();
        *self.known.entry(key).or_insert_with(|| self.sets.cost(spec))
    }
}

/// Speed of a fast disk relative to an ordinary disk when creating sets.
const SETS_FAST: f64 = 4.0;
/// Slowdown of a slow disk relative to an ordinary disk when creating sets.
const SETS_SLOW: f64 = 2.0;

/// Estimates the duration of a run without history from its plan and files. User files are not
/// known yet, so their range is wide.
fn run_range(costs: &mut Costs<'_>, arm: &ReadyArm, compute: &Compute, cores: u32) -> Range {
    let SetSource::Made(spec) = &arm.source else { return Range { low: 0.1, high: 10.0 } };
    let cost = costs.of(spec);
    let files = arm.files_max.map_or(cost.files, |max| max.min(cost.files));
    let bytes = cost.bytes as f64 * files as f64 / cost.files.max(1) as f64;
    let width = match compute {
        Compute::Sleep(_) => arm.plan.threads(),
        _ => arm.plan.threads().min(cores),
    };
    let work_ns = demand_ns(compute, Some(spec), files, bytes);
    Task { files, bytes, data: !spec.making.sparse, work_ns, width }.range(compute)
}

/// Returns the total compute time of the files in nanoseconds on one core. Random times are
/// estimated from a sample of their distribution, checksums and hashes from a slow rate.
pub(crate) fn demand_ns(
    compute: &Compute,
    spec: Option<&FileSetSpec>,
    files: u64,
    bytes: f64,
) -> f64 {
    match compute {
        Compute::None | Compute::Touch => 0.0,
        Compute::Hash(hash) if hash.is_light() => 0.0,
        Compute::Hash(_) => bytes * 2.0,
        Compute::Checksum { times } => bytes * f64::from(*times) * 0.5,
        Compute::Spin(_) | Compute::Sleep(_) => {
            const DRAWS: u64 = 512;
            let (demand, seed) = spec.map_or((None, 0), |s| (s.compute.as_ref(), s.seed));
            let draws = DRAWS.min(files.max(1));
            let sum: f64 = (0..draws)
                .filter_map(|i| compute.demand_ns(demand, seed, i))
                .map(|ns| ns as f64)
                .sum();
            sum / draws as f64 * files as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_run_count_even_if_all_sets_exist() {
        let mut place = WorkspaceNeeds {
            medium: "work".into(),
            dir: "/data".into(),
            bytes: 0,
            files: 0,
            run: Room::default(),
            free_bytes: 4 << 30,
            reserve_bytes: 5 << 30,
        };
        assert!(place.enough());
        place.run.bytes = 3 << 30;
        place.reserve_bytes = 1 << 30;
        assert!(place.enough());
        place.run.bytes += 1;
        assert!(!place.enough());
        place.run.bytes = 2 << 30;
        place.bytes = (1 << 30) + 1;
        assert!(!place.enough());
    }
}
