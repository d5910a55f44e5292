//! The files that the user requests of a study. They are opened before the first run, so that a path that cannot be
//! written is an error before hours of runs.

use crate::atomic_file::{self, Begun};
use crate::exit::Failure;
use ioloom_report::Input;
use std::path::Path;

/// Files without contents.
pub(crate) struct StudyFiles {
    report: Option<Begun>,
    export: Option<Begun>,
}

impl StudyFiles {
    /// Opens the files at these paths.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn begin(report: Option<&Path>, export: Option<&Path>) -> Result<Self, Failure> {
        let begin = |path: &Path| {
            atomic_file::create_parents(path)?;
            atomic_file::begin(path)
        };
        Ok(Self { report: report.map(begin).transpose()?, export: export.map(begin).transpose()? })
    }

    /// Writes the report and the export.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn finish(self, page: &str, inputs: &[Input]) -> Result<(), Failure> {
        if let Some(report) = self.report {
            report.finish(|out| out.write_all(page.as_bytes()))?;
        }
        if let Some(export) = self.export {
            export.finish(|out| writeln!(out, "{}", ioloom_report::anonymous(inputs)))?;
        }
        Ok(())
    }
}
