//! Requests for traces, and the file that a trace is written to.
//!
//! The file is created before the run, so that an unwritable path fails before any work, and gets
//! its name when it is complete.

use crate::engine::{Executed, Tracing};
use crate::error::Error;
use ioloom_model::Level;
use ioloom_trace::Trace;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The environment variable that names the trace file.
pub const TRACE_VARIABLE: &str = "IOLOOM_TRACE";
/// The environment variable that pins the level of evidence.
pub const EVIDENCE_VARIABLE: &str = "IOLOOM_EVIDENCE";

/// A request for a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceWanted {
    /// The trace file.
    pub path: PathBuf,
    /// The level of evidence; `None` for the highest that works.
    pub level: Option<Level>,
}

impl TraceWanted {
    /// Reads the request from the environment: [`TRACE_VARIABLE`] names the file and
    /// [`EVIDENCE_VARIABLE`] pins the level. The second run of a process writes to `NAME.2.ioloom`,
    /// and so on.
    ///
    /// # Errors
    ///
    /// Fails if the level is not 0, 1 or 2.
    pub fn from_environment() -> Result<Option<Self>, Error> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let Some(path) = std::env::var_os(TRACE_VARIABLE).filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let level = level_of_environment()?;
        let run = RUNS.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Some(Self { path: numbered(Path::new(&path), run), level }))
    }

    /// Returns the tracing options of the engine.
    pub fn tracing(&self) -> Tracing {
        Tracing { level: self.level, files: true, ..Tracing::default() }
    }
}

/// Runs `run` and writes its trace to `file`. If the run fails, its trace is still written and the
/// error of the run is returned, whether or not the trace could be written. `run` receives the
/// slot for [`RunOptions::trace_of_failure`].
///
/// # Errors
///
/// Returns the error of the run, or of writing the trace of a run that succeeded.
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

/// Reads the level that the environment pins.
pub(crate) fn level_of_environment() -> Result<Option<Level>, Error> {
    let value = std::env::var_os(EVIDENCE_VARIABLE).filter(|level| !level.is_empty());
    let Some(value) = value else { return Ok(None) };
    let levels = [Level::Account, Level::Switch, Level::Kernel];
    let number = value.to_str().and_then(|text| text.parse::<u8>().ok());
    match number.and_then(|n| levels.into_iter().find(|level| level.number() == n)) {
        Some(level) => Ok(Some(level)),
        None => Err(Error::Refused(format!(
            "invalid value '{}' for {EVIDENCE_VARIABLE}: must be 0, 1 or 2; unset it for the highest \
             level that works",
            value.to_string_lossy()
        ))),
    }
}

/// Returns the path of the `run`-th run of this process.
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

/// A trace file under construction. It gets its name when it is complete.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    unfinished: PathBuf,
    file: File,
}

impl TraceFile {
    /// Creates a temporary file in the directory of `path`.
    ///
    /// # Errors
    ///
    /// Fails if the directory is not writable or `path` is a directory.
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

    /// Writes the trace and renames the file to its final name.
    ///
    /// # Errors
    ///
    /// Returns the system's error. A file of that name is then unchanged.
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
        // After the rename there is no file under this name.
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
    fn an_unfinished_file_is_removed() {
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
