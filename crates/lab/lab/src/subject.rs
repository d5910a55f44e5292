//! The trait through which the laboratory runs an engine.
//!
//! The laboratory establishes conditions, orders runs and keeps records, but knows nothing about
//! engines. An adapter answers a few questions and performs a run in a child process of the same
//! program (see [`crate::child`]). File set creation is a separate trait, [`Sets`], because most
//! subjects share one implementation. A refusal is a sentence that explains to the user what is not
//! possible here and why.

use crate::child::ChildAnswer;
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, FileSetSpec, Measured};
use std::path::{Path, PathBuf};

/// Cost of creating a file set.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Bytes on the medium: data and estimated metadata.
    pub bytes: u64,
    /// Number of files to create.
    pub files: u64,
    /// Estimated seconds to create it.
    pub seconds: f64,
}

/// Space that a run takes on the medium in addition to its file set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// Bytes that it has written and not yet removed.
    pub bytes: u64,
    /// Files that it has created and not yet removed.
    pub files: u64,
}

impl Room {
    /// Returns the room for either of two runs, which are never in progress at the same time.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), files: self.files.max(other.files) }
    }
}

/// Result of removing a file set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// A directory that remains because it contains other files.
    pub left: Option<PathBuf>,
}

/// Receives the progress of set creation from any thread: files done and total files. Returning
/// `false` requests the subject to stop soon and return an error stating that it was interrupted.
pub type SetProgress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// The parts of a set that a subject's runs need, which define the meaning of cold and warm.
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
    /// Returns the name of the subject as used in study files, such as `files`.
    fn name(&self) -> &str;

    /// Returns the object that creates its file sets.
    fn sets(&self) -> &dyn Sets;

    /// Returns which parts of a set its runs need.
    fn touches(&self) -> Touches {
        Touches::Data
    }

    /// Returns which parts of a set runs of this plan need, if the subject's plans differ.
    fn touches_of(&self, plan: &AnyPlan) -> Touches {
        let _ = plan;
        self.touches()
    }

    /// Returns a sentence about the plan for the report, or an empty string for file plans, which
    /// are covered by the table of methods and schedules. Called before a study starts, whether or
    /// not this machine can run the plan.
    ///
    /// # Errors
    /// A sentence explaining why no machine could run the plan.
    fn explain(&self, plan: &AnyPlan) -> Result<String, String> {
        match plan {
            AnyPlan::Files(_) => Ok(String::new()),
            AnyPlan::Subject(_) => Err(format!("{plan}: subject {} has no such plan", self.name())),
        }
    }

    /// Tests whether the plan can run on the file system of `dir`.
    ///
    /// # Errors
    /// A sentence explaining why it cannot; the run is then recorded as refused.
    fn probe(&self, plan: &AnyPlan, compute: &Compute, dir: &Path) -> Result<(), String>;

    /// Returns whether the engine records spans and writes traces itself. Other engines are
    /// observed externally, like any other program.
    fn observes_itself(&self) -> bool {
        false
    }

    /// Returns why this build cannot run the subject; `None` if it can.
    fn unavailable(&self) -> Option<&'static str> {
        None
    }

    /// Returns display names for the metrics specific to this subject (`extra.*`), as pairs of
    /// metric name without prefix and unit, and display name. Other metrics are displayed under
    /// their own names.
    fn metric_names(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Returns whether its report includes a treemap of the largest set.
    fn maps_tree(&self) -> bool {
        false
    }

    /// Returns whether the plan drops the page cache of the system. Such a plan is refused unless
    /// the user permits this.
    fn drops_caches(&self, plan: &AnyPlan) -> bool {
        let _ = plan;
        false
    }

    /// Returns the seconds that a run takes beyond reading its files once: waits in the plan, and
    /// repeated work on a slow disk. The deadline includes twice this time.
    fn takes_s(&self, plan: &AnyPlan, files: u64, bytes: u64) -> f64 {
        let _ = (plan, files, bytes);
        0.0
    }

    /// Returns the most that a run of the plan stores on the medium in addition to its file set. A
    /// study is refused, and an image is made larger, by the space of its largest run.
    fn writes(&self, plan: &AnyPlan, spec: &FileSetSpec) -> Room {
        let _ = (plan, spec);
        Room::default()
    }

    /// Performs a run in this process, which is a child of the study.
    fn run(&self, order: &RunOrder) -> ChildAnswer;

    /// Returns doubts if the measurement cannot be correct for this set: wrong counts or bytes, or
    /// a wrong digest if the subject knows it. The laboratory compares digests between arms.
    fn verify(&self, order: &RunOrder, set: &FileSetRealised, measured: &Measured) -> Vec<Doubt>;
}

/// Creates, locates and removes file sets.
pub trait Sets: Sync {
    /// Estimates the cost of creating the set.
    fn cost(&self, spec: &FileSetSpec) -> Cost;

    /// Returns the set in `dir` if it is complete and matches the specification. Only reads the
    /// manifest.
    fn known(&self, spec: &FileSetSpec, dir: &Path) -> Option<FileSetRealised>;

    /// Returns the directory that contains only the items of a set created in `dir`. It is passed
    /// to runs.
    fn items(&self, dir: &Path) -> PathBuf;

    /// Creates the set in `dir`, completes a partial one, or checks that a complete one matches.
    /// Leaves `reserve_bytes` free on the medium. Never overwrites files it did not create. Must
    /// write the manifest [`crate::files::SET_MANIFEST`] to `dir`, which identifies the set to
    /// [`crate::clean()`].
    ///
    /// # Errors
    /// A sentence with the operation, the path and the reason.
    fn prepare(
        &self,
        name: &str,
        spec: &FileSetSpec,
        dir: &Path,
        reserve_bytes: u64,
        progress: SetProgress<'_>,
    ) -> Result<FileSetRealised, String>;

    /// Locks the set in `dir` for one study. Until the value is dropped, no other process can
    /// create, remove or lock it. `None` if no lock is needed.
    ///
    /// # Errors
    /// A sentence about who holds the lock.
    fn hold(&self, dir: &Path) -> Result<Option<Box<dyn Send>>, String> {
        let _ = dir;
        Ok(None)
    }

    /// Removes what a killed run left next to the set in `dir`, unless another process uses the set.
    /// The next run needs the space.
    fn clear(&self, dir: &Path) {
        let _ = dir;
    }

    /// Removes the directory that a killed run left in the work directory itself, unless another
    /// process uses it. Returns its path and the result; `None` if there is nothing to remove.
    fn remove_left(&self, work_dir: &Path) -> Option<(PathBuf, Result<Removed, String>)> {
        let _ = work_dir;
        None
    }

    /// Removes only the files that [`Sets::prepare`] created in `dir`.
    ///
    /// # Errors
    /// A sentence with the operation, the path and the reason.
    fn remove(&self, dir: &Path) -> Result<Removed, String>;

    /// Describes the regular files below a user directory without changing it.
    ///
    /// # Errors
    /// A sentence with the operation, the path and the reason.
    fn survey(&self, dir: &Path) -> Result<FileSetRealised, String>;
}
