//! The trait through which the laboratory runs an engine.
//!
//! The laboratory establishes conditions, orders runs and keeps records, but knows nothing about
//! engines. An adapter answers a few questions and executes a run in a child process of the same
//! program (see [`crate::child`]). Making file sets is a separate trait, [`Sets`], because most
//! subjects share one implementation. A refusal is a sentence for the user: what is not possible
//! here and why.

use crate::child::ChildAnswer;
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, FileSetSpec, Measured};
use std::path::{Path, PathBuf};

/// Cost of making a file set.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Bytes on the medium: data and an estimate for metadata.
    pub bytes: u64,
    /// Files to make.
    pub files: u64,
    /// Estimated seconds to make it.
    pub seconds: f64,
}

/// Result of removing a file set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Receives the progress of making a set, from any thread: files done and total files. Returning
/// `false` asks the subject to stop soon and return an error that says it was interrupted.
pub type SetProgress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// What the runs of a subject need of a set, which defines what cold and warm mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touches {
    /// The contents of its files.
    Data,
    /// Names and inodes only; no file is opened.
    Names,
    /// Nothing. The subject needs no set and its runs are `as-is`.
    Nothing,
}

/// An engine under study.
pub trait Subject: Sync {
    /// Returns the name of the subject, such as `files`, as study files give it.
    fn name(&self) -> &str;

    /// Returns the maker of its file sets.
    fn sets(&self) -> &dyn Sets;

    /// Returns what its runs need of a set.
    fn touches(&self) -> Touches {
        Touches::Data
    }

    /// Returns what runs of one plan need, if plans of the subject differ.
    fn touches_of(&self, plan: &AnyPlan) -> Touches {
        let _ = plan;
        self.touches()
    }

    /// Returns a sentence about the plan for the report. Empty for plans over files, which the
    /// table of methods and schedules explains. Called before a study begins, whether or not this
    /// machine can run the plan.
    ///
    /// # Errors
    /// Why no machine could run the plan, as a sentence.
    fn explain(&self, plan: &AnyPlan) -> Result<String, String> {
        match plan {
            AnyPlan::Files(_) => Ok(String::new()),
            AnyPlan::Subject(_) => Err(format!("{plan}: subject {} has no such plan", self.name())),
        }
    }

    /// Checks by trying whether the plan can run on the file system of `dir`.
    ///
    /// # Errors
    /// Why it cannot, as a sentence; the run is then stored as refused.
    fn probe(&self, plan: &AnyPlan, compute: &Compute, dir: &Path) -> Result<(), String>;

    /// Returns whether the engine records its own spans and writes traces itself. All others are
    /// observed from outside, like any program.
    fn observes_itself(&self) -> bool {
        false
    }

    /// Returns why this build cannot run the subject; `None` if it can.
    fn unavailable(&self) -> Option<&'static str> {
        None
    }

    /// Returns display names of the metrics that only this subject records (`extra.*`). Each pair
    /// is the name without prefix and unit, and the words. Other metrics are shown by their own
    /// names.
    fn metric_names(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Returns whether its report shows the directories of the largest set as areas.
    fn maps_tree(&self) -> bool {
        false
    }

    /// Returns whether the plan drops the page cache of the system. It is refused unless the user
    /// allowed that.
    fn drops_caches(&self, plan: &AnyPlan) -> bool {
        let _ = plan;
        false
    }

    /// Returns the seconds that a run takes beyond reading its files once: waits in the plan,
    /// and repeated work on a slow disk. The deadline allows twice as much.
    fn takes_s(&self, plan: &AnyPlan, files: u64, bytes: u64) -> f64 {
        let _ = (plan, files, bytes);
        0.0
    }

    /// Executes an order in this process, which is a child of the study.
    fn run(&self, order: &RunOrder) -> ChildAnswer;

    /// Returns doubts if the measurement cannot be right for this set: counts, bytes, and the
    /// digest if the subject knows it. The laboratory compares digests between arms.
    fn verify(&self, order: &RunOrder, set: &FileSetRealised, measured: &Measured) -> Vec<Doubt>;
}

/// Makes, finds and removes file sets.
pub trait Sets: Sync {
    /// Estimates the cost of making the set.
    fn cost(&self, spec: &FileSetSpec) -> Cost;

    /// Returns the set in `dir` if it is complete and matches the specification. Reads only the
    /// manifest.
    fn known(&self, spec: &FileSetSpec, dir: &Path) -> Option<FileSetRealised>;

    /// Returns the directory with the items of a set made in `dir`. It contains nothing else and is
    /// given to runs.
    fn items(&self, dir: &Path) -> PathBuf;

    /// Makes the set in `dir`, completes a partial one, or checks that a complete one matches.
    /// Leaves `reserve_bytes` free on the medium. Never overwrites files that it did not make. Must
    /// write the manifest [`crate::files::SET_MANIFEST`] to `dir`, by which [`crate::clean()`]
    /// recognizes the set.
    ///
    /// # Errors
    /// The operation, the path and the reason, as a sentence.
    fn prepare(
        &self,
        name: &str,
        spec: &FileSetSpec,
        dir: &Path,
        reserve_bytes: u64,
        progress: SetProgress<'_>,
    ) -> Result<FileSetRealised, String>;

    /// Locks the set in `dir` for one study. Until the value is dropped, no other process makes,
    /// removes or locks it. `None` if no lock is needed.
    ///
    /// # Errors
    /// Who holds the lock, as a sentence.
    fn hold(&self, dir: &Path) -> Result<Option<Box<dyn Send>>, String> {
        let _ = dir;
        Ok(None)
    }

    /// Removes what [`Sets::prepare`] made in `dir`, and nothing else.
    ///
    /// # Errors
    /// The operation, the path and the reason, as a sentence.
    fn remove(&self, dir: &Path) -> Result<Removed, String>;

    /// Describes a directory of the user without changing it: every regular file below it.
    ///
    /// # Errors
    /// The operation, the path and the reason, as a sentence.
    fn survey(&self, dir: &Path) -> Result<FileSetRealised, String>;
}
