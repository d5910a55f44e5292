//! Why a study could not run.

use crate::store::StoreError;
use ioloom_failure::PathError;

/// Why a study could not run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The user asked for something that does not exist.
    #[error("{0}")]
    Usage(String),
    /// Too little space, or something else that is refused before the start.
    #[error("{0}")]
    Refused(String),
    /// The flag was raised before the session began.
    #[error("interrupted before the first run; sets that were made stay")]
    Interrupted,
    /// A set could not be made or read.
    #[error("set {name}: {reason}")]
    Set {
        /// Which set.
        name: String,
        /// Why.
        reason: String,
    },
    /// The files of a set could not be listed.
    #[error(transparent)]
    Files(#[from] PathError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something the system would not say.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl LabError {
    /// The exit code of a program that ends with this error.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Refused(_) => 3,
            Self::Interrupted => 130,
            Self::Set { .. } | Self::Files(_) | Self::Store(_) | Self::System(_) => 1,
        }
    }
}
