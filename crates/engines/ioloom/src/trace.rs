//! Requests for traces, and the file that a trace is written to.
//!
//! The file is created before the run, so that an unwritable path fails before any work.

use crate::cancel::Cancel;
use crate::engine::{Executed, Tracing};
use crate::error::Error;
use ioloom_model::Level;
use ioloom_observe::{TraceFile, TraceFileError};
use ioloom_trace::Trace;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The environment variable that names the trace file.
pub const TRACE_VARIABLE: &str = "IOLOOM_TRACE";
/// The environment variable that pins the level of evidence.
pub const EVIDENCE_VARIABLE: &str = "IOLOOM_EVIDENCE";

/// A request for a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceWanted {
    /// The trace file.
    pub(crate) path: PathBuf,
    /// The level of evidence; `None` for the highest that works.
    pub(crate) level: Option<Level>,
}

impl TraceWanted {
    /// Reads the file from the environment: [`TRACE_VARIABLE`] names it. The second run of a process
    /// writes to `NAME.2.ioloom`, and so on, unless it is a pipe or a device.
    pub(crate) fn file_of_environment() -> Option<PathBuf> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let path = std::env::var_os(TRACE_VARIABLE).filter(|path| !path.is_empty())?;
        let run = RUNS.fetch_add(1, Ordering::Relaxed) + 1;
        Some(numbered(Path::new(&path), run))
    }

    /// Returns the tracing options of the engine.
    pub(crate) fn tracing(&self) -> Tracing {
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
pub(crate) fn keeping_trace<L>(
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
        (Some(file), Some(trace)) => file.write(trace).map_err(unwritten),
        _ => Ok(()),
    };
    done.and_then(|done| written.map(|()| done))
}

/// Reads the level that [`EVIDENCE_VARIABLE`] pins.
///
/// # Errors
///
/// Fails if it is not 0, 1 or 2.
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

/// Returns the path of the `run`-th run of this process. All runs write to the same pipe or device.
fn numbered(path: &Path, run: u32) -> PathBuf {
    if run == 1 || std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
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

/// Creates the file of a trace before the run; `None` if none is wanted, or if the run was cancelled before a pipe
/// had a reader.
pub(crate) fn create(
    wanted: Option<&TraceWanted>,
    cancel: &Cancel,
) -> Result<Option<TraceFile>, Error> {
    let Some(wanted) = wanted else { return Ok(None) };
    match TraceFile::create_unless(&wanted.path, &|| cancel.is_cancelled()) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.source.kind() == ErrorKind::Interrupted && cancel.is_cancelled() => Ok(None),
        Err(e) => Err(unwritten(e)),
    }
}

fn unwritten(error: TraceFileError) -> Error {
    let TraceFileError { path, source } = error;
    Error::Trace { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_runs_have_numbers() {
        assert_eq!(numbered(Path::new("a/run.ioloom"), 1), Path::new("a/run.ioloom"));
        assert_eq!(numbered(Path::new("a/run.ioloom"), 2), Path::new("a/run.2.ioloom"));
        assert_eq!(numbered(Path::new("run"), 12), Path::new("run.12"));
        assert_eq!(numbered(Path::new("/dev/null"), 2), Path::new("/dev/null"));
    }
}
