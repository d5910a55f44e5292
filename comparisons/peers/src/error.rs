//! Errors that stop a peer: a run with a missing file cannot be compared.

use std::io;
use std::path::{Path, PathBuf};

/// Why a peer stopped.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// A file could not be opened or read.
    #[error("cannot {operation} {}: {source}; every peer needs every file of the list", path.display())]
    File {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The directory could not be walked.
    #[error("cannot walk {}: {reason}; every peer needs the whole tree", dir.display())]
    Walk {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The list of files cannot be used.
    #[error("cannot use the list {}: {reason}", list.display())]
    List {
        /// The file with the list.
        list: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Threads, a pool or a runtime could not be started.
    #[error("cannot start {what}: {reason}; request fewer")]
    Start {
        /// What failed to start.
        what: &'static str,
        /// The reason.
        reason: String,
    },
}

impl PeerError {
    /// Returns a closure for `map_err` on the calls of one file.
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { operation, path: path.to_path_buf(), source }
    }
}
