//! Encodes and decodes the lines of a session file.

use super::error::StoreError;
use super::session::{Line, Picture, STORE_SCHEMA, SessionEnd, SessionHeader, SessionNote};
use ioloom_model::RunRecord;
use ioloom_model::record::RECORD_SCHEMA;
use serde::Deserialize;
use std::io;
use std::path::Path;

/// Decodes a line of a session file. `line` is its number, from 1.
pub(super) fn decode(path: &Path, line: usize, text: &[u8]) -> Result<Line, StoreError> {
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    #[derive(Deserialize)]
    struct Versions {
        session: Option<Version>,
        run: Option<Version>,
    }
    let invalid = |reason| StoreError::Line { path: path.to_owned(), line, reason };
    let newer = |found, known| StoreError::Newer { path: path.to_owned(), found, known };
    let check =
        |found: u32, known: u32| if found > known { Err(newer(found, known)) } else { Ok(()) };
    match serde_json::from_slice::<Line>(text) {
        Ok(decoded) => {
            match &decoded {
                Line::Session(header) => {
                    check(header.schema, STORE_SCHEMA)?;
                    check_names(header).map_err(invalid)?;
                }
                Line::Run(run) => check(run.schema, RECORD_SCHEMA)?,
                Line::Picture(picture) => check(picture.record.schema, RECORD_SCHEMA)?,
                Line::Note(_) | Line::End(_) => {}
            }
            Ok(decoded)
        }
        Err(error) => {
            // A line in a newer format may not decode; if so, report its version instead.
            if let Ok(versions) = serde_json::from_slice::<Versions>(text) {
                check(versions.session.map_or(0, |v| v.schema), STORE_SCHEMA)?;
                check(versions.run.map_or(0, |v| v.schema), RECORD_SCHEMA)?;
            }
            Err(invalid(error.to_string()))
        }
    }
}

/// Checks the names of the session and its batch, which become file names of reports and exports.
fn check_names(header: &SessionHeader) -> Result<(), String> {
    for name in [header.session.as_str(), header.batch()] {
        let is_unsafe = |c: char| c == '/' || c.is_control();
        if name.is_empty() || name.starts_with('.') || name.contains(is_unsafe) {
            return Err(format!("{name:?} cannot be the name of a session"));
        }
    }
    Ok(())
}

/// Encodes a header, for [`crate::export`].
pub(crate) fn encode_header(header: &SessionHeader) -> io::Result<Vec<u8>> {
    encode(&Line::Session(Box::new(header.clone())))
}

/// Encodes a run.
pub(crate) fn encode_run(run: &RunRecord) -> io::Result<Vec<u8>> {
    encode(&Line::Run(Box::new(run.clone())))
}

/// Encodes a traced run.
pub(crate) fn encode_picture(picture: &Picture) -> io::Result<Vec<u8>> {
    encode(&Line::Picture(Box::new(picture.clone())))
}

/// Encodes a note.
pub(crate) fn encode_note(note: &SessionNote) -> io::Result<Vec<u8>> {
    encode(&Line::Note(note.clone()))
}

/// Encodes an end.
pub(crate) fn encode_end(end: &SessionEnd) -> io::Result<Vec<u8>> {
    encode(&Line::End(end.clone()))
}

/// Encodes a line with its newline.
pub(super) fn encode(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}
