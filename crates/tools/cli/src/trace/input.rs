//! Reads trace files.

use crate::exit::Failure;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_trace::Trace;
use std::path::Path;

/// Reads a trace.
pub(crate) fn read(path: &Path) -> Result<Trace, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|e| Failure::failed(PathError::new(Operation::Read, path, e)))?;
    ioloom_trace::file::read(&bytes)
        .map_err(|e| Failure::usage(format!("cannot read {}: {e}", quoted(path))))
}
