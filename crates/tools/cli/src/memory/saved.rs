//! The latest result for each machine, saved in the store.
//!
//! Each machine has one file, replaced by the next measurement. Unlike study runs, these results
//! have no history.

use crate::atomic_file;
use crate::directories::StoreArg;
use crate::exit::Failure;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::memory::{MEMORY_SCHEMA, MemoryResult};
use std::io::ErrorKind;
use std::path::PathBuf;

fn path(store: &StoreArg, fingerprint: &str) -> Result<PathBuf, Failure> {
    Ok(store.dir()?.join("memory").join(format!("{fingerprint}.json")))
}

/// Saves a result. A ladder-only result does not replace a complete one.
pub(super) fn save(store: &StoreArg, result: &MemoryResult) -> Result<(), Failure> {
    if result.curves.is_empty()
        && saved(store, &result.machine).ok().flatten().is_some_and(|old| !old.curves.is_empty())
    {
        return Ok(());
    }
    let text = serde_json::to_string(result).map_err(Failure::failed)?;
    atomic_file::write(&path(store, &result.machine)?, text)
}

/// Returns the saved result for a machine, if any.
pub(crate) fn saved(store: &StoreArg, fingerprint: &str) -> Result<Option<MemoryResult>, Failure> {
    let path = path(store, fingerprint)?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::failed(PathError::new(Operation::Read, path, e))),
    };
    let result: MemoryResult = serde_json::from_str(&text).map_err(|e| {
        Failure::failed(format!("cannot read {}: {e}; run `ioloom memory` again", quoted(&path)))
    })?;
    Ok(Some(result).filter(|r| r.schema == MEMORY_SCHEMA))
}
