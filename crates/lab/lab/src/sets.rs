//! The file sets of a running study, created or located before the first run and listed once.

use crate::boot_note::{note_use, used_since_start};
use crate::error::LabError;
use crate::expand::{Comparison, ReadyArm, SetSource};
use crate::files::FileList;
use crate::run::{Event, RunOptions};
use crate::subject;
use crate::workspace::{Workspace, reserve_and_free};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::{FileSetRealised, FileSetSpec};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// A set that is ready to use.
pub(crate) struct ReadySet {
    /// Its measured properties.
    pub(crate) realised: FileSetRealised,
    /// Directory of the items.
    pub(crate) items: PathBuf,
    /// The list of items.
    pub(crate) files: FileList,
    /// How it was created; `None` for a user directory.
    pub(crate) spec: Option<FileSetSpec>,
    /// Time of a second cold read relative to the first, once measured.
    pub(crate) second_read: OnceLock<Option<f64>>,
    /// Keeps other processes from creating, removing or using the set.
    _hold: Option<Box<dyn Send>>,
}

/// The sets of a study, by medium and directory.
pub(crate) struct Sets(BTreeMap<(String, PathBuf), ReadySet>);

/// Returns the set directory of an arm in a workspace.
fn place_of(arm: &ReadyArm, place: &Workspace, options: &RunOptions<'_>) -> PathBuf {
    match (&arm.source, &options.files) {
        (SetSource::Made(spec), _) => place.set_dir(&arm.set, spec),
        (SetSource::Directory(_), Some(dir)) => dir.clone(),
        (SetSource::Directory(shown), None) => PathBuf::from(shown),
        (SetSource::None, _) => place.dir.clone(),
    }
}

impl Sets {
    /// Creates or locates every set of the comparisons, in order of first use.
    pub(crate) fn prepare(
        comparisons: &[Comparison],
        maker: &dyn subject::Sets,
        options: &RunOptions<'_>,
    ) -> Result<Self, LabError> {
        let mut sets = BTreeMap::new();
        for place in &options.workspaces {
            let word = &place.medium.name;
            let here = comparisons.iter().filter(|c| c.medium == *word);
            for arm in here.flat_map(|c| &c.arms) {
                let dir = place_of(arm, place, options);
                let key = (word.clone(), dir.clone());
                if sets.contains_key(&key) {
                    continue;
                }
                let mut ready = prepare_one(arm, &dir, word, maker, options)?;
                if options.stop.load(Ordering::Relaxed) {
                    return Err(LabError::Interrupted);
                }
                let known = &mut ready.realised.medium;
                // User files may be on a different medium than the work directory.
                known.get_or_insert_with(|| match arm.source {
                    SetSource::Made(_) | SetSource::None => place.medium.clone(),
                    SetSource::Directory(_) => Workspace::describe(word, &dir).medium,
                });
                if let Some(medium) = known {
                    medium.name.clone_from(word);
                }
                sets.insert(key, ready);
            }
        }
        Ok(Self(sets))
    }

    /// Returns the set of an arm; `None` if the options have changed since the session started.
    pub(crate) fn of(
        &self,
        comparison: &Comparison,
        arm: &ReadyArm,
        options: &RunOptions<'_>,
    ) -> Option<&ReadySet> {
        let place = options.workspaces.iter().find(|p| p.medium.name == comparison.medium)?;
        self.0.get(&(comparison.medium.clone(), place_of(arm, place, options)))
    }
}

fn prepare_one(
    arm: &ReadyArm,
    dir: &Path,
    medium: &str,
    maker: &dyn subject::Sets,
    options: &RunOptions<'_>,
) -> Result<ReadySet, LabError> {
    let fail = |reason| {
        if options.stop.load(Ordering::Relaxed) {
            LabError::Interrupted
        } else {
            LabError::Set { name: arm.set.clone(), reason }
        }
    };
    let going_on = |done, all| {
        options.progress.event(&Event::Preparing(&arm.set, medium, done, all));
        !options.stop.load(Ordering::Relaxed)
    };
    if arm.source == SetSource::None {
        std::fs::create_dir_all(dir)
            .map_err(|e| fail(PathError::new(Operation::CreateDir, dir, e).to_string()))?;
        let items = std::path::absolute(dir)?;
        let files = FileList::none(&items);
        let held = hold(arm, dir, medium, maker, options)?;
        let realised = FileSetRealised::default();
        return Ok(ready(realised, items, files, (None, held)));
    }
    if let (true, SetSource::Made(spec)) = (options.overrides.after_reboot, &arm.source) {
        // Listing the files would warm names that are cold after the boot, so only the manifest is
        // read.
        if let Some(realised) = maker.known(spec, dir) {
            if used_since_start(dir) {
                return Err(LabError::Refused(format!(
                    "file set {} was used since the machine booted, so it is not cold; reboot, \
                    then \
                     run this command before anything else",
                    arm.set
                )));
            }
            note_use(dir).map_err(fail)?;
            let items = std::path::absolute(maker.items(dir))?;
            let (files, spec) = (FileList::none(&items), Some(spec.clone()));
            let held = hold(arm, dir, medium, maker, options)?;
            return Ok(ready(realised, items, files, (spec, held)));
        }
    }
    let (realised, items, spec) = match &arm.source {
        SetSource::Made(spec) => {
            // The subject creates the last directory, so it can be sure that it may remove it.
            let parent = dir.parent().unwrap_or(dir);
            std::fs::create_dir_all(parent)
                .map_err(|e| fail(PathError::new(Operation::CreateDir, parent, e).to_string()))?;
            let (reserve, _) = reserve_and_free(parent, options.reserve_bytes)?;
            let realised = maker.prepare(&arm.set, spec, dir, reserve, &going_on).map_err(fail)?;
            note_use(dir).map_err(fail)?;
            (realised, maker.items(dir), Some(spec.clone()))
        }
        SetSource::Directory(_) | SetSource::None => {
            (maker.survey(dir).map_err(fail)?, dir.to_owned(), None)
        }
    };
    if options.overrides.after_reboot {
        return Err(LabError::Refused(format!(
            "file set {} was just created, so it is not cold; reboot, then run this command \
            before anything else",
            arm.set
        )));
    }
    let items = std::path::absolute(&items)?;
    let files = if spec.is_some() { FileList::of_set(&items) } else { FileList::below(&items) }?;
    if files.is_empty() {
        return Err(fail(format!("{} contains no regular file", quoted(&items))));
    }
    let held = hold(arm, dir, medium, maker, options)?;
    Ok(ready(realised, items, files, (spec, held)))
}

fn ready(
    realised: FileSetRealised,
    items: PathBuf,
    files: FileList,
    (spec, hold): (Option<FileSetSpec>, Option<Box<dyn Send>>),
) -> ReadySet {
    ReadySet { realised, items, files, spec, second_read: OnceLock::new(), _hold: hold }
}

/// Locks the set of an arm against other studies. User files are only read, and an ioloom image
/// belongs to this process and is remounted before runs, so neither is locked.
fn hold(
    arm: &ReadyArm,
    dir: &Path,
    medium: &str,
    maker: &dyn subject::Sets,
    options: &RunOptions<'_>,
) -> Result<Option<Box<dyn Send>>, LabError> {
    let image = options.images.iter().any(|image| image.word() == medium);
    if image || matches!(arm.source, SetSource::Directory(_)) {
        return Ok(None);
    }
    maker.hold(dir).map_err(LabError::Refused)
}
