//! What could not be read, with path, operation and advice.

use std::io;
use std::path::PathBuf;

/// Errors that are kept in full; further ones are counted.
pub const ERRORS_KEPT_MAX: usize = 1000;

/// A directory or name that could not be walked.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}; {}", .path.display(), advice(.source))]
pub struct WalkError {
    /// What was tried: `open directory`, `read directory`, `ask for`.
    pub operation: &'static str,
    /// The path, with the root as the user gave it.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run as a user who may read it, or leave it out",
        io::ErrorKind::NotFound => "check the path; it may have been removed meanwhile",
        io::ErrorKind::NotADirectory => "it was replaced while the walk ran; walk again",
        // ELOOP and EMFILE have no stable kind.
        _ if error.raw_os_error() == Some(40) => "symbolic links lead in a circle; remove one",
        _ if error.raw_os_error() == Some(24) => "raise the limit with 'ulimit -n'",
        _ => "check the file system and the kernel log",
    }
}

/// What failed in one thread: the first errors, and a count of all.
#[derive(Debug)]
pub struct Errors<E> {
    /// The first [`ERRORS_KEPT_MAX`].
    pub kept: Vec<E>,
    /// How many there were.
    pub count: u64,
}

impl<E> Default for Errors<E> {
    fn default() -> Self {
        Self { kept: Vec::new(), count: 0 }
    }
}

impl<E> Errors<E> {
    /// One more.
    pub fn add(&mut self, error: E) {
        self.count += 1;
        if self.kept.len() < ERRORS_KEPT_MAX {
            self.kept.push(error);
        }
    }

    /// Those of another thread.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        let room = ERRORS_KEPT_MAX.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.into_iter().take(room));
    }
}
