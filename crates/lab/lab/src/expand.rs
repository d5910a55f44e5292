//! Expands a study into comparisons: experiment × set × condition × compute × medium, each with its
//! concrete arms.
//!
//! A comparison is the unit of statistics: its arms run in the same blocks. Braces in an arm's
//! name, plan, set or file limit contain a factor, optionally combined with an integer by `+`, `-`,
//! `*` or `/` (`{n}`, `{n-1}`). Quick mode uses only headline arms and the smaller sets. One arm of
//! a comparison runs twice in each block, the second time under another name: comparing it with
//! itself shows the noise floor. An experiment can disable this.

pub use ioloom_model::study::{AGAIN, Mode};

use crate::published::is_scaled;
use crate::selection::{Place, Selection};
use ioloom_model::study::{Arm, BLOCKS_FULL, Experiment, MediaUse, fill};
use ioloom_model::{AnyPlan, ColdBy, Compute, Condition, FileSetSpec, StudySpec, table};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of arms per experiment after expansion.
pub const ARMS_MAX: usize = 4096;

/// Origin of the files of an arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetSource {
    /// Created from a specification.
    Made(FileSetSpec),
    /// A user directory, displayed under this name. The path is not recorded because not every path
    /// is valid text.
    Directory(String),
    /// The study has no sets.
    None,
}

/// An arm with its factors substituted.
#[derive(Debug, Clone, PartialEq)]
pub struct Concrete {
    /// Name.
    pub name: String,
    /// The complete plan.
    pub plan: AnyPlan,
    /// The factors.
    pub factors: BTreeMap<String, f64>,
    /// Maximum number of files.
    pub files_max: Option<u64>,
    /// The set, if it differs from the experiment's.
    pub set: Option<String>,
    /// Whether the arm runs in quick mode.
    pub headline: bool,
    /// The only permitted way to make its files cold.
    pub cold_by: Option<ColdBy>,
    /// Kernel settings for its runs.
    pub settings: BTreeMap<String, u64>,
}

/// An arm of a comparison, ready to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadyArm {
    /// Name, with [`AGAIN`] for the second run of the same arm.
    pub name: String,
    /// The complete plan.
    pub plan: AnyPlan,
    /// The factors.
    pub factors: BTreeMap<String, f64>,
    /// Maximum number of files, from the start of the list.
    pub files_max: Option<u64>,
    /// Name of the set.
    pub set: String,
    /// Origin of its files.
    pub source: SetSource,
    /// Whether the set is smaller than the published one.
    pub scaled: bool,
    /// The only permitted way to make its files cold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_by: Option<ColdBy>,
    /// Kernel settings for its runs, by name below `/proc/sys/vm`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, u64>,
}

/// A comparison: arms that run in the same blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the experiment's set. Arms may use a different one.
    pub set: String,
    /// Condition of each run.
    pub condition: Condition,
    /// Compute applied to the bytes.
    pub compute: Compute,
    /// Name of the medium.
    pub medium: String,
    /// Blocks to run.
    pub blocks: u32,
    /// The arms.
    pub arms: Vec<ReadyArm>,
}

impl Comparison {
    /// Returns the place of its arms.
    pub fn place(&self) -> Place<'_> {
        Place {
            experiment: &self.experiment,
            set: &self.set,
            condition: self.condition,
            compute: &self.compute,
        }
    }
}

/// Command-line changes to a study.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Seed for the run order, replacing the one in the file. Sets keep their seeds.
    pub seed: Option<u64>,
    /// Names of media; if empty, only `work`.
    pub media: Vec<String>,
    /// The study added the media after the first one. They run only the ladders of the table
    /// medium × threads; see [`MediaUse`].
    pub ladders_on_further: bool,
    /// Display name of a user directory that replaces every set.
    pub files: Option<String>,
    /// Experiments to run; empty means all.
    pub experiments: Vec<String>,
    /// Conditions for every experiment; empty means those in the file.
    pub conditions: Vec<Condition>,
    /// Number of blocks, replacing the one in the file.
    pub blocks: Option<u32>,
    /// Whether to run only the arms that a reboot makes cold, once each, instead of all other arms.
    pub after_reboot: bool,
    /// Arms to run; `None` means all.
    pub select: Option<Selection>,
    /// Sets of which full mode uses the quick size.
    pub scaled: BTreeSet<String>,
}

