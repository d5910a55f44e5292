//! Exports sessions as small files that can be committed to a repository.
//!
//! An export is a flat directory of session files in the store format, each at most 1 MiB; longer
//! sessions are split into parts. Spans are dropped and time curves are thinned. Every number
//! needed for a verdict or a table is retained. [`crate::Store::open_to_read`] reads such a
//! directory like a store.

use crate::store::{
    Picture, Session, SessionHeader, Store, StoreError, encode_end, encode_header, encode_picture,
    encode_run,
};
use ioloom_failure::Operation;
use ioloom_model::{Outcome, RunRecord};
use std::fs::File;
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

/// Exports sessions to `dest`, creating it if it does not exist. Replaces existing files of the
/// same sessions.
///
/// # Errors
/// A session cannot be read, `dest` cannot be written, or a header exceeds the size limit.
pub fn export(
    store: &Store,
    sessions: &[String],
    dest: &Path,
) -> Result<Vec<ExportedFile>, StoreError> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::Io {
            operation: Operation::Write,
            path,
            source,
            advice: "choose a writable directory",
        }
    };
    std::fs::create_dir_all(dest).map_err(fail(dest))?;
    let mut all = Vec::new();
    for name in sessions {
        let session = store.read(name)?;
        let parts = parts(&session).map_err(fail(dest))?;
        // Leftover parts of an earlier export would be read as part of this one.
        for part in parts.len().. {
            let old = dest.join(file_name(name, part));
            match std::fs::remove_file(&old) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => break,
                Err(e) => return Err(fail(&old)(e)),
            }
        }
        for (part, (text, runs)) in parts.into_iter().enumerate() {
            let path = dest.join(file_name(name, part));
            // Write under a temporary name to keep readers from seeing a partial file.
            let half = dest.join(format!(".{name}.part{part}.half"));
            let mut file = File::create(&half).map_err(fail(&half))?;
            file.write_all(&text)
                .and_then(|()| file.sync_all())
                .and_then(|()| std::fs::rename(&half, &path))
                .map_err(fail(&path))?;
            all.push(ExportedFile { path, bytes: text.len() as u64, runs });
        }
        for picture in &session.pictures {
            all.extend(export_trace(store, name, picture, dest).map_err(fail(dest))?);
        }
    }
    Ok(all)
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
    let Some(name) = picture.trace.as_deref().filter(|n| !n.contains('/')) else { return Ok(None) };
    let from = store.traces_dir(session).join(name);
    let fits = from.metadata().is_ok_and(|m| m.len() <= FILE_BYTES_MAX as u64);
    if !fits {
        return Ok(None);
    }
    let dir = dest.join("traces").join(session);
    std::fs::create_dir_all(&dir)?;
    let path = dir.join(name);
    let bytes = std::fs::copy(&from, &path)?;
    Ok(Some(ExportedFile { path, bytes, runs: 1 }))
}

/// Returns the file contents of a session, each with its number of runs.
fn parts(session: &Session) -> io::Result<Vec<(Vec<u8>, usize)>> {
    let mut header = session.header.clone();
    let mut all: Vec<(Vec<u8>, usize)> = Vec::new();
    let mut now = (first_line(&header)?, 0);
    for run in &session.runs {
        let line = encode_run(&compact(run.clone()))?;
        if now.0.len() + line.len() > FILE_BYTES_MAX - END_ROOM {
            header.part += 1;
            // Only the first part contains the list of runs.
            header.order.clear();
            all.push(std::mem::replace(&mut now, (first_line(&header)?, 0)));
            if now.0.len() + line.len() > FILE_BYTES_MAX - END_ROOM {
                return Err(io::Error::other("a single run exceeds the size limit"));
            }
        }
        now.0.extend_from_slice(&line);
        now.1 += 1;
    }
    for picture in &session.pictures {
        let line = encode_picture(picture)?;
        if now.0.len() + line.len() <= FILE_BYTES_MAX - END_ROOM {
            now.0.extend_from_slice(&line);
        }
    }
    if let Some(end) = &session.end {
        now.0.extend_from_slice(&encode_end(end)?);
    }
    all.push(now);
    Ok(all)
}

fn first_line(header: &SessionHeader) -> io::Result<Vec<u8>> {
    let line = encode_header(header)?;
    if line.len() > FILE_BYTES_MAX / 2 {
        return Err(io::Error::other("the list of runs is too long for an export"));
    }
    Ok(line)
}

/// Removes data that only timelines need.
fn compact(mut record: RunRecord) -> RunRecord {
    if let Outcome::Done { measured } = &mut record.outcome {
        measured.spans.clear();
        thin(&mut measured.in_flight, SERIES_MAX);
        measured.curves.values_mut().for_each(|c| thin(c, CURVE_MAX));
    }
    record
}

/// Keeps `max` evenly spaced points, including both ends.
fn thin<T: Copy>(series: &mut Vec<T>, max: usize) {
    let last = series.len().saturating_sub(1);
    if series.len() > max {
        *series = (0..max).map(|i| series[i * last / (max - 1)]).collect();
    }
}
