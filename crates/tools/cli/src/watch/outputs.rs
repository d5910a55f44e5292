//! The files that a watched command leaves: opened before the command runs, written before its report.

use crate::atomic_file::{self, Begun};
use crate::exit::Failure;
use crate::{out, stderr, trace};
use ioloom_failure::quoted;
use ioloom_observe::TraceFile;
use ioloom_trace::Trace;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The files of an observation.
pub(super) struct Outputs {
    trace: Option<TraceFile>,
    json: Option<Json>,
    html: Option<Begun>,
}

/// Where the document goes.
enum Json {
    Stdout,
    File(Begun),
}

impl Outputs {
    /// Opens the files, so that a path that cannot be written is an error before the command runs.
    pub(super) fn create(
        trace: Option<&Path>,
        json: Option<&Path>,
        html: Option<&Path>,
    ) -> Result<Self, Failure> {
        atomic_file::refuse_dash("--output", trace)?;
        atomic_file::refuse_dash("--html", html)?;
        check_distinct([trace, json.filter(|path| path.as_os_str() != "-"), html])?;
        let begin_json = |path: &Path| match path.to_str() {
            Some("-") => Ok(Json::Stdout),
            _ => atomic_file::begin(path).map(Json::File),
        };
        let trace = trace.map(TraceFile::create).transpose();
        Ok(Self {
            trace: trace.map_err(Failure::failed)?,
            json: json.map(begin_json).transpose()?,
            html: html.map(atomic_file::begin).transpose()?,
        })
    }

    /// Writes every file, prints the report, which a stalled reader can hold up, and then the errors; returns
    /// whether all outputs were written.
    pub(super) fn write(self, trace: &Trace, report: impl FnOnce()) -> bool {
        let file = self.trace.map(|file| file.write(trace).map_err(Failure::failed));
        let html = self.html.map(|html| {
            let page = ioloom_report::timeline::timeline_page(std::slice::from_ref(trace));
            html.finish(|out| out.write_all(page.as_bytes()))
        });
        let document = self.json.as_ref().map(|_| trace::document(trace, "watch"));
        let (json, printed) = match (self.json, document) {
            (Some(Json::File(file)), Some(document)) => (Some(write_json(file, &document)), None),
            (_, document) => (None, document),
        };
        report();
        let printed = printed.map(|document| out::print_json_to_slow_reader(&document));
        let failures = [file, json, html, printed].into_iter().flatten().filter_map(Result::err);
        let failures: Vec<Failure> = failures.filter(|failure| !failure.is_quiet()).collect();
        failures.iter().for_each(|failure| stderr::message(&failure.message));
        failures.is_empty()
    }
}

/// Refuses one file for two outputs, as the later one would replace the other.
fn check_distinct(outputs: [Option<&Path>; 3]) -> Result<(), Failure> {
    // Pipes and devices are not replaced.
    let is_file = |path: &&Path| std::fs::metadata(path).ok().is_none_or(|found| found.is_file());
    let mut known: Vec<PathBuf> = Vec::new();
    for path in outputs.into_iter().flatten().filter(is_file) {
        let full = full_path(path);
        if known.contains(&full) {
            let path = quoted(path);
            return Err(Failure::usage(format!("{path} is named for two outputs; use two files")));
        }
        known.push(full);
    }
    Ok(())
}

/// Returns the path without links, as far as it exists.
fn full_path(path: &Path) -> PathBuf {
    let Ok(full) = std::path::absolute(path) else { return path.to_owned() };
    let existing = full.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let real = existing.and_then(|(above, real)| Some(real.join(full.strip_prefix(above).ok()?)));
    real.unwrap_or(full)
}

fn write_json(file: Begun, document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).map_err(Failure::failed)?;
    file.finish(|out| writeln!(out, "{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_above_missing_directories_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let (trace, html) = (dir.path().join("real/new/w"), dir.path().join("link/new/w"));
        assert!(Outputs::create(Some(&trace), None, Some(&html)).is_err());
    }

    #[test]
    fn a_file_named_minus_is_refused() {
        let dash = Some(Path::new("-"));
        for (trace, html) in [(dash, None), (None, dash)] {
            let failure = Outputs::create(trace, None, html).err().unwrap();
            assert!(failure.message.contains("does not write to standard output"));
        }
        assert!(Outputs::create(None, dash, None).is_ok());
    }

    #[test]
    fn files_are_written_before_the_report() {
        let dir = tempfile::tempdir().unwrap();
        let (trace, json) = (dir.path().join("w.ioloom"), dir.path().join("w.json"));
        let outputs = Outputs::create(Some(&trace), Some(&json), None).unwrap();
        assert!(outputs.write(&Trace::default(), || assert!(trace.exists() && json.exists())));
    }
}
