//! Errors of a study.

use crate::store::StoreError;
use ioloom_failure::PathError;

/// The reason why a study could not run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The user specified something that does not exist.
    #[error("{0}")]
    Usage(String),
    /// Refused before the start, for example for lack of space.
    #[error("{0}")]
    Refused(String),
    /// The study was stopped before the session started.
    #[error("interrupted before the first run; completed file sets are retained")]
    Interrupted,
    /// Changed kernel settings could not be restored. The next runs would be made under them.
    #[error("{0}")]
    Settings(String),
    /// A file set could not be created or read.
    #[error("file set {name}: {reason}")]
    Set {
        /// Name of the set.
        name: String,
        /// Why.
        reason: String,
    },
    /// The files of a set could not be listed.
    #[error(transparent)]
    Files(#[from] PathError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A system call without a path failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl LabError {
    /// Returns the exit code for this error.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Refused(_) => 3,
            Self::Interrupted => 130,
            Self::Settings(_)
            | Self::Set { .. }
            | Self::Files(_)
            | Self::Store(_)
            | Self::System(_) => 1,
        }
    }
}
