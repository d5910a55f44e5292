//! File names that belong to a store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Appends `suffix` to the file name of a path, which may end with a slash.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.components().collect::<PathBuf>());
    name.push(suffix);
    name.into()
}

/// Returns the directory that contains a path.
pub(super) fn directory_of(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}

/// Follows a symbolic link in the last component, so two names of one store have the same mark.
pub(super) fn resolve(path: &Path) -> PathBuf {
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
    let resolved = if is_link { std::fs::canonicalize(path).ok() } else { None };
    resolved.unwrap_or_else(|| path.components().collect())
}
