//! Location of a contrast's runs within a study.

use ioloom_model::{Compute, Condition};
use serde::Deserialize;

/// One comparison of one study, from which a contrast takes its runs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Location {
    /// Name of the study.
    #[serde(default = "pipeline")]
    pub study: String,
    /// Name of the experiment.
    pub experiment: String,
    /// File set name; `G-*` matches all names that start with `G-`. It is required because runs on
    /// a user's directory must never decide a claim about a published file set.
    pub set: String,
    /// Condition; required if the experiment has several.
    #[serde(default)]
    pub condition: Option<Condition>,
    /// Compute; required if the experiment has several.
    #[serde(default)]
    pub compute: Option<Compute>,
    /// Medium name. All locations of a contrast without one are judged on one medium: with enough blocks
    /// everywhere, then the work directory (or an image that replaces it), then the published size, then the
    /// first by name.
    #[serde(default)]
    pub medium: Option<String>,
}

fn pipeline() -> String {
    "pipeline".to_owned()
}

impl Location {
    /// Reports whether runs of an experiment on a set under a condition and compute belong here.
    /// The study and the medium are not compared.
    pub fn covers(
        &self,
        experiment: &str,
        set: &str,
        condition: Condition,
        compute: &Compute,
    ) -> bool {
        self.experiment == experiment
            && self.has_set(set)
            && self.condition.is_none_or(|c| c == condition)
            && self.compute.as_ref().is_none_or(|c| c == compute)
    }

    /// Reports whether `name` matches the file set of this location.
    pub fn has_set(&self, name: &str) -> bool {
        match self.set.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == self.set,
        }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.experiment)?;
        if !self.set.is_empty() {
            write!(f, ", file set {}", self.set)?;
        }
        if let Some(condition) = self.condition {
            write!(f, ", {}", condition.name())?;
        }
        match &self.compute {
            Some(compute) => write!(f, ", {compute}"),
            None => Ok(()),
        }
    }
}
