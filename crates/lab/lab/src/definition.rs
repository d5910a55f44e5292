//! Detects runs of an edited study.
//!
//! A claim names experiments, sets and arms of a built-in study. A study file with the same names
//! can contain other plans or smaller sets, and its runs would look like those of the built-in one.
//! The definition of an arm is everything that determines what it measures: experiment, set,
//! condition, compute, plan, factors, the specification of the files, and kernel settings. Its
//! fingerprint is compared with those of all arms of the built-in study, with full and with quick sets.
//! The number of blocks and the medium do not belong to it. Runs of a set that is smaller than the published one
//! get the doubt `scaled`, whatever the session says about itself.

use crate::expand::{AGAIN, Comparison, Mode, Overrides, ReadyArm, SetSource, expand};
use crate::published::is_scaled;
use crate::store::Session;
use ioloom_model::{Doubt, RunRecord, StudySpec};
use std::collections::{BTreeMap, BTreeSet};
use xxhash_rust::xxh3::xxh3_64;

/// A built-in study, and the fingerprints of all its arms.
#[derive(Debug)]
pub struct Definitions {
    spec: StudySpec,
    arms: BTreeSet<u64>,
}

impl Definitions {
    /// Returns those of a study with its plans completed for `cores`; `None` if no built-in study has
    /// this name.
    pub fn of(study: &str, cores: u32) -> Option<Self> {
        let spec = crate::spec::load(study, None).ok()?;
        let mut known = BTreeSet::new();
        let small: BTreeSet<String> = spec.sets.keys().cloned().collect();
        for (scaled, after_reboot) in
            [(BTreeSet::new(), false), (small, false), (BTreeSet::new(), true)]
        {
            let experiments = spec.experiments.iter().map(|e| e.name.clone()).collect();
            let overrides = Overrides { experiments, after_reboot, scaled, ..Overrides::default() };
            let comparisons = expand(&spec, Mode::Full, &overrides, cores).ok()?;
            known.extend(comparisons.iter().flat_map(|c| c.arms.iter().map(|arm| hash(c, arm))));
        }
        Some(Self { spec, arms: known })
    }

    /// Returns whether an arm of a comparison is defined as in the built-in study.
    pub fn has(&self, comparison: &Comparison, arm: &ReadyArm) -> bool {
        self.arms.contains(&hash(comparison, arm))
    }

    /// Returns whether the set of an arm is smaller than the published one.
    fn is_scaled(&self, arm: &ReadyArm) -> bool {
        match (&arm.source, self.spec.sets.get(&arm.set)) {
            (SetSource::Made(set), Some(own)) => is_scaled(&self.spec.name, &arm.set, set, own),
            _ => false,
        }
    }
}

/// Returns the fingerprint of an arm.
fn hash(comparison: &Comparison, arm: &ReadyArm) -> u64 {
    let Comparison { experiment, set, condition, compute, .. } = comparison;
    let name = arm.name.strip_suffix(AGAIN).unwrap_or(&arm.name).to_owned();
    let arm = ReadyArm { name, scaled: false, ..arm.clone() };
    let text = serde_json::to_vec(&(experiment, set, condition, compute, arm));
    text.map_or(0, |text| xxh3_64(&text))
}

