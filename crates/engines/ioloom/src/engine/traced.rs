//! Tracing of a run.
//!
//! Threads register with one session before the start gate and pass their timings to a recorder.
//! The path and size of each processed file are recorded. Only names of the first files are kept,
//! so that memory stays bounded.

use crate::default_plan::usable_cores;
use crate::error::{Error, START_THREAD};
use crate::shared::Shared;
use ioloom_model::record::Bottleneck;
use ioloom_model::units::{format_count, format_ns, format_size};
use ioloom_model::{Level, Measured, State};
use ioloom_observe::collect::{self, Recorder, Refused, Session};
use ioloom_observe::{
    GaugeSampler, GaugeTotals, ThreadReport, UsageDelta, bottleneck, merge_calls,
};
use ioloom_trace::raw::READY_QUEUE;
use ioloom_trace::{Mark, Series, Trace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// Default number of spans over all threads: 56 MiB with their clock readings.
const SPANS_MAX: usize = 1 << 20;
/// Kernel events kept for each span.
const EVENTS_FOR_A_SPAN: usize = 8;
/// Minimum number of spans per thread.
const SPANS_MIN: usize = 1 << 12;
/// Number of threads above which rings are small: an ordinary user may lock little memory.
const THREADS_MANY: usize = 16;
/// Size of a small ring, bytes.
const RING_BYTES_SMALL: usize = 16 << 10;
/// Files whose path and size are kept: the first of the input.
const FILES_MAX: usize = 1 << 18;

/// How closely a traced run is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracing {
    /// The level of evidence; `None` for the highest that works.
    pub level: Option<Level>,
    /// Whether paths and sizes of files are kept.
    pub files: bool,
    /// Spans kept over all threads, and an eighth of the kernel events. Bounds memory and the size
    /// of the trace; what does not fit is counted.
    pub spans_max: usize,
}

impl Default for Tracing {
    fn default() -> Self {
        Self { level: None, files: false, spans_max: SPANS_MAX }
    }
}

/// Path and bytes of the processed files, by position.
pub(crate) type Seen = BTreeMap<usize, (PathBuf, u64)>;

/// Adds a processed piece of a file.
pub(super) fn see(seen: &mut Seen, index: usize, path: &Path, bytes: u64) {
    if index < FILES_MAX {
        seen.entry(index).or_insert_with(|| (path.to_owned(), 0)).1 += bytes;
    }
}

/// The tracing session of one run.
pub(super) struct Traced {
    session: Session,
    files: Option<Mutex<Seen>>,
    started_unix_ms: u64,
}

/// Samples: time, the gauges, and bytes of the budget in use.
pub(super) type Sampled = Vec<(u64, (GaugeTotals, u64))>;

/// What is known of a run at its end.
pub(super) struct Ran<'r> {
    pub(super) elapsed_ns: u64,
    pub(super) reports: &'r [ThreadReport],
    pub(super) usage: &'r UsageDelta,
    pub(super) sampled: &'r Sampled,
    /// When the last path was taken, after the start.
    pub(super) list_end_ns: Option<u64>,
    pub(super) function_waits: Option<State>,
    /// Why the run failed.
    pub(super) failed: Option<String>,
}

/// Starts sampling the gauges and the memory budget.
pub(super) fn sample(
    shared: &Shared<'_>,
    start_ns: u64,
) -> Option<GaugeSampler<(GaugeTotals, u64)>> {
    let (gauges, budget) = (shared.gauges.clone(), shared.budget.clone());
    GaugeSampler::start(move || (gauges.sum(), budget.used()), start_ns).ok()
}

impl Traced {
    /// Opens what the level needs for `threads` threads.
    pub(super) fn start(wanted: Tracing, threads: usize) -> Result<Self, Error> {
        let mut options = collect::TraceOptions {
            spans_max: (wanted.spans_max / threads.max(4)).max(SPANS_MIN),
            events_max: wanted.spans_max.saturating_mul(EVENTS_FOR_A_SPAN),
            ..collect::TraceOptions::default()
        };
        if threads > THREADS_MANY {
            options.ring_bytes = options.ring_bytes.min(RING_BYTES_SMALL);
        }
        let session = Session::start(wanted.level, options).map_err(|refused| match refused {
            Refused::Thread(source) => Error::System { operation: START_THREAD, source },
            other => Error::Refused(other.to_string()),
        })?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            session,
            files: wanted.files.then(Mutex::default),
            started_unix_ms: unix.as_millis() as u64,
        })
    }

    /// Registers the calling thread.
    pub(super) fn register(&self, name: &str, role: &str) -> Recorder {
        self.session.register(name, role)
    }

    /// Reports whether paths and sizes of files are wanted.
    pub(super) fn wants_files(&self) -> bool {
        self.files.is_some()
    }

    /// Adds the files that a thread has processed.
    pub(super) fn saw(&self, more: Seen) {
        if let Some(files) = &self.files {
            let mut files = files.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            for (index, (path, bytes)) in more {
                files.entry(index).or_insert((path, 0)).1 += bytes;
            }
        }
    }

    /// Sets the start of the run.
    pub(super) fn begin(&self, start_ns: u64) {
        self.session.begin_at(start_ns);
    }

    /// Ends the session after all threads have ended, and returns the trace.
    pub(super) fn end(self, shared: &Shared<'_>, ran: &Ran<'_>) -> Trace {
        let mut raw = self.session.stop();
        // Joining threads is not part of the run.
        let last = raw.threads.iter().filter(|t| t.role != ioloom_trace::lane::ROLE_TOOL);
        raw.elapsed_ns = last.map(|t| t.end_ns).max().unwrap_or(0).max(ran.elapsed_ns);
        raw.series.extend(series(ran.sampled));
        raw.marks = marks(ran.reports, ran.list_end_ns);
        raw.function_waits = ran.function_waits;
        let mut trace = ioloom_trace::classify(raw);
        trace.started_unix_ms = self.started_unix_ms;
        trace.title = title(shared, ran.elapsed_ns);
        trace.limit = Some(limit(shared, ran));
        match &ran.failed {
            Some(error) => incomplete(&mut trace, &format!("the run failed: {error}")),
            None if shared.cancel.is_cancelled() => {
                incomplete(&mut trace, "the run was interrupted");
            }
            None => {}
        }
        if let Some(files) = self.files {
            name_files(&mut trace, files.into_inner().unwrap_or_default());
        }
        trace
    }
}

