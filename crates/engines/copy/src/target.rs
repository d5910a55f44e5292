//! The target of a copy, and what its path means.

use crate::options::{CopyOptions, Follow};
use ioloom_sys::attr;
use ioloom_sys::dir::Kind;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The target of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An existing directory. All sources are copied into it under their own names.
    Into(PathBuf),
    /// The path of the copy of a single source.
    As(PathBuf),
    /// `Into` if the path is a directory, otherwise `As`.
    Auto(PathBuf),
}

/// Returns the target path of one source; with `into`, its own name inside the target.
pub(crate) fn target_path(source: &Path, target: &Path, into: bool) -> PathBuf {
    match source.file_name() {
        _ if !into => target.to_owned(),
        Some(name) if !means_content(source) => without_slashes(target).join(name),
        // As GNU cp names them.
        Some(_) => without_slashes(target).join("."),
        None if source == Path::new(".") => without_slashes(target).join("."),
        None => target.to_owned(),
    }
}

/// Removes slashes at the end, except the first character.
fn without_slashes(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(bytes.len().min(1), |at| at + 1);
    Path::new(OsStr::from_bytes(&bytes[..end]))
}

/// Returns the target path of each source without checking that it can be used.
pub(crate) fn targets_of(sources: &[PathBuf], target: &Target) -> Vec<PathBuf> {
    let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
    let into = match target {
        Target::Into(_) => true,
        Target::As(_) => false,
        Target::Auto(path) => path.is_dir(),
    };
    sources.iter().map(|source| target_path(source, path, into)).collect()
}

/// Returns true if two sources with the same target are one, which is then copied once: the same
/// directory, or the same name of a file. Backups count the copies of a file.
pub(crate) fn is_repeated(a: &Path, b: &Path, options: &CopyOptions) -> bool {
    let found = |path: &Path| attr::of_path(path, options.follow != Follow::Never).ok();
    let (Some(first), Some(second)) = (found(a), found(b)) else { return false };
    let is_one = match first.kind {
        // Otherwise it is not copied, and each mention is an error.
        Kind::Directory => options.recursive,
        _ => options.backup.is_none() && is_one_name(a, b),
    };
    is_one && first.identity() == second.identity()
}

/// Returns true if two paths are the same entry of a directory.
fn is_one_name(a: &Path, b: &Path) -> bool {
    let above = |path: &Path| {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        attr::of_path(above.unwrap_or(Path::new(".")), true).map(|above| above.identity()).ok()
    };
    a == b || (a.file_name() == b.file_name() && above(a).is_some() && above(a) == above(b))
}

/// Returns true if a source represents the contents of a directory: `dir/.`, `..`, `/`.
pub(crate) fn means_content(source: &Path) -> bool {
    let bytes = source.as_os_str().as_bytes();
    source.file_name().is_none() || bytes.ends_with(b"/.") || bytes.ends_with(b"/./")
}

/// Returns true if a path can only name a directory: `new/`, `new/.`, `new/..`.
pub(crate) fn means_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.") || path.file_name().is_none()
}
