//! Reads trace files.

use crate::exit::Failure;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_trace::Trace;
use ioloom_trace::file::{self, FileError, START_BYTES};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a trace.
pub(crate) fn read(path: &Path) -> Result<Trace, Failure> {
    let failed = |e: io::Error| Failure::failed(PathError::new(Operation::Read, path, e));
    let invalid = |e: FileError| Failure::usage(format!("cannot read {}: {e}", quoted(path)));
    let mut opened = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    opened.by_ref().take(START_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    // The rest of another file can be large or endless.
    file::check_start(&bytes).map_err(invalid)?;
    opened.read_to_end(&mut bytes).map_err(failed)?;
    file::read(&bytes).map_err(invalid)
}
