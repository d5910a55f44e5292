//! Traces of runs: what was asked for, and the file that keeps one.
//!
//! The file is made before the run, so that a path that cannot be written costs no run, and gets its
//! name when it is complete.

use crate::engine::{Executed, Tracing};
use crate::error::Error;
use ioloom_model::Level;
use ioloom_trace::Trace;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable that names the file of a trace.
pub const TRACE_VARIABLE: &str = "IOLOOM_TRACE";
/// The variable that pins the level of evidence.
pub const EVIDENCE_VARIABLE: &str = "IOLOOM_EVIDENCE";

/// A trace that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceWanted {
    /// The file that it goes to.
    pub path: PathBuf,
    /// The level of evidence; `None`: the highest that works.
    pub level: Option<Level>,
}

impl TraceWanted {
    /// What the environment asks for: [`TRACE_VARIABLE`] names the file, [`EVIDENCE_VARIABLE`] pins
    /// the level with 0, 1 or 2. The second run of a process writes to `NAME.2.ioloom`, and so on.
    ///
    /// # Errors
    ///
    /// A level that is none.
    pub fn from_environment() -> Result<Option<Self>, Error> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let Some(path) = std::env::var_os(TRACE_VARIABLE).filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let level = level_of_environment()?;
        let run = RUNS.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Some(Self { path: numbered(Path::new(&path), run), level }))
    }

    /// How the engine observes it.
    pub fn tracing(&self) -> Tracing {
        Tracing { level: self.level, files: true, ..Tracing::default() }
    }
}

/// Makes a run and keeps its trace in `file`, also when it fails: then the run's own error counts,
/// whatever comes of the trace. `run` is given the place for [`RunOptions::trace_of_failure`].
///
/// # Errors
///
/// That of the run; a trace of a good run that cannot be written.
///
/// [`RunOptions::trace_of_failure`]: crate::engine::RunOptions::trace_of_failure
pub fn keeping_trace<L>(
    file: Option<TraceFile>,
    run: impl FnOnce(&Mutex<Option<Box<Trace>>>) -> Result<Executed<L>, Error>,
) -> Result<Executed<L>, Error> {
    let failed = Mutex::new(None);
    let done = run(&failed);
    let failed = failed.into_inner().unwrap_or_default();
    let trace = match &done {
        Ok(executed) => executed.trace.as_deref(),
        Err(_) => failed.as_deref(),
    };
    let written = match (file, trace) {
        (Some(file), Some(trace)) => file.write(trace),
        _ => Ok(()),
    };
    done.and_then(|done| written.map(|()| done))
}

/// The level that the environment pins.
pub(crate) fn level_of_environment() -> Result<Option<Level>, Error> {
    let told = std::env::var_os(EVIDENCE_VARIABLE).filter(|level| !level.is_empty());
    let Some(told) = told else { return Ok(None) };
    let levels = [Level::Account, Level::Switch, Level::Kernel];
    let number = told.to_str().and_then(|text| text.parse::<u8>().ok());
    match number.and_then(|n| levels.into_iter().find(|level| level.number() == n)) {
        Some(level) => Ok(Some(level)),
        None => Err(Error::Refused(format!(
            "{EVIDENCE_VARIABLE}={} is no level of evidence: give 0, 1 or 2, or leave it out for \
             the highest that works",
            told.to_string_lossy()
        ))),
    }
}

/// The path of the `run`-th run of this process.
fn numbered(path: &Path, run: u32) -> PathBuf {
    if run == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{run}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// A trace file that is being made: its name appears when all of it is there.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    unfinished: PathBuf,
    file: File,
}

impl TraceFile {
    /// Makes the file beside `path`.
    ///
    /// # Errors
    ///
    /// A path that cannot be written.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let fail = |source| cannot(path, source);
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
        };
        let mut unfinished = std::ffi::OsString::from(".");
        unfinished.push(name);
        unfinished.push(format!(".{}", std::process::id()));
        let unfinished = path.with_file_name(unfinished);
        let file = File::create(&unfinished).map_err(fail)?;
        Ok(Self { path: path.to_owned(), unfinished, file })
    }

    /// Writes the trace and gives the file its name.
    ///
    /// # Errors
    ///
    /// The system's; what was there under that name stays.
    pub fn write(mut self, trace: &Trace) -> Result<(), Error> {
        let bytes = ioloom_trace::file::write(trace);
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_all());
        written
            .and_then(|()| std::fs::rename(&self.unfinished, &self.path))
            .map_err(|e| cannot(&self.path, e))
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        // After a rename there is nothing under this name.
        let _ = std::fs::remove_file(&self.unfinished);
    }
}

fn cannot(path: &Path, source: io::Error) -> Error {
    Error::Trace { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_runs_have_numbers() {
        assert_eq!(numbered(Path::new("a/run.ioloom"), 1), Path::new("a/run.ioloom"));
        assert_eq!(numbered(Path::new("a/run.ioloom"), 2), Path::new("a/run.2.ioloom"));
        assert_eq!(numbered(Path::new("run"), 12), Path::new("run.12"));
    }

    #[test]
    fn an_unfinished_file_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.ioloom");
        drop(TraceFile::create(&path).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        TraceFile::create(&path).unwrap().write(&Trace::default()).unwrap();
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1);
        assert_eq!(names[0].path(), path);
        let dir_error = TraceFile::create(dir.path()).unwrap_err().to_string();
        assert!(dir_error.contains("directory"), "{dir_error}");
    }
}
