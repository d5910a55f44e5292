//! The files that a watched command leaves: opened before the command runs, written after its report.

use crate::atomic_file::{self, Begun};
use crate::exit::Failure;
use crate::{out, stderr, trace};
use ioloom_observe::TraceFile;
use ioloom_trace::Trace;
use std::path::Path;

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
        let begin = |path: &Path| {
            atomic_file::create_parents(path)?;
            atomic_file::begin(path)
        };
        let begin_json = |path: &Path| match path.to_str() {
            Some("-") => Ok(Json::Stdout),
            _ => begin(path).map(Json::File),
        };
        let trace = trace.map(TraceFile::create).transpose();
        Ok(Self {
            trace: trace.map_err(Failure::failed)?,
            json: json.map(begin_json).transpose()?,
            html: html.map(begin).transpose()?,
        })
    }

    /// Writes every file and prints the errors; returns whether all were written.
    pub(super) fn write(self, trace: &Trace) -> bool {
        let file = self.trace.map(|file| file.write(trace).map_err(Failure::failed));
        let json = self.json.map(|json| json.write(trace));
        let html = self.html.map(|html| {
            let page = ioloom_report::timeline::timeline_page(std::slice::from_ref(trace));
            html.finish(|out| out.write_all(page.as_bytes()))
        });
        let failures = [file, json, html].into_iter().flatten().filter_map(Result::err);
        let failures: Vec<Failure> = failures.filter(|failure| !failure.is_quiet()).collect();
        failures.iter().for_each(|failure| stderr::message(&failure.message));
        failures.is_empty()
    }
}

impl Json {
    fn write(self, trace: &Trace) -> Result<(), Failure> {
        let document = trace::document(trace, "watch");
        match self {
            Self::Stdout => out::print_json(&document),
            Self::File(file) => {
                let text = serde_json::to_string_pretty(&document).map_err(Failure::failed)?;
                file.finish(|out| writeln!(out, "{text}"))
            }
        }
    }
}
