//! A failure to copy one file or directory: operation, path, reason and advice.
//!
//! Scripts compare the messages of `cp`, so up to the advice they are worded like those of GNU cp.

use ioloom_failure::{Explained, Operation, quoted};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of errors to keep in full; any others are only counted.
pub use ioloom_walk::ERRORS_KEPT_MAX;

/// How a source changed that kept its size.
pub(crate) const MODIFIED: &str = "was modified";

/// Why a file or directory was not copied.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// A system call failed.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The old and the new file need more space than there is. The new one alone does not.
    #[error("{0}")]
    FitsInPlace(#[source] io::Error),
    /// An existing file is not writable. The text is what the user can do.
    #[error("{0}")]
    Unwritable(#[source] io::Error, &'static str),
    /// The source was modified during the copy, and nothing was copied.
    #[error("the source {0} during the copy")]
    Changed(&'static str),
    /// The source was modified during the copy. The target has the first `bytes` bytes of it.
    #[error("the source {how} during the copy")]
    Partly {
        /// How the source changed.
        how: &'static str,
        /// Size of the copy in bytes.
        bytes: u64,
    },
    /// The target does not have the same content as the source.
    #[error("the copy differs from the source: {0}")]
    Differs(String),
    /// The request is not possible; the text explains why.
    #[error("{0}")]
    Cannot(String),
    /// The request is not possible; the text is the whole message.
    #[error("{0}")]
    Whole(String),
    /// The requested copy method cannot be used here.
    #[error("{0}")]
    Refused(crate::mode::Refused),
    /// The copy was cancelled.
    #[error("interrupted")]
    Cancelled,
}

/// A file or directory that was not copied, or not completely. Except for [`Reason::Partly`], a
/// failed attribute, the target of a pipe or device and one that is written in place, its target is unchanged.
#[derive(Debug)]
pub struct CopyError {
    /// The operation that failed.
    pub operation: Operation,
    /// The path on which it failed.
    pub path: PathBuf,
    /// The other path, if both are part of the message: the source of a link or clone.
    pub other: Option<PathBuf>,
    /// Why it failed.
    pub reason: Reason,
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Io(error) => {
                self.write_subject(f)?;
                write!(f, ": {}", Explained::new(self.operation, error))
            }
            Reason::FitsInPlace(error) => {
                self.write_subject(f)?;
                let reason = ioloom_failure::reason(error);
                let room = match self.operation {
                    Operation::CreateBeside => "space or inodes",
                    _ => "space",
                };
                write!(f, ": {reason}; free {room}, or use --in-place to overwrite the old file")
            }
            Reason::Unwritable(error, advice) => {
                self.write_subject(f)?;
                write!(f, ": {}; {advice}", ioloom_failure::reason(error))
            }
            Reason::Whole(text) => f.write_str(text),
            Reason::Partly { how: MODIFIED, .. } => write!(
                f,
                "warning: {} {MODIFIED} while it was copied: the copy can contain old and new \
                 data; copy it again when no program is writing to it",
                quoted(&self.path)
            ),
            Reason::Partly { how, bytes } => write!(
                f,
                "warning: {} {how} while it was copied: the copy has its first {bytes} bytes; copy it \
                 again for the rest",
                quoted(&self.path)
            ),
            reason => {
                write!(f, "cannot {} {}: {reason}", self.operation, quoted(&self.path))?;
                match reason {
                    Reason::Changed(_) => {
                        write!(f, "; copy it again when no program is writing to it")
                    }
                    Reason::Differs(_) => {
                        write!(f, "; the target was not modified; check memory, cables and device")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl CopyError {
    /// Writes what failed, in the words of GNU cp.
    fn write_subject(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = quoted(&self.path);
        let operation = self.operation;
        let before = match operation {
            Operation::Open => return write!(f, "cannot open {path} for reading"),
            Operation::OpenDir | Operation::ReadDir => "cannot access",
            Operation::Read => "error reading",
            Operation::Write | Operation::Allocate => "error writing",
            Operation::Truncate => "failed to extend",
            Operation::Create | Operation::CreateBeside => "cannot create regular file",
            Operation::ChangeOwner => "failed to preserve ownership for",
            Operation::ChangeMode => "preserving permissions for",
            Operation::ChangeTimes => "preserving times for",
            Operation::ReadAttributes | Operation::WriteAttributes => "setting attributes for",
            Operation::Clone => "failed to clone",
            Operation::Close => "failed to close",
            _ => return self.write_usual(f),
        };
        match (&self.other, operation) {
            (Some(other), Operation::Clone) => write!(f, "{before} {path} from {}", quoted(other)),
            _ => write!(f, "{before} {path}"),
        }
    }

    fn write_usual(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.operation, quoted(&self.path))?;
        match &self.other {
            Some(other) => write!(f, " to {}", quoted(other)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            Reason::Io(error) | Reason::FitsInPlace(error) | Reason::Unwritable(error, _) => {
                Some(error)
            }
            _ => None,
        }
    }
}

impl CopyError {
    pub(crate) fn io(operation: Operation, path: PathBuf, error: io::Error) -> Self {
        Self { operation, path, other: None, reason: Reason::Io(error) }
    }

    pub(crate) fn cannot(operation: Operation, path: &Path, why: impl Into<String>) -> Self {
        let reason = Reason::Cannot(why.into());
        Self { operation, path: path.to_owned(), other: None, reason }
    }

    /// An error whose whole message is `text`.
    pub(crate) fn whole(path: &Path, text: String) -> Self {
        let (operation, reason) = (Operation::Copy, Reason::Whole(text));
        Self { operation, path: path.to_owned(), other: None, reason }
    }

    /// Adds the second path of the message.
    pub(crate) fn and(self, other: PathBuf) -> Self {
        Self { other: Some(other), ..self }
    }

    /// Returns true if the space or the quota is exhausted.
    pub fn is_out_of_space(&self) -> bool {
        matches!(&self.reason, Reason::Io(e) | Reason::FitsInPlace(e) if out_of_space(e))
    }

    /// Returns true if the copy was refused before it started.
    pub fn is_refused(&self) -> bool {
        matches!(self.reason, Reason::Refused(_))
    }

    /// Returns true if the copy was merely cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.reason, Reason::Cancelled)
    }

    /// Returns the error number, if a system call failed.
    pub(crate) fn errno(&self) -> Option<rustix::io::Errno> {
        match &self.reason {
            Reason::Io(error) | Reason::FitsInPlace(error) | Reason::Unwritable(error, _) => {
                rustix::io::Errno::from_io_error(error)
            }
            _ => None,
        }
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
            r"cannot create regular file '/proc/a'$'\n''b': No such file or directory"
        );
        let full = CopyError::io(Operation::Write, "x".into(), io::Error::from_raw_os_error(28));
        assert!(full.is_out_of_space());
        assert_eq!(
            full.to_string(),
            "error writing 'x': No space left on device; free space or inodes on the file system"
        );
        let partly = |how| {
            let reason = Reason::Partly { how, bytes: 3 };
            CopyError { operation: Operation::Copy, path: "x".into(), other: None, reason }
                .to_string()
        };
        assert!(partly("grew").ends_with("has its first 3 bytes; copy it again for the rest"));
        assert_eq!(
            partly(MODIFIED),
            "warning: 'x' was modified while it was copied: the copy can contain old and new data; \
             copy it again when no program is writing to it"
        );
        let link = CopyError::io(Operation::HardLink, "b".into(), io::Error::from_raw_os_error(18));
        assert_eq!(
            link.and("a".into()).to_string(),
            "cannot create hard link 'b' to 'a': Invalid cross-device link"
        );
    }
}