/// Removes the runs of arms whose definition is not that of the built-in study of the same name.
/// Returns the number of removed runs of each session. Runs on a directory of the user decide nothing either;
/// they are counted if the directory has the name of a file set. Sessions of studies that are not built in
/// are kept: no built-in claim refers to them.
pub fn keep_built_in(sessions: &mut [Session]) -> BTreeMap<String, usize> {
    let mut known: BTreeMap<(String, u32), Option<Definitions>> = BTreeMap::new();
    let mut removed = BTreeMap::new();
    for session in sessions {
        let header = &session.header;
        let cores = header.machine.cpus_usable.max(1);
        let built_in = known
            .entry((header.study.clone(), cores))
            .or_insert_with(|| Definitions::of(&header.study, cores));
        let Some(built_in) = built_in else { continue };
        let own: BTreeMap<(&str, &str, String, &str), bool> = header
            .comparisons
            .iter()
            .flat_map(|c| c.arms.iter().map(move |arm| (c, arm)))
            .filter(|(c, arm)| built_in.has(c, arm))
            .map(|(c, arm)| {
                let place = format!("{} {}", c.condition, c.compute);
                let key = (c.experiment.as_str(), arm.set.as_str(), place, arm.name.as_str());
                (key, built_in.is_scaled(arm))
            })
            .collect();
        let of_user = |arm: &&ReadyArm| {
            matches!(arm.source, SetSource::Directory(_))
                && !built_in.spec.sets.contains_key(&arm.set)
        };
        let arms = header.comparisons.iter().flat_map(|c| &c.arms);
        let user_sets: BTreeSet<&str> = arms.filter(of_user).map(|arm| arm.set.as_str()).collect();
        let on_user_files = |record: &&RunRecord| user_sets.contains(record.key.set.as_str());
        let uncounted = session.runs.iter().filter(on_user_files).count();
        let before = session.runs.len();
        session.runs.retain_mut(|record| {
            let key = &record.key;
            let place = format!("{} {}", key.condition, key.compute);
            let key = (key.experiment.as_str(), key.set.as_str(), place, key.arm.as_str());
            let Some(is_scaled) = own.get(&key) else { return false };
            if *is_scaled && !record.doubts.contains(&Doubt::Scaled) {
                record.doubts.push(Doubt::Scaled);
            }
            true
        });
        let count = (before - session.runs.len()).saturating_sub(uncounted);
        if count > 0 {
            removed.insert(session.header.session.clone(), count);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use std::path::Path;

    /// Returns the sessions of an earlier version that are kept as test data.
    fn sessions() -> Vec<Session> {
        let dir = Path::new("../../../tests/fixtures/a8ad189/results/store");
        let store = Store::open_to_read(dir).unwrap();
        let names: BTreeSet<String> =
            store.files().unwrap().into_iter().map(|f| f.header.session).collect();
        names.iter().map(|name| store.read(name).unwrap()).collect()
    }

    fn runs(sessions: &[Session], study: &str) -> usize {
        sessions.iter().filter(|s| s.header.study == study).map(|s| s.runs.len()).sum()
    }

    #[test]
    fn runs_of_built_in_studies_are_kept_and_those_of_edited_ones_are_not() {
        let mut kept = sessions();
        let before = runs(&kept, "pagecache");
        assert!(before > 0);
        keep_built_in(&mut kept);
        let unedited = runs(&kept, "pagecache");
        assert!(unedited > 0, "{before} runs of the built-in study");
        // The same names with a file set of another size, another plan or other settings.
        let edits: [fn(&mut ReadyArm); 4] = [
            |arm| {
                if let SetSource::Made(set) = &mut arm.source {
                    set.count += 1;
                    set.size = "1KiB".parse().unwrap();
                }
            },
            |arm| arm.plan = "pagecache:read/block=4KiB".parse().unwrap(),
            |arm| {
                arm.settings.insert("dirty_ratio".to_owned(), 7);
            },
            // A directory of the user with the name of the file set.
            |arm| arm.source = SetSource::Directory(arm.set.clone()),
        ];
        for edit in edits {
            let mut edited = sessions();
            let of_study = edited.iter_mut().filter(|s| s.header.study == "pagecache");
            of_study
                .flat_map(|s| &mut s.header.comparisons)
                .flat_map(|c| &mut c.arms)
                .for_each(edit);
            let removed = keep_built_in(&mut edited);
            assert_eq!(runs(&edited, "pagecache"), 0, "{removed:?}");
            assert!(removed.iter().any(|(session, _)| session.starts_with("pagecache")));
        }
        // A session that calls its small sets full ones.
        let mut silent = sessions();
        for record in silent.iter_mut().flat_map(|s| &mut s.runs) {
            record.doubts.retain(|doubt| *doubt != Doubt::Scaled);
        }
        let scaled = |sessions: &[Session]| {
            let runs = sessions.iter().flat_map(|s| &s.runs);
            runs.filter(|record| record.doubts.contains(&Doubt::Scaled)).count()
        };
        assert_eq!(scaled(&silent), 0);
        keep_built_in(&mut silent);
        assert!(scaled(&silent) > 0 && scaled(&silent) >= scaled(&kept));
        // A study with another name is not an edited one.
        let mut own = sessions();
        own.iter_mut().for_each(|s| s.header.study = "mine".to_owned());
        assert!(keep_built_in(&mut own).is_empty());
    }

    #[test]
    fn runs_of_a_study_without_sets_are_kept_with_files_of_the_user() {
        for study in ["memory", "exchange"] {
            let known = Definitions::of(study, 2).unwrap();
            let files = Some("/home/me/src".to_owned());
            let overrides = Overrides { files, ..Overrides::default() };
            let all = expand(&known.spec, Mode::Quick, &overrides, 2).unwrap();
            let mut arms = all.iter().flat_map(|c| c.arms.iter().map(move |arm| (c, arm)));
            assert!(arms.all(|(c, arm)| known.arms.contains(&hash(c, arm))), "{study}");
        }
    }

    #[test]
    fn a_set_is_scaled_if_it_is_smaller_than_the_published_one() {
        let spec = crate::spec::load("walk", None).unwrap();
        let mut edited = spec.clone();
        let set = edited.sets.get_mut("tree001").unwrap();
        set.full.count = 24_000;
        set.quick = None;
        let scaled = |spec: &ioloom_model::StudySpec| {
            let all = expand(spec, Mode::Full, &Overrides::default(), 2).unwrap();
            let of = all.iter().filter(|c| c.set == "tree001").flat_map(|c| &c.arms);
            of.map(|arm| arm.scaled).collect::<BTreeSet<bool>>()
        };
        assert_eq!(scaled(&spec), BTreeSet::from([false]));
        assert_eq!(scaled(&edited), BTreeSet::from([true]), "full mode of a smaller set is scaled");
    }
}