/// Returns the concrete arms for all factor combinations, with plans completed for `cores`.
///
/// # Errors
/// A sentence about what cannot be substituted or cannot run on any machine.
pub fn concrete_arms(arm: &Arm, cores: u32) -> Result<Vec<Concrete>, String> {
    for (factor, values) in &arm.headline_with {
        let all = arm.with.get(factor).ok_or_else(|| {
            format!("headline_with names the factor '{factor}', which is missing from with")
        })?;
        if let Some(value) = values.iter().find(|v| !all.contains(v)) {
            return Err(format!("headline_with {factor} = {value} is not a value of with"));
        }
    }
    let mut count = 1usize;
    for (factor, values) in &arm.with {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return Err(format!("factor '{factor}' needs at least one finite value"));
        }
        count = count.saturating_mul(values.len());
        if count > ARMS_MAX {
            return Err(format!("more than {} arms", ARMS_MAX));
        }
    }
    arm.points().into_iter().map(|factors| concrete(arm, factors, cores)).collect()
}

fn concrete(arm: &Arm, factors: BTreeMap<String, f64>, cores: u32) -> Result<Concrete, String> {
    let text = fill(&arm.plan, &factors)?;
    let plan: AnyPlan = text.parse().map_err(|e: ioloom_model::ParseError| e.to_string())?;
    let plan = plan.complete(cores);
    // Adapters check the plans of other subjects when the study is planned.
    plan.files().map_or(Ok(()), table::check)?;
    let files_max = match &arm.files_max {
        None => None,
        Some(template) => {
            let text = fill(template, &factors)?;
            let count = text.parse::<u64>().ok().filter(|n| *n > 0);
            Some(count.ok_or_else(|| {
                format!("invalid files_max '{text}': must be a whole number above zero")
            })?)
        }
    };
    let headline = arm.in_quick(&factors);
    let set = arm.set.as_ref().map(|t| fill(t, &factors)).transpose()?;
    let name = fill(&arm.name, &factors)?;
    let (cold_by, settings) = (arm.cold_by, arm.settings.clone());
    Ok(Concrete { name, plan, factors, files_max, set, headline, cold_by, settings })
}

/// Rejects unknown experiments.
fn check_names(spec: &StudySpec, overrides: &Overrides) -> Result<(), String> {
    for name in &overrides.experiments {
        if !spec.experiments.iter().any(|e| e.name == *name) {
            let known: Vec<_> = spec.experiments.iter().map(|e| e.name.as_str()).collect();
            return Err(format!(
                "no experiment '{name}' in study {}; there are: {}",
                spec.name,
                known.join(", ")
            ));
        }
    }
    Ok(())
}

