//! Exporting sessions: small files that can be kept beside a program's source.
//!
//! An export is a flat directory of session files in the store's own format, at most 1 MiB each; a
//! longer session becomes several parts. Spans and the fine grain of curves over time are left
//! out, every number that a verdict or a table rests on stays. [`crate::Store::open_to_read`]
//! reads such a directory as one more store.

use crate::store::{
    Picture, Session, SessionHeader, Store, StoreError, encode_end, encode_header, encode_picture,
    encode_run,
};
use ioloom_failure::Operation;
use ioloom_model::{Outcome, RunRecord};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Largest file of an export, bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Room for the last line of a session, bytes; it holds a word and a few doubts.
const END_ROOM: usize = 4096;
/// Points of the series of reads in flight that are kept.
const SERIES_MAX: usize = 64;
/// Points of a curve that are kept; verdicts rest on curves, so they keep more.
const CURVE_MAX: usize = 512;

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFile {
    /// Where.
    pub path: PathBuf,
    /// Length, bytes.
    pub bytes: u64,
    /// Runs in it.
    pub runs: usize,
}

/// Exports sessions into `dest`, which is made if it is not there. Files of the same sessions that
/// are there already are replaced.
///
/// # Errors
/// A session cannot be read, `dest` cannot be written, or the header alone is larger than a file
/// may be.
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
            remedy: "choose a directory that can be written",
        }
    };
    std::fs::create_dir_all(dest).map_err(fail(dest))?;
    let mut all = Vec::new();
    for name in sessions {
        let session = store.read(name)?;
        let parts = parts(&session).map_err(fail(dest))?;
        // Parts beyond these are of an earlier export, and would be read as of this one.
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
            // Under another name first, so that a reader never sees half a file.
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

/// Name of a part of the export of a session.
fn file_name(session: &str, part: usize) -> String {
    if part == 0 { format!("{session}.jsonl") } else { format!("{session}.part{part}.jsonl") }
}

/// Copies the trace of a picture, unless it is larger than a file may be or gone.
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

/// The texts of the files of a session, each with its number of runs.
fn parts(session: &Session) -> io::Result<Vec<(Vec<u8>, usize)>> {
    let mut header = session.header.clone();
    let mut all: Vec<(Vec<u8>, usize)> = Vec::new();
    let mut now = (first_line(&header)?, 0);
    for run in &session.runs {
        let line = encode_run(&compact(run.clone()))?;
        if now.0.len() + line.len() > FILE_BYTES_MAX - END_ROOM {
            header.part += 1;
            // The list of runs stands in the first part alone.
            header.order.clear();
            all.push(std::mem::replace(&mut now, (first_line(&header)?, 0)));
            if now.0.len() + line.len() > FILE_BYTES_MAX - END_ROOM {
                return Err(io::Error::other("one run is larger than a file may be"));
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

/// A record without what only a timeline needs.
fn compact(mut record: RunRecord) -> RunRecord {
    if let Outcome::Done { measured } = &mut record.outcome {
        measured.spans.clear();
        thin(&mut measured.in_flight, SERIES_MAX);
        measured.curves.values_mut().for_each(|c| thin(c, CURVE_MAX));
    }
    record
}

/// Keeps the ends and evenly spaced points between them, `max` in all.
fn thin<T: Copy>(series: &mut Vec<T>, max: usize) {
    let last = series.len().saturating_sub(1);
    if series.len() > max {
        *series = (0..max).map(|i| series[i * last / (max - 1)]).collect();
    }
}
