//! What could not be asked or done, with operation, path and advice.

use std::io;
use std::path::{Path, PathBuf};

/// Why one file was not looked at or not treated.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}; {}", .path.display(), advice(.source))]
pub struct CacheError {
    /// What was tried.
    pub operation: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

impl CacheError {
    pub(crate) fn new(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self { operation, path: path.to_owned(), source }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run as a user who may read it, or leave it out",
        io::ErrorKind::NotFound => "check the path; it may have been removed meanwhile",
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => "name a file",
        io::ErrorKind::StorageFull => "make space, then write it again",
        // EMFILE has no stable kind.
        _ if error.raw_os_error() == Some(24) => "raise the limit with 'ulimit -n'",
        _ => "check the file system and the kernel log",
    }
}
