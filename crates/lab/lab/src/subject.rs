//! The one small trait through which the laboratory knows an engine.
//!
//! The laboratory makes conditions, orders runs, keeps records and judges nothing about engines.
//! An adapter answers a few questions; the run itself happens in a child process of the same
//! program (see [`crate::child`]). What the sets of a study are and who makes them is a trait of
//! its own, [`Sets`], because most subjects share one maker. Refusals are sentences for people:
//! what cannot be done here, and why.

use crate::child::ChildAnswer;
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, FileSetSpec, Measured};
use std::path::{Path, PathBuf};

/// What a set of files costs to make.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Bytes it takes on the medium, data and a rough allowance for metadata.
    pub bytes: u64,
    /// Files to make.
    pub files: u64,
    /// Estimated seconds to make it.
    pub seconds: f64,
}

/// What the removal of a set took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Told from any thread how far the making of a set is: files done, files in all. Answers whether
/// to go on; `false` asks the subject to stop soon and to return an error that says it was
/// interrupted.
pub type SetProgress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// What the runs of a subject need of a set, and so what cold and warm mean for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touches {
    /// The bytes of its files.
    Data,
    /// Names and inodes alone; no file is opened.
    Names,
    /// Nothing: the subject needs no set, and its runs are `as-is`.
    Nothing,
}

/// An engine under study, as far as the laboratory needs it.
pub trait Subject: Sync {
    /// The word of the subject, such as `files`; a study names it.
    fn name(&self) -> &str;

    /// Who makes the sets of its studies.
    fn sets(&self) -> &dyn Sets;

    /// What its runs need of a set.
    fn touches(&self) -> Touches {
        Touches::Data
    }

    /// The same for runs of one plan, where plans of the subject differ.
    fn touches_of(&self, plan: &AnyPlan) -> Touches {
        let _ = plan;
        self.touches()
    }

    /// What the plan does, in one sentence for the report; empty for plans over files, which the
    /// table of methods and schedules explains. Asked before a study begins, whether or not this
    /// machine could run it.
    ///
    /// # Errors
    /// What is wrong with a plan that no machine could run, as a sentence.
    fn explain(&self, plan: &AnyPlan) -> Result<String, String> {
        match plan {
            AnyPlan::Files(_) => Ok(String::new()),
            AnyPlan::Subject(_) => Err(format!("{plan}: subject {} has no such plan", self.name())),
        }
    }

    /// Whether the plan can run as asked on the file system of `dir`, found by trying it.
    ///
    /// # Errors
    /// The reason why it cannot, as a sentence; the run is then stored as refused.
    fn probe(&self, plan: &AnyPlan, compute: &Compute, dir: &Path) -> Result<(), String>;

    /// Whether the engine records its own spans and is asked for traces itself. All others are
    /// watched from outside, as another program would be.
    fn observes_itself(&self) -> bool {
        false
    }

    /// Returns why this build cannot run the subject; `None` if it can.
    fn unavailable(&self) -> Option<&'static str> {
        None
    }

    /// Returns what reports call the numbers of its own that runs record (`extra.*`): the name without
    /// prefix and unit, and the words. Other numbers get the words of their names.
    fn metric_names(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Returns whether its report shows the directories of the largest set as areas.
    fn maps_tree(&self) -> bool {
        false
    }

    /// Whether the plan drops the caches of the whole system itself. It is refused then unless the user
    /// allowed that.
    fn drops_caches(&self, plan: &AnyPlan) -> bool {
        let _ = plan;
        false
    }

    /// Seconds that a run of the plan takes by its own settings on so many files and bytes, beyond
    /// going through them once: waits that it asks for, and work that it repeats on a slow disk. Its
    /// deadline allows for twice as much.
    fn takes_s(&self, plan: &AnyPlan, files: u64, bytes: u64) -> f64 {
        let _ = (plan, files, bytes);
        0.0
    }

    /// Runs an order in this process, which is the child of a study.
    fn run(&self, order: &RunOrder) -> ChildAnswer;

    /// Whether what was measured can be right for this set: counts, bytes, digest if the subject
    /// knows it. The laboratory itself compares digests between arms.
    fn verify(&self, order: &RunOrder, set: &FileSetRealised, measured: &Measured) -> Vec<Doubt>;
}

/// Who makes sets of files, finds them again and removes them.
pub trait Sets: Sync {
    /// What making the set would cost, without making it.
    fn cost(&self, spec: &FileSetSpec) -> Cost;

    /// What `dir` holds, if that is this very set, complete, so that making it costs nothing. Reads
    /// the manifest and looks at no file.
    fn known(&self, spec: &FileSetSpec, dir: &Path) -> Option<FileSetRealised>;

    /// Where the items of a set that was made in `dir` lie: the directory that a run is given,
    /// with nothing in it but items.
    fn items(&self, dir: &Path) -> PathBuf;

    /// Makes the set in `dir`, or finishes a half-made one, or checks that the complete one there
    /// is this very set. Leaves `reserve_bytes` free on the medium. Never overwrites what it did
    /// not make. Must leave the manifest
    /// [`crate::files::SET_MANIFEST`] in `dir`, by which [`crate::clean`] knows it again.
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

    /// Holds the set in `dir` for one study: until the value is dropped nobody else makes, removes
    /// or holds it. `None` where nothing needs to be held.
    ///
    /// # Errors
    /// Who is in the way, as a sentence.
    fn hold(&self, dir: &Path) -> Result<Option<Box<dyn Send>>, String> {
        let _ = dir;
        Ok(None)
    }

    /// Removes what [`Sets::prepare`] made in `dir`, and nothing else.
    ///
    /// # Errors
    /// The operation, the path and the reason, as a sentence.
    fn remove(&self, dir: &Path) -> Result<Removed, String>;

    /// Describes a directory of the user's without changing it: every regular file below it.
    ///
    /// # Errors
    /// The operation, the path and the reason, as a sentence.
    fn survey(&self, dir: &Path) -> Result<FileSetRealised, String>;
}
