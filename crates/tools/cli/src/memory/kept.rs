//! The last result of each machine, in the store.
//!
//! One file for each machine, replaced by the next measurement: a fact about a machine, unlike the
//! runs of a study, whose history the store keeps.

use crate::atomic_file;
use crate::directories::StoreArg;
use crate::exit::Failure;
use ioloom_model::memory::{MEMORY_SCHEMA, MemoryResult};
use std::io::ErrorKind;
use std::path::PathBuf;

fn path(store: &StoreArg, fingerprint: &str) -> Result<PathBuf, Failure> {
    Ok(store.dir()?.join("memory").join(format!("{fingerprint}.json")))
}

/// Keeps a result. One of the ladder alone does not replace one that knows more.
pub(super) fn keep(store: &StoreArg, result: &MemoryResult) -> Result<(), Failure> {
    if result.curves.is_empty()
        && kept(store, &result.machine).ok().flatten().is_some_and(|old| !old.curves.is_empty())
    {
        return Ok(());
    }
    let text = serde_json::to_string(result).map_err(Failure::failed)?;
    atomic_file::write(&path(store, &result.machine)?, text)
}

/// The kept result of a machine; `None` without one.
pub(crate) fn kept(store: &StoreArg, fingerprint: &str) -> Result<Option<MemoryResult>, Failure> {
    let path = path(store, fingerprint)?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::failed(format!("read {}: {e}", path.display()))),
    };
    let result: MemoryResult = serde_json::from_str(&text).map_err(|e| {
        Failure::failed(format!("read {}: {e}; run `ioloom memory` again", path.display()))
    })?;
    Ok(Some(result).filter(|r| r.schema == MEMORY_SCHEMA))
}
