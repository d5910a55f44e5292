//! Exports sessions as small files that can be committed to a repository.
//!
//! An export is a flat directory of session files in the store format, each at most 1 MiB; longer
//! sessions are split into parts. Spans are dropped and time curves are thinned. Every number
//! needed for a verdict or a table is retained; what is missing is reported. [`crate::Store::open_to_read`] reads such a
//! directory like a store.

use crate::store::{
    Picture, Session, SessionHeader, Store, StoreError, encode_end, encode_header, encode_note,
    encode_picture, encode_run, peek,
};
use ioloom_failure::Operation;
use ioloom_model::units::format_counted;
use ioloom_model::{Outcome, RunRecord};
use ioloom_sys::new_file::NewFile;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Maximum size of an exported file in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Space in bytes reserved for the last line of a session, which holds a reason and a few doubts.
const END_ROOM: usize = 4096;
/// Maximum number of points retained from a series of reads in flight.
const SERIES_MAX: usize = 64;
/// Maximum number of points retained from a curve. Curves need more points because verdicts depend
/// on them.
const CURVE_MAX: usize = 512;

/// A file of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFile {
    /// Its path.
    pub path: PathBuf,
    /// Length, bytes.
    pub bytes: u64,
    /// Number of runs in it.
    pub runs: usize,
}

/// The result of [`export`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exported {
    /// The files.
    pub files: Vec<ExportedFile>,
    /// What they lack, one sentence per session that is not exported completely.
    pub lacks: Vec<String>,
}

/// What an export of a session lacks.
#[derive(Debug, Default)]
struct Lacks {
    /// Runs without their spans.
    spans: u64,
    /// Runs with fewer points in a series or curve.
    thinned: u64,
    /// Traced runs left out.
    pictures: u64,
    /// Traces left out.
    traces: u64,
    /// Bytes of a torn last line.
    torn_bytes: u64,
    /// Planned runs that the session itself lacks.
    missing: u64,
}