/// Returns all comparisons of a study read by [`crate::spec`], except experiments without arms in
/// this mode.
///
/// # Errors
/// The overrides specify an unknown experiment, or [`concrete_arms`] fails.
pub fn expand(
    spec: &StudySpec,
    mode: Mode,
    overrides: &Overrides,
    cores: u32,
) -> Result<Vec<Comparison>, String> {
    check_names(spec, overrides)?;
    let default_medium = vec!["work".to_owned()];
    let media = if overrides.media.is_empty() { &default_medium } else { &overrides.media };
    let mut all = Vec::new();
    for experiment in &spec.experiments {
        if !wanted(experiment, overrides, media.len()) {
            continue;
        }
        let mut arms = Vec::new();
        for arm in &experiment.arms {
            arms.extend(concrete_arms(arm, cores)?);
        }
        let reboot = |a: &Concrete| a.cold_by == Some(ColdBy::Reboot);
        let several = experiment.media == MediaUse::LadderOfSeveral;
        let every = mode == Mode::Full || several || overrides.after_reboot;
        arms.retain(|a| reboot(a) == overrides.after_reboot && (every || a.headline));
        // A user directory replaces one set and has no variants of other sizes.
        arms.retain(|a| overrides.files.is_none() || a.set.is_none());
        if arms.is_empty() {
            continue;
        }
        let no_set = [String::new()];
        let sets = match &experiment.sets[..] {
            [] => &no_set[..],
            sets if overrides.files.is_some() => &sets[..1],
            sets => sets,
        };
        let conditions = if overrides.conditions.is_empty() {
            &experiment.conditions
        } else {
            &overrides.conditions
        };
        let blocks = blocks_of(experiment, mode, overrides);
        for (nth, medium) in media.iter().enumerate() {
            let ladder_only = nth > 0 && overrides.ladders_on_further;
            if ladder_only && experiment.media == MediaUse::First {
                continue;
            }
            let here = |a: &&Concrete| !ladder_only || a.plan.plain_threads().is_some();
            for set in sets {
                let ready = |a: &Concrete| ready_arm(spec, mode, overrides, set, a);
                let ready: Vec<_> =
                    arms.iter().filter(here).map(ready).collect::<Result<_, _>>()?;
                if ready.is_empty() {
                    continue;
                }
                let shown = shown_set(spec, overrides, set);
                for condition in conditions {
                    for compute in &experiment.computes {
                        all.push(Comparison {
                            experiment: experiment.name.clone(),
                            set: shown.to_owned(),
                            condition: *condition,
                            compute: compute.clone(),
                            medium: medium.clone(),
                            blocks,
                            arms: ready.clone(),
                        });
                    }
                }
            }
        }
    }
    if let Some(select) = &overrides.select {
        keep_selected(&mut all, select);
    }
    // After a reboot, only the first run is cold.
    if !overrides.after_reboot {
        add_again(spec, &mut all, mode);
    }
    Ok(all)
}

/// Removes the arms that are not selected.
fn keep_selected(comparisons: &mut Vec<Comparison>, select: &Selection) {
    for comparison in comparisons.iter_mut() {
        let mut arms = std::mem::take(&mut comparison.arms);
        arms.retain(|arm| select.has(&comparison.place(), &arm.name));
        comparison.arms = arms;
    }
    comparisons.retain(|comparison| !comparison.arms.is_empty());
}

/// Returns the arms to trace for timelines: for each experiment, on its first set, condition,
/// compute and medium, restricted to sets used by `comparisons`.
///
/// # Errors
/// [`concrete_arms`] fails.
pub fn pictures(
    spec: &StudySpec,
    mode: Mode,
    overrides: &Overrides,
    cores: u32,
    comparisons: &[Comparison],
) -> Result<Vec<Comparison>, String> {
    let made = |source: &SetSource| {
        comparisons.iter().flat_map(|c| &c.arms).any(|arm| arm.source == *source)
    };
    let medium = overrides.media.first().map_or("work", String::as_str);
    let mut all = Vec::new();
    if overrides.select.is_some() {
        return Ok(all);
    }
    for experiment in spec.experiments.iter().filter(|e| wanted(e, overrides, 1)) {
        let (Some(condition), Some(compute)) =
            (experiment.conditions.first(), experiment.computes.first())
        else {
            continue;
        };
        let set = experiment.sets.first().map_or("", String::as_str);
        let mut arms = Vec::new();
        for arm in &experiment.arms {
            for one in concrete_arms(arm, cores)? {
                if experiment.pictures.contains(&one.name) {
                    arms.push(ready_arm(spec, mode, overrides, set, &one)?);
                }
            }
        }
        arms.retain(|arm| made(&arm.source));
        arms.sort_by_key(|arm| experiment.pictures.iter().position(|p| *p == arm.name));
        if !arms.is_empty() {
            all.push(Comparison {
                experiment: experiment.name.clone(),
                set: shown_set(spec, overrides, set).to_owned(),
                condition: *condition,
                compute: compute.clone(),
                medium: medium.to_owned(),
                blocks: 1,
                arms,
            });
        }
    }
    Ok(all)
}

/// Returns the display name of the set of a comparison. A directory of the user replaces the sets of
/// a study that has some.
fn shown_set<'a>(spec: &StudySpec, overrides: &'a Overrides, set: &'a str) -> &'a str {
    overrides.files.as_deref().filter(|_| !spec.sets.is_empty()).unwrap_or(set)
}

