//! What could not be copied, with path, operation, reason and advice.

use std::io;
use std::path::{Path, PathBuf};

/// Errors that are kept in full; further ones are counted.
pub use ioloom_walk::ERRORS_KEPT_MAX;

/// Why something was not copied.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The system refused.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The source did not stay as it was while it was copied.
    #[error("the source {0} while it was copied")]
    Changed(&'static str),
    /// What the target holds is not what the source holds.
    #[error("the copy differs from the source: {0}")]
    Differs(String),
    /// It cannot be done, for a reason of its own.
    #[error("{0}")]
    Cannot(String),
    /// A mode was pinned that cannot be used here.
    #[error("{0}")]
    Refused(crate::plan::Refused),
    /// The copy was ended.
    #[error("interrupted")]
    Cancelled,
}

/// Something that was not copied. Its target is as it was before.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {reason}{}", .path.display(), advice(.reason))]
pub struct CopyError {
    /// What was tried.
    pub operation: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub reason: Reason,
}

impl CopyError {
    pub(crate) fn io(operation: &'static str, path: PathBuf, error: io::Error) -> Self {
        Self { operation, path, reason: Reason::Io(error) }
    }

    pub(crate) fn cannot(operation: &'static str, path: &Path, why: impl Into<String>) -> Self {
        Self { operation, path: path.to_owned(), reason: Reason::Cannot(why.into()) }
    }

    /// Whether no space or quota is left, so that going on makes little sense.
    pub fn is_out_of_space(&self) -> bool {
        matches!(&self.reason, Reason::Io(e) if out_of_space(e))
    }

    /// Whether it was refused before anything was tried.
    pub fn is_refused(&self) -> bool {
        matches!(self.reason, Reason::Refused(_))
    }

    /// Whether it is only that the copy was ended.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.reason, Reason::Cancelled)
    }
}

pub(crate) fn out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn advice(reason: &Reason) -> &'static str {
    let error = match reason {
        Reason::Io(error) => error,
        Reason::Changed(_) => return "; copy again when it is at rest",
        Reason::Differs(_) => {
            return "; the target was not touched: check memory, cables and device";
        }
        Reason::Cannot(_) | Reason::Refused(_) | Reason::Cancelled => return "",
    };
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as a user who may, or leave it out",
        io::ErrorKind::NotFound => "; check the path; it may have been removed meanwhile",
        io::ErrorKind::NotADirectory => "; remove what is there or choose another target",
        io::ErrorKind::StorageFull => "; free space on the target and copy again",
        io::ErrorKind::QuotaExceeded => "; raise the quota or free space",
        io::ErrorKind::ReadOnlyFilesystem => "; mount the target for writing",
        io::ErrorKind::AlreadyExists => "; somebody else made it meanwhile: copy again",
        io::ErrorKind::FileTooLarge => {
            "; the target's file system, or the limit of 'ulimit -f', has smaller files only"
        }
        // EMFILE and ELOOP have no stable kind.
        _ if error.raw_os_error() == Some(24) => "; raise the limit with 'ulimit -n'",
        _ if error.raw_os_error() == Some(40) => "; it became a symbolic link: copy again",
        _ => "; look at the kernel log",
    }
}

/// Errors of one thread: the first ones and a count.
pub(crate) type Errors = ioloom_walk::Errors<CopyError>;
