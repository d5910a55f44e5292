//! The files that the user requests of a study. They are opened before the first run, so that a path that cannot be
//! written is an error before hours of runs. Regular files are only tried then: a study that is killed leaves nothing
//! behind, and a study of the user's files finds no other file among them.

use crate::atomic_file::{self, Begun};
use crate::exit::Failure;
use ioloom_report::Input;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file without contents.
enum Later {
    Begun(Begun),
    /// It could be written.
    Tried(PathBuf),
}

impl Later {
    fn finish(self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        match self {
            Self::Begun(file) => file.finish(fill),
            Self::Tried(path) => atomic_file::write_with(&path, fill),
        }
    }
}

/// Files without contents.
pub(crate) struct StudyFiles {
    report: Option<Later>,
    export: Option<Later>,
}

impl StudyFiles {
    /// Opens the files at these paths.
    ///
    /// # Errors
    /// A file cannot be written, or both paths are of one file.
    pub(crate) fn begin(report: Option<&Path>, export: Option<&Path>) -> Result<Self, Failure> {
        atomic_file::refuse_dash("--report", report)?;
        atomic_file::refuse_dash("--export", export)?;
        let place = |path: Option<&Path>| path.and_then(atomic_file::place);
        if let Some(of_report) = place(report)
            && place(export) == Some(of_report)
        {
            return Err(Failure::usage("--report and --export name the same file"));
        }
        let begin = |path: &Path| -> Result<Later, Failure> {
            // A reader of a pipe would see its end.
            let is_special = path.metadata().is_ok_and(|meta| !meta.is_file());
            let begun = atomic_file::begin(path)?;
            Ok(match is_special {
                true => Later::Begun(begun),
                false => Later::Tried(path.to_owned()),
            })
        };
        Ok(Self { report: report.map(begin).transpose()?, export: export.map(begin).transpose()? })
    }

    /// Writes the report and the export.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn finish(self, page: &str, inputs: &[Input]) -> Result<(), Failure> {
        let report =
            self.report.map_or(Ok(()), |file| file.finish(|out| out.write_all(page.as_bytes())));
        let export = self.export.map_or(Ok(()), |file| {
            file.finish(|out| writeln!(out, "{}", ioloom_report::anonymous(inputs)))
        });
        report.and(export)
    }
}
