//! A run that is traced: what is added to it, and what comes out.
//!
//! Threads register with one session before the start line and hand their laps to a recorder; files
//! leave their path and size when they are computed. Names are kept of the first files only, so that
//! memory is bounded whatever is read.

use super::{Error, Shared};
use ioloom_model::Level;
use ioloom_observe::collect::{self, Recorder, Refused, Session};
use ioloom_observe::{Sampler, ThreadReport};
use ioloom_trace::{Mark, Series, Trace};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// Spans that all threads keep together: 56 MiB with the clocks that go with them.
const SPANS_MAX: usize = 1 << 20;
/// Spans that a thread may keep at least.
const SPANS_MIN: usize = 1 << 12;
/// Threads beyond which each gets a smaller ring: a plain user may lock little memory.
const THREADS_MANY: usize = 16;
/// Ring of a thread then, bytes.
const RING_BYTES_SMALL: usize = 16 << 10;
/// Files whose path and size are kept.
const FILES_MAX: usize = 1 << 18;

/// How closely a traced run is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tracing {
    /// The level of evidence; `None`: the highest that works.
    pub level: Option<Level>,
    /// Whether paths and sizes of files are kept.
    pub files: bool,
}

/// A file that was computed: position, path, bytes.
pub(crate) type Seen = (usize, PathBuf, u64);

/// The observation of one run.
pub(super) struct Traced {
    session: Session,
    files: Option<Mutex<Vec<Seen>>>,
    started_unix_ms: u64,
}

/// What was sampled: time, requests in flight, bytes of the budget in use.
pub(super) type Sampled = Vec<(u64, (u32, u64))>;

/// Starts sampling requests in flight and the memory budget.
pub(super) fn sample(shared: &Shared<'_>, start_ns: u64) -> Option<Sampler<(u32, u64)>> {
    let (gauges, budget) = (shared.gauges.clone(), shared.budget.clone());
    Sampler::start(move || (gauges.sum(), budget.used()), start_ns).ok()
}

impl Traced {
    /// Opens what the level needs for `threads` threads.
    pub(super) fn start(wanted: Tracing, threads: usize) -> Result<Self, Error> {
        let mut options = collect::Options {
            spans_max: (SPANS_MAX / threads.max(4)).max(SPANS_MIN),
            ..collect::Options::default()
        };
        if threads > THREADS_MANY {
            options.ring_bytes = options.ring_bytes.min(RING_BYTES_SMALL);
        }
        let session = Session::start(wanted.level, options).map_err(|refused| match refused {
            Refused::Thread(source) => Error::System { operation: "start a thread", source },
            other => Error::Refused(other.to_string()),
        })?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            session,
            files: wanted.files.then(Mutex::default),
            started_unix_ms: unix.as_millis() as u64,
        })
    }

    /// The calling thread takes part.
    pub(super) fn register(&self, name: &str, role: &str) -> Recorder {
        self.session.register(name, role)
    }

    /// Whether paths and sizes of files are wanted.
    pub(super) fn wants_files(&self) -> bool {
        self.files.is_some()
    }

    /// Takes what a thread has seen.
    pub(super) fn saw(&self, more: Vec<Seen>) {
        if let Some(files) = &self.files {
            let mut files = files.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let room = FILES_MAX.saturating_sub(files.len());
            files.extend(more.into_iter().take(room));
        }
    }

    /// The run begins at `start_ns`.
    pub(super) fn begin(&self, start_ns: u64) {
        self.session.begin_at(start_ns);
    }

    /// The run is over: all threads have ended.
    pub(super) fn end(self, elapsed_ns: u64, reports: &[ThreadReport], sampled: &Sampled) -> Trace {
        let mut raw = self.session.stop();
        // Joining threads is not part of the run.
        let last = raw.threads.iter().filter(|t| t.role != ioloom_trace::classify::ROLE_TOOL);
        raw.elapsed_ns = last.map(|t| t.end_ns).max().unwrap_or(0).max(elapsed_ns);
        raw.series.extend(series(sampled));
        raw.marks = marks(reports);
        let mut trace = ioloom_trace::classify(raw);
        trace.started_unix_ms = self.started_unix_ms;
        if let Some(files) = self.files {
            name_files(&mut trace, files.into_inner().unwrap_or_default());
        }
        trace
    }
}

fn series(sampled: &Sampled) -> [Series; 2] {
    let of = |name: &str, unit: &str, value: &dyn Fn(&(u32, u64)) -> f64| Series {
        name: name.to_owned(),
        unit: unit.to_owned(),
        points: sampled.iter().map(|(at, both)| (*at, value(both))).collect(),
    };
    [
        of("in flight", "requests", &|both| f64::from(both.0)),
        of("memory budget", "bytes", &|both| both.1 as f64),
    ]
}

fn marks(reports: &[ThreadReport]) -> Vec<Mark> {
    let first = reports.iter().filter_map(|r| r.first_compute_ns).min();
    let issued = reports.iter().filter_map(|r| r.last_issue_ns).max();
    let last = reports.iter().filter_map(|r| r.last_compute_ns).max();
    let named = [
        (first, "first function starts"),
        (issued, "last read is issued"),
        (last, "last function starts"),
    ];
    let mark = |(at, name): (Option<u64>, &str)| Some(Mark { at_ns: at?, name: name.to_owned() });
    let mut marks: Vec<Mark> = named.into_iter().filter_map(mark).collect();
    marks.sort_by_key(|mark| mark.at_ns);
    marks
}

/// Names stand at the positions of their files. In chunk form a file was seen more than once.
fn name_files(trace: &mut Trace, seen: Vec<Seen>) {
    let len = seen.iter().map(|(index, ..)| index + 1).filter(|n| *n <= FILES_MAX).max();
    let len = len.unwrap_or(0);
    trace.files = vec![String::new(); len];
    trace.file_bytes = vec![0; len];
    for (index, path, bytes) in seen {
        if index < len {
            trace.files[index] = path.to_string_lossy().into_owned();
            trace.file_bytes[index] += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_stand_at_their_positions() {
        let mut trace = Trace::default();
        let file = |index, name: &str, bytes| (index, PathBuf::from(name), bytes);
        name_files(&mut trace, vec![file(2, "c", 5), file(0, "a", 1), file(2, "c", 7)]);
        assert_eq!(trace.files, ["a", "", "c"]);
        assert_eq!(trace.file_bytes, [1, 0, 12]);
        name_files(&mut trace, vec![file(FILES_MAX, "far", 1)]);
        assert_eq!(trace.files.len(), 0);
    }
}
