//! Types shared by the tidy rules: text files and findings.

use std::path::{Path, PathBuf};

/// A finding of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Where: `file:line`, a crate or a dependency.
    pub(super) place: String,
    /// The problem and its remedy.
    pub(super) text: String,
    /// Printed, but not a failure.
    pub(super) warning: bool,
}

impl Finding {
    pub(super) fn refuse(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into(), warning: false }
    }

    pub(super) fn warn(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into(), warning: true }
    }

    pub(super) fn at(file: &Path, line: usize, text: impl Into<String>) -> Self {
        Self::refuse(format!("{}:{line}", file.display()), text)
    }
}

/// A text file of the repository.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Source {
    pub(super) fn is(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|e| e == extension)
    }

    pub(super) fn is_under(&self, dir: &str) -> bool {
        self.path.starts_with(dir)
    }
}
