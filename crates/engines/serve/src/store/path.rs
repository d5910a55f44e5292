//! File names that belong to a store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Appends `suffix` to the file name of a path.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