/// Returns the number of blocks of an experiment. In full mode, a number for all experiments does
/// not raise that of a large experiment with few blocks unless the experiment is selected by name.
pub fn blocks_of(experiment: &Experiment, mode: Mode, overrides: &Overrides) -> u32 {
    let own = match mode {
        _ if overrides.after_reboot => 1,
        Mode::Quick => experiment.blocks_quick,
        Mode::Full => experiment.blocks_full,
    };
    let few = mode == Mode::Full && own < BLOCKS_FULL;
    match overrides.blocks {
        Some(asked) if few && !overrides.experiments.contains(&experiment.name) => asked.min(own),
        Some(asked) => asked,
        None => own,
    }
}

/// Returns whether an experiment runs in a session with this number of media.
fn wanted(experiment: &Experiment, overrides: &Overrides, media: usize) -> bool {
    let named = overrides.experiments.contains(&experiment.name);
    let alone = experiment.media != MediaUse::LadderOfSeveral;
    named || (overrides.experiments.is_empty() && (media > 1 || alone))
}

fn ready_arm(
    spec: &StudySpec,
    mode: Mode,
    overrides: &Overrides,
    set: &str,
    arm: &Concrete,
) -> Result<ReadyArm, String> {
    let name = arm.set.as_deref().unwrap_or(set);
    let (source, shown, scaled) = match &overrides.files {
        _ if spec.sets.is_empty() => (SetSource::None, String::new(), false),
        Some(shown) => (SetSource::Directory(shown.clone()), shown.clone(), false),
        None => {
            let found = spec.sets.get(name).ok_or_else(|| format!("no set '{name}'"))?;
            let small = mode == Mode::Quick || overrides.scaled.contains(name);
            let quick = found.quick.as_ref().filter(|_| small);
            let mut set = quick.unwrap_or(&found.full).clone();
            // The command-line seed only orders the runs. Files stay the same, so they are created
            // once and sessions remain comparable.
            if set.seed == 0 {
                set.seed = spec.seed;
            }
            let scaled = is_scaled(&spec.name, name, &set, found);
            (SetSource::Made(set), name.to_owned(), scaled)
        }
    };
    Ok(ReadyArm {
        name: arm.name.clone(),
        plan: arm.plan.clone(),
        factors: arm.factors.clone(),
        files_max: arm.files_max,
        set: shown,
        source,
        scaled,
        cold_by: arm.cold_by,
        settings: arm.settings.clone(),
    })
}

