//! A failure to copy one file or directory: operation, path, reason and advice.

use ioloom_failure::{Explained, Operation, quoted};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of errors to keep in full; any others are only counted.
pub use ioloom_walk::ERRORS_KEPT_MAX;

/// Why a file or directory was not copied.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// A system call failed.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The source was modified during the copy.
    #[error("the source {0} during the copy")]
    Changed(&'static str),
    /// The target does not have the same content as the source.
    #[error("the copy differs from the source: {0}")]
    Differs(String),
    /// The request is not possible; the text explains why.
    #[error("{0}")]
    Cannot(String),
    /// The requested copy method cannot be used here.
    #[error("{0}")]
    Refused(crate::plan::Refused),
    /// The copy was cancelled.
    #[error("interrupted")]
    Cancelled,
}

/// A file or directory that was not copied. Its target is unchanged.
#[derive(Debug)]
pub struct CopyError {
    /// The operation that failed.
    pub operation: Operation,
    /// The path on which it failed.
    pub path: PathBuf,
    /// Why it failed.
    pub reason: Reason,
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: ", self.operation, quoted(&self.path))?;
        match &self.reason {
            Reason::Io(error) => write!(f, "{}", Explained::new(self.operation, error)),
            reason @ Reason::Changed(_) => {
                write!(f, "{reason}; copy it again when no program is writing to it")
            }
            reason @ Reason::Differs(_) => {
                write!(f, "{reason}; the target was not modified; check memory, cables and device")
            }
            reason => write!(f, "{reason}"),
        }
    }
}

impl std::error::Error for CopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            Reason::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl CopyError {
    pub(crate) fn io(operation: Operation, path: PathBuf, error: io::Error) -> Self {
        Self { operation, path, reason: Reason::Io(error) }
    }

    pub(crate) fn cannot(operation: Operation, path: &Path, why: impl Into<String>) -> Self {
        Self { operation, path: path.to_owned(), reason: Reason::Cannot(why.into()) }
    }

    /// Returns true if the space or the quota is exhausted, so all further files would fail too.
    pub fn is_out_of_space(&self) -> bool {
        matches!(&self.reason, Reason::Io(e) if out_of_space(e))
    }

    /// Returns true if the copy was refused before it started.
    pub fn is_refused(&self) -> bool {
        matches!(self.reason, Reason::Refused(_))
    }

    /// Returns true if the copy was merely cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.reason, Reason::Cancelled)
    }
}

pub(crate) fn out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Errors of one thread: the first ones in full, and the total count.
pub(crate) type Errors = ioloom_walk::Errors<CopyError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_quote_the_path_and_advise_only_what_is_true() {
        let missing = io::Error::from_raw_os_error(2);
        let error = CopyError::io(Operation::Create, "/proc/a\nb".into(), missing);
        assert_eq!(
            error.to_string(),
            r"cannot create '/proc/a'$'\n''b': No such file or directory"
        );
        let full = CopyError::io(Operation::Write, "x".into(), io::Error::from_raw_os_error(28));
        assert!(full.is_out_of_space());
        assert_eq!(
            full.to_string(),
            "cannot write to 'x': No space left on device; free space or inodes on the file system"
        );
    }
}
