//! The latest result for each machine, saved in the store.
//!
//! Each machine has one file, replaced by the next measurement of at least the same parts. Unlike study
//! runs, these results have no history.

use crate::atomic_file;
use crate::directories::StoreArg;
use crate::exit::Failure;
use crate::stderr;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_memory::Part;
use ioloom_model::memory::{MEMORY_SCHEMA, MemoryResult};
use std::io::ErrorKind;
use std::path::PathBuf;

fn path(store: &StoreArg, fingerprint: &str) -> Result<PathBuf, Failure> {
    Ok(store.dir()?.join("memory").join(format!("{fingerprint}.json")))
}

/// Saves a result, unless the saved one has something that it lacks; a message says so.
pub(super) fn save(store: &StoreArg, result: &MemoryResult) -> Result<(), Failure> {
    let lacks = saved(store, &result.machine).ok().flatten().and_then(|old| lack(result, &old));
    if let Some(lacks) = lacks {
        stderr::message(&format!(
            "not saved: the saved result has {lacks}; a measurement of all parts replaces it"
        ));
        return Ok(());
    }
    let text = serde_json::to_string(result).map_err(Failure::failed)?;
    atomic_file::write_with_parents(&path(store, &result.machine)?, text)
}

/// Returns what a result lacks of an older one, in words.
fn lack(new: &MemoryResult, old: &MemoryResult) -> Option<String> {
    let known = parts(new);
    let more: Vec<&str> =
        parts(old).into_iter().filter(|part| !known.contains(part)).map(Part::word).collect();
    match more.is_empty() {
        false => Some(more.join(", ")),
        true if new.quick && !old.quick => Some("longer blocks".to_owned()),
        true => None,
    }
}

/// Returns the parts that a result has in addition to the ladder.
fn parts(result: &MemoryResult) -> Vec<Part> {
    let curve = |name: &str| result.curves.keys().any(|key| key.split('.').next() == Some(name));
    let has = |part: &Part| match part {
        Part::Ladder => false,
        Part::Rulers => result.extra.contains_key("row_order_ns"),
        Part::Pages => curve("tlb"),
        Part::Parallel => curve("bandwidth"),
        Part::Pairs => !result.pairs.is_empty() || result.pairs_skipped.is_some(),
        Part::Buffers => curve("bufsize"),
        Part::Smt => result.smt.is_some(),
    };
    Part::ALL.into_iter().filter(has).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::memory::CpuPair;

    #[test]
    fn a_result_of_fewer_parts_or_shorter_blocks_does_not_replace_another() {
        let temp = tempfile::tempdir().unwrap();
        let store = StoreArg { store: Some(temp.path().to_owned()) };
        let machine = "0123456789ab".to_owned();
        let ladder = MemoryResult { schema: MEMORY_SCHEMA, machine, ..MemoryResult::default() };
        let mut more = MemoryResult { started_unix_ms: 1, ..ladder.clone() };
        more.add_point("bandwidth.copy.1", 1.0, 2.0);
        more.pairs.push(CpuPair { a: 0, b: 1, one_way_ns: 3.0 });
        let mut other = MemoryResult { started_unix_ms: 2, ..ladder.clone() };
        other.add_point("bufsize", 1.0, 2.0);
        let mut all = MemoryResult { started_unix_ms: 3, ..more.clone() };
        // Other processors were permitted.
        all.add_point("bandwidth.copy.2", 1.0, 2.0);
        all.add_point("bufsize", 1.0, 2.0);
        all.extra.insert("row_order_ns".to_owned(), 1.0);
        let quick = MemoryResult { quick: true, started_unix_ms: 4, ..all.clone() };
        for (result, saved_ms) in [
            (&ladder, 0),
            (&more, 1),
            (&ladder, 1),
            (&other, 1),
            (&all, 3),
            (&more, 3),
            (&quick, 3),
        ] {
            save(&store, result).unwrap();
            let found = saved(&store, &result.machine).unwrap().unwrap();
            assert_eq!(found.started_unix_ms, saved_ms);
        }
        assert_eq!(lack(&other, &all).as_deref(), Some("rulers, bandwidth, pairs"));
        assert_eq!(lack(&all, &all), None);
    }
}
