//! Directories for tests of stores.

use crate::choice::StoreKind;
use ioloom_testbed::in_memory;
use tempfile::TempDir;

/// Creates a directory in memory if the store can be used there.
pub(super) fn scratch(kind: StoreKind) -> TempDir {
    let dir = in_memory();
    match super::probe_store(kind, dir.path()) {
        Ok(()) => dir,
        Err(_) => TempDir::new().expect("a temporary directory"),
    }
}