/// Judges the run as its measurements do.
fn limit(shared: &Shared<'_>, ran: &Ran<'_>) -> Bottleneck {
    let cores = usable_cores();
    let largest = ran.reports.iter().map(|report| report.largest).max().unwrap_or_default();
    let mut measured = Measured {
        elapsed_ns: ran.elapsed_ns,
        files: shared.gauges.files(),
        bytes: shared.gauges.bytes(),
        largest_file_bytes: largest.bytes,
        largest_file_ns: largest.ns,
        calls: merge_calls(ran.reports),
        threads: ran.reports.iter().map(|report| report.time.clone()).collect(),
        ..Measured::default()
    };
    ran.usage.fill(&mut measured, cores);
    bottleneck(&measured, (cores, cores), shared.layout.permits)
}

/// Describes a run in one line.
fn title(shared: &Shared<'_>, elapsed_ns: u64) -> String {
    format!(
        "{}: {} files, {} in {}",
        shared.plan,
        format_count(shared.gauges.files()),
        format_size(shared.gauges.bytes()),
        format_ns(elapsed_ns as f64)
    )
}

/// Marks a trace as incomplete, in its title and notes.
fn incomplete(trace: &mut Trace, why: &str) {
    trace.title = format!("incomplete: {}", trace.title);
    trace.evidence.notes.push(format!("the trace is incomplete: {why}; later events are missing"));
}

fn series(sampled: &Sampled) -> [Series; 3] {
    let of = |name: &str, unit: &str, value: &dyn Fn(&(GaugeTotals, u64)) -> f64| Series {
        name: name.to_owned(),
        unit: unit.to_owned(),
        points: sampled.iter().map(|(at, both)| (*at, value(both))).collect(),
    };
    [
        of("in flight", "requests", &|both| f64::from(both.0.in_flight)),
        of(READY_QUEUE, "pieces", &|both| f64::from(both.0.ready)),
        of("memory budget", "bytes", &|both| both.1 as f64),
    ]
}

fn marks(reports: &[ThreadReport], list_end_ns: Option<u64>) -> Vec<Mark> {
    let first = reports.iter().filter_map(|r| r.first_compute_ns).min();
    let issued = reports.iter().filter_map(|r| r.last_issue_ns).max();
    let last = reports.iter().filter_map(|r| r.last_compute_ns).max();
    let named = [
        (first, "first function starts"),
        (list_end_ns, "list ends"),
        (issued, "last read is issued"),
        (last, "last function starts"),
    ];
    let mark = |(at, name): (Option<u64>, &str)| Some(Mark { at_ns: at?, name: name.to_owned() });
    let mut marks: Vec<Mark> = named.into_iter().filter_map(mark).collect();
    marks.sort_by_key(|mark| mark.at_ns);
    marks
}

/// Puts names at the positions of their files.
fn name_files(trace: &mut Trace, seen: Seen) {
    let len = seen.last_key_value().map_or(0, |(index, _)| index + 1);
    trace.files = vec![String::new(); len];
    trace.file_bytes = vec![0; len];
    for (index, (path, bytes)) in seen {
        trace.files[index] = path.to_string_lossy().into_owned();
        trace.file_bytes[index] = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_are_at_their_positions() {
        let mut trace = Trace::default();
        let mut seen = Seen::new();
        // In chunk form the pieces of files alternate.
        for (index, name, bytes) in [(2, "c", 5), (0, "a", 1), (2, "c", 7), (FILES_MAX, "far", 9)] {
            see(&mut seen, index, Path::new(name), bytes);
        }
        assert_eq!(seen.len(), 2, "one entry per file, and none beyond the first files");
        name_files(&mut trace, seen);
        assert_eq!(trace.files, ["a", "", "c"]);
        assert_eq!(trace.file_bytes, [1, 0, 12]);
        name_files(&mut trace, Seen::new());
        assert_eq!(trace.files.len(), 0);
    }
}