impl Lacks {
    /// Returns a sentence; `None` if nothing is missing.
    fn sentence(&self, session: &str) -> Option<String> {
        let runs = |n: u64, what: &str| {
            (n > 0).then(|| format!("{what} of {}", format_counted(n, "run", "runs")))
        };
        let parts: Vec<String> = [
            runs(self.spans, "the spans"),
            runs(self.thinned, "points of long series"),
            (self.pictures > 0).then(|| {
                format!(
                    "{} above 1 MiB",
                    format_counted(self.pictures, "traced run", "traced runs")
                )
            }),
            (self.traces > 0).then(|| format_counted(self.traces, "trace", "traces")),
            (self.torn_bytes > 0).then(|| format!("a torn last line ({} bytes)", self.torn_bytes)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let left_out =
            (!parts.is_empty()).then(|| format!("{session}: left out {}", parts.join(", ")));
        if self.missing == 0 {
            return left_out;
        }
        let runs = format_counted(self.missing, "planned run is", "planned runs are");
        let missing = format!("{runs} missing from its file");
        Some(match left_out {
            Some(left_out) => format!("{left_out}; {missing}"),
            None => format!("{session}: {missing}"),
        })
    }
}

/// Exports sessions to `dest`, creating it if it does not exist. Replaces existing files of the
/// same sessions.
///
/// # Errors
/// A session cannot be read, `dest` cannot be written or contains another session of the same name, or a
/// header exceeds the size limit.
pub fn export(store: &Store, sessions: &[String], dest: &Path) -> Result<Exported, StoreError> {
    std::fs::create_dir_all(dest).map_err(failed(dest))?;
    let mut all = Exported::default();
    for name in sessions {
        let session = store.read(name)?;
        let (parts, mut lacks) = parts(&session).map_err(too_long(dest))?;
        let count = parts.len();
        for part in 0..count {
            check_replaced(&dest.join(file_name(name, part)), &session.header)?;
        }
        for (part, (text, runs)) in parts.into_iter().enumerate() {
            let path = dest.join(file_name(name, part));
            write_file(&path, &text).map_err(failed(&path))?;
            all.files.push(ExportedFile { path, bytes: text.len() as u64, runs });
        }
        for picture in &session.pictures {
            let trace = export_trace(store, name, picture, dest).map_err(failed(dest))?;
            lacks.traces += u64::from(trace.is_none() && picture.trace.is_some());
            all.files.extend(trace);
        }
        remove_surplus(dest, &session.header, count)?;
        all.lacks.extend(lacks.sentence(name));
    }
    Ok(all)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io {
        operation: Operation::Write,
        path,
        source,
        advice: "choose a writable directory",
    }
}

fn too_long(dest: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = dest.to_owned();
    move |source| StoreError::Io {
        operation: Operation::Write,
        path,
        source,
        advice: "copy the file of the session instead",
    }
}

/// Refuses to replace another session of the same name, and a file whose session is unknown.
fn check_replaced(path: &Path, header: &SessionHeader) -> Result<(), StoreError> {
    let there = if path.exists() { peek(path) } else { Ok(None) };
    let taken = |error| match error {
        StoreError::Line { path, .. } => StoreError::Taken { path },
        other => other,
    };
    match there.map_err(taken)? {
        Some(there) if !there.header.is_of_same_session(header) => {
            Err(StoreError::Taken { path: path.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Writes a file that gets its name when it is complete.
fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = NewFile::create(path)?;
    let mut file = new.file();
    file.write_all(bytes)?;
    new.sync()?;
    new.finish()
}

/// Removes the parts of an earlier, longer export, which would be read as part of this one: the last
/// first, because a gap is an error.
fn remove_surplus(dest: &Path, header: &SessionHeader, from: usize) -> Result<(), StoreError> {
    let start = format!("{}.part", header.session);
    let mut old = Vec::new();
    for entry in std::fs::read_dir(dest).map_err(failed(dest))? {
        let name = entry.map_err(failed(dest))?.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(start.as_str()));
        let part = rest.and_then(|rest| rest.strip_suffix(".jsonl")?.parse::<usize>().ok());
        old.extend(part.filter(|part| *part >= from));
    }
    old.sort_unstable();
    for part in old.into_iter().rev() {
        let path = dest.join(file_name(&header.session, part));
        if peek(&path)?.is_none_or(|there| there.header.is_of_same_session(header)) {
            std::fs::remove_file(&path).map_err(failed(&path))?;
        }
    }
    Ok(())
}

/// Returns the file name of a part of a session.
fn file_name(session: &str, part: usize) -> String {
    if part == 0 { format!("{session}.jsonl") } else { format!("{session}.part{part}.jsonl") }
}

/// Copies the trace of a traced run unless it is missing or too large.
fn export_trace(
    store: &Store,
    session: &str,
    picture: &Picture,
    dest: &Path,
) -> io::Result<Option<ExportedFile>> {
    let is_plain = |name: &&str| !name.contains('/') && !name.starts_with('.');
    let Some(name) = picture.trace.as_deref().filter(is_plain) else { return Ok(None) };
    let from = store.traces_dir(session).join(name);
    let fits = from.metadata().is_ok_and(|m| m.is_file() && m.len() <= FILE_BYTES_MAX as u64);
    if !fits {
        return Ok(None);
    }
    let dir = dest.join("traces").join(session);
    std::fs::create_dir_all(&dir)?;
    let path = dir.join(name);
    let bytes = std::fs::read(&from)?;
    write_file(&path, &bytes)?;
    Ok(Some(ExportedFile { path, bytes: bytes.len() as u64, runs: 1 }))
}

/// The file contents of a session.
struct Parts {
    header: SessionHeader,
    /// Complete files, each with its number of runs.
    complete: Vec<(Vec<u8>, usize)>,
    last: (Vec<u8>, usize),
}

impl Parts {
    fn of(header: &SessionHeader) -> io::Result<Self> {
        let last = (first_line(header)?, 0);
        Ok(Self { header: header.clone(), complete: Vec::new(), last })
    }

    /// Adds a line with this number of runs; begins another file if the last one is full. Returns false
    /// for a line that is too long for any file.
    fn push(&mut self, line: &[u8], runs: usize) -> io::Result<bool> {
        let fits = |file: &[u8]| file.len() + line.len() <= FILE_BYTES_MAX - END_ROOM;
        if !fits(&self.last.0) {
            // Only the first part contains the list of runs.
            let part = self.header.part + 1;
            let header = SessionHeader { part, order: Vec::new(), ..self.header.clone() };
            let first = first_line(&header)?;
            if !fits(&first) {
                return Ok(false);
            }
            self.header = header;
            self.complete.push(std::mem::replace(&mut self.last, (first, 0)));
        }
        self.last.0.extend_from_slice(line);
        self.last.1 += runs;
        Ok(true)
    }
}

/// The contents of a file, and its number of runs.
type Content = (Vec<u8>, usize);

/// Returns the files of a session and what they lack.
fn parts(session: &Session) -> io::Result<(Vec<Content>, Lacks)> {
    let mut parts = Parts::of(&session.header)?;
    let missing = session.missing().len() as u64;
    let mut lacks = Lacks { torn_bytes: session.torn_bytes, missing, ..Lacks::default() };
    // Notes precede the runs: a leftover of an earlier, longer export must not repeat them.
    for note in &session.notes {
        if !parts.push(&encode_note(note)?, 0)? {
            return Err(io::Error::other("a single note exceeds the size limit"));
        }
    }
    for run in &session.runs {
        if !parts.push(&encode_run(&compact(run.clone(), &mut lacks))?, 1)? {
            return Err(io::Error::other("a single run exceeds the size limit"));
        }
    }
    for picture in &session.pictures {
        lacks.pictures += u64::from(!parts.push(&encode_picture(picture)?, 0)?);
    }
    if let Some(end) = &session.end {
        parts.last.0.extend_from_slice(&encode_end(end)?);
    }
    parts.complete.push(parts.last);
    Ok((parts.complete, lacks))
}

fn first_line(header: &SessionHeader) -> io::Result<Vec<u8>> {
    let line = encode_header(header)?;
    if line.len() > FILE_BYTES_MAX / 2 {
        return Err(io::Error::other("the list of runs is too long for an export"));
    }
    Ok(line)
}

/// Removes data that only timelines need.
fn compact(mut record: RunRecord, lacks: &mut Lacks) -> RunRecord {
    if let Outcome::Done { measured } = &mut record.outcome {
        lacks.spans += u64::from(measured.spans.iter().any(|thread| !thread.is_empty()));
        measured.spans.clear();
        let mut thinned = thin(&mut measured.in_flight, SERIES_MAX);
        for curve in measured.curves.values_mut() {
            thinned |= thin(curve, CURVE_MAX);
        }
        lacks.thinned += u64::from(thinned);
    }
    record
}

/// Keeps `max` evenly spaced points, including both ends. Returns whether there were more.
fn thin<T: Copy>(series: &mut Vec<T>, max: usize) -> bool {
    let last = series.len().saturating_sub(1);
    let more = series.len() > max;
    if more {
        *series = (0..max).map(|i| series[i * last / (max - 1)]).collect();
    }
    more
}