/// Adds a second run of an arm to each block: in full mode for the first arm of each comparison
/// that allows it, in quick mode only for the first such comparison to save time.
fn add_again(spec: &StudySpec, comparisons: &mut [Comparison], mode: Mode) {
    let count = if mode == Mode::Full { comparisons.len() } else { 1 };
    let wants =
        |c: &&mut Comparison| spec.experiments.iter().any(|e| e.name == c.experiment && e.again);
    for comparison in comparisons.iter_mut().filter(wants).take(count) {
        if let Some(first) = comparison.arms.first() {
            let mut again = first.clone();
            again.name.push_str(AGAIN);
            comparison.arms.push(again);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline() -> StudySpec {
        crate::spec::load("pipeline", None).unwrap()
    }

    #[test]
    fn a_study_without_sets_is_the_same_with_files_of_the_user() {
        let spec = crate::spec::load("memory", None).unwrap();
        let of = |files: Option<&str>| {
            let overrides = Overrides { files: files.map(str::to_owned), ..Overrides::default() };
            expand(&spec, Mode::Quick, &overrides, 2).unwrap()
        };
        assert!(!of(None).is_empty());
        assert_eq!(of(Some("/home/me/src")), of(None));
    }

    #[test]
    fn pictures_are_arms_of_experiments_on_sets_that_are_made_anyway() {
        let spec = pipeline();
        let of = |mode, overrides: &Overrides| {
            let all = expand(&spec, mode, overrides, 2).unwrap();
            pictures(&spec, mode, overrides, 2, &all).unwrap()
        };
        for mode in [Mode::Quick, Mode::Full] {
            let found = of(mode, &Overrides::default());
            let names: Vec<Vec<&str>> =
                found.iter().map(|c| c.arms.iter().map(|a| a.name.as_str()).collect()).collect();
            assert_eq!(names, [["sync-4", "reader-4"], ["sync-4", "reader-4"]]);
            assert_eq!(found[0].compute.to_string(), "sleep");
            assert_eq!(found[1].compute.to_string(), "spin");
        }
        let only =
            |name: &str| Overrides { experiments: vec![name.to_owned()], ..Overrides::default() };
        assert_eq!(of(Mode::Quick, &only("elapsed-small-files")), []);
        assert_eq!(of(Mode::Full, &only("sync-or-reader-spin")).len(), 1);
        let text = std::fs::read_to_string("../../../studies/pipeline/study.toml").unwrap();
        let wrong = text.replace("pictures = [\"sync-4\"", "pictures = [\"sync-5x\"");
        let error = crate::spec::parse(&wrong, "p").unwrap_err().to_string();
        assert!(error.contains("sync-5x"), "{error}");
    }

    #[test]
    fn factors_expand_over_their_product() {
        let spec = pipeline();
        let grid = spec.experiments.iter().find(|e| e.name == "roles-grid").unwrap();
        let arms = concrete_arms(&grid.arms[0], 2).unwrap();
        let (r, c) = (&grid.arms[0].with["r"], &grid.arms[0].with["c"]);
        assert_eq!(arms.len(), r.len() * c.len());
        assert!(arms.iter().all(|a| a.factors.len() == 2));
    }

    #[test]
    fn quick_takes_headline_arms_and_small_sets_full_takes_all() {
        let spec = pipeline();
        let none = Overrides::default();
        let quick = expand(&spec, Mode::Quick, &none, 2).unwrap();
        let full = expand(&spec, Mode::Full, &none, 2).unwrap();
        let arms = |all: &[Comparison]| all.iter().map(|c| c.arms.len()).sum::<usize>();
        assert!(
            arms(&quick) <= 13,
            "too many arms: at most twelve headline arms and one repeated \
            arm"
        );
        assert!(arms(&full) > 10 * arms(&quick));
        assert!(quick.iter().all(|c| c.blocks >= 8) && full.iter().all(|c| c.blocks >= 12));
        let again = |c: &Comparison| c.arms.iter().filter(|a| a.name.ends_with(AGAIN)).count();
        assert_eq!(quick.iter().map(again).sum::<usize>(), 1);
        assert!(full.iter().all(|c| again(c) == 1));
        let small = &quick.iter().find(|c| c.set == "E").unwrap().arms[0];
        assert!(small.scaled);
        assert_eq!(small.source, SetSource::Made(spec.sets["E"].quick.clone().unwrap()));
        let is_reduced = |arm: &ReadyArm| spec.sets[&arm.set].published.is_some();
        assert!(full.iter().flat_map(|c| &c.arms).all(|a| a.scaled == is_reduced(a)));
        assert!(full.iter().filter(|c| c.set == "C-20000").all(|c| c.arms[0].scaled));
        assert!(full.iter().any(|c| c.set == "C-20000"));
    }

    #[test]
    fn an_experiment_of_few_blocks_keeps_them_unless_it_is_named() {
        let spec = crate::spec::load("copy", None).unwrap();
        let asked = |blocks, experiments: &[&str]| {
            let experiments = experiments.iter().map(|e| (*e).to_owned()).collect();
            let overrides = Overrides { blocks, experiments, ..Overrides::default() };
            let all = expand(&spec, Mode::Full, &overrides, 2).unwrap();
            let of = |name: &str| {
                let found = all.iter().find(|c| c.experiment == name)?;
                let again = found.arms.iter().any(|a| a.name.ends_with(AGAIN));
                Some((found.blocks, again))
            };
            (of("left-alone"), of("in-a-row"))
        };
        assert_eq!(asked(None, &[]), (Some((3, false)), Some((12, true))));
        assert_eq!(asked(Some(20), &[]), (Some((3, false)), Some((20, true))));
        assert_eq!(asked(Some(2), &[]), (Some((2, false)), Some((2, true))));
        assert_eq!(asked(Some(20), &["left-alone"]), (Some((20, false)), None));
    }

    #[test]
    fn plans_are_complete_and_arms_keep_their_own_sets() {
        let full = expand(&pipeline(), Mode::Full, &Overrides::default(), 3).unwrap();
        for arm in full.iter().flat_map(|c| &c.arms) {
            assert_eq!(arm.plan.clone().complete(7), arm.plan, "{}", arm.name);
        }
        let sized = full.iter().find(|c| c.experiment == "call-cost-request").unwrap();
        assert!(sized.arms.iter().any(|a| a.set == "R-512"));
    }

    #[test]
    fn overrides_choose_media_experiments_conditions_blocks_seed_and_files() {
        let spec = pipeline();
        let overrides = Overrides {
            seed: Some(99),
            media: vec!["work".into(), "tmpfs".into()],
            experiments: vec!["elapsed-tree".into()],
            conditions: vec![Condition::Warm],
            blocks: Some(2),
            files: None,
            ladders_on_further: false,
            ..Overrides::default()
        };
        let all = expand(&spec, Mode::Full, &overrides, 2).unwrap();
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|c| c.blocks == 2 && c.condition == Condition::Warm));
        let source = SetSource::Made(spec.sets["tree"].full.clone());
        assert_eq!(all[0].arms[0].source, source, "the seed must not change files");
        let media = vec!["work".into(), "tmpfs".into()];
        let ladders = Overrides { media, ladders_on_further: true, ..Overrides::default() };
        let all = expand(&spec, Mode::Full, &ladders, 2).unwrap();
        let on = |medium: &str, name: &str| {
            all.iter().any(|c| c.medium == medium && c.experiment == name)
        };
        assert!(on("tmpfs", "elapsed-small-files") && on("work", "roles-grid"));
        for name in ["roles-grid", "million-files", "threads-large-files"] {
            assert!(on("work", name) && !on("tmpfs", name), "{name} should not run on added media");
        }
        let added = all.iter().filter(|c| c.medium == "tmpfs").flat_map(|c| &c.arms);
        assert!(
            added.into_iter().all(|a| a.plan.plain_threads().is_some()),
            "added media should \
            only run ladders"
        );
        let named = Overrides { ladders_on_further: false, ..ladders.clone() };
        let all = expand(&spec, Mode::Full, &named, 2).unwrap();
        let of = |medium: &str| all.iter().filter(|c| c.medium == medium).count();
        assert_eq!(of("tmpfs"), of("work"), "media specified by the user should run everything");
        let quick = expand(&spec, Mode::Quick, &ladders, 2).unwrap();
        let warm = |medium: &str| {
            let of = |c: &&Comparison| c.medium == medium && c.experiment == "media-threads";
            quick.iter().filter(of).map(|c| (c.condition, c.arms.len())).collect::<Vec<_>>()
        };
        assert_eq!(warm("tmpfs"), warm("work"));
        assert!(warm("tmpfs").iter().all(|(c, n)| *c == Condition::Warm && *n >= 4));
        assert_eq!(warm("tmpfs").len(), 1, "an in-memory file system should run the warm ladder");
        let alone = expand(&spec, Mode::Quick, &Overrides::default(), 2).unwrap();
        assert!(alone.iter().all(|c| c.experiment != "media-threads"));
        let files = Overrides { files: Some("/data".into()), ..Overrides::default() };
        let all = expand(&spec, Mode::Full, &files, 2).unwrap();
        let directory = SetSource::Directory("/data".into());
        assert!(all.iter().flat_map(|c| &c.arms).all(|a| a.source == directory));
        assert!(all.iter().all(|c| c.experiment != "call-cost-request"));
        let wrong = Overrides { experiments: vec!["nix".into()], ..Overrides::default() };
        assert!(expand(&spec, Mode::Full, &wrong, 2).unwrap_err().contains("elapsed-tree"));
    }
}
