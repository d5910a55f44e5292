//! Errors of a run and of a file.

pub use ioloom_failure::Operation;
use ioloom_failure::{Explained, PathError, quoted, reason};
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error returned by the user's function. Any error converts with `?`.
pub type FnError = Box<dyn StdError + Send + Sync>;

/// Why a file failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// A system call failed. The error keeps its kind and number.
    Io(io::Error),
    /// The user's function returned this error.
    Function(FnError),
    /// The engine rejected the file for the reason given: it is not a regular file, for instance,
    /// or it does not fit in the memory budget.
    Rejected(String),
}

/// A file that failed: its position in the input, the operation, the path and the cause.
///
/// ```
/// let error = ioloom::files(["/nope"]).map(|f| Ok(f.len())).sum::<u64>().unwrap_err();
/// let ioloom::Error::File(error) = error else { panic!("{error}") };
/// assert_eq!(error.to_string(), "cannot stat '/nope': No such file or directory");
/// assert_eq!(error.io_error().unwrap().kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct FileError {
    /// Position of the file in the input.
    pub index: usize,
    /// Path as given.
    pub path: PathBuf,
    /// The operation that failed.
    pub operation: Operation,
    /// Why it failed.
    pub cause: Cause,
}

impl FileError {
    pub(crate) fn io(index: usize, path: &Path, operation: Operation, error: io::Error) -> Self {
        Self { index, path: path.to_owned(), operation, cause: Cause::Io(error) }
    }

    pub(crate) fn function(index: usize, path: &Path, error: FnError) -> Self {
        let (path, operation) = (path.to_owned(), Operation::Process);
        Self { index, path, operation, cause: Cause::Function(error) }
    }

    pub(crate) fn rejected(
        index: usize,
        path: &Path,
        operation: Operation,
        reason: impl Into<String>,
    ) -> Self {
        Self { index, path: path.to_owned(), operation, cause: Cause::Rejected(reason.into()) }
    }

    /// Returns the system's error, if a system call failed.
    pub fn io_error(&self) -> Option<&io::Error> {
        match &self.cause {
            Cause::Io(error) => Some(error),
            Cause::Function(_) | Cause::Rejected(_) => None,
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: ", self.operation, quoted(&self.path))?;
        match &self.cause {
            Cause::Io(error) => Explained::new(self.operation, error).fmt(f),
            Cause::Function(error) => error.fmt(f),
            Cause::Rejected(reason) => f.write_str(reason),
        }
    }
}

impl StdError for FileError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.cause {
            Cause::Io(error) => Some(error),
            Cause::Function(error) => Some(&**error),
            Cause::Rejected(_) => None,
        }
    }
}

/// Why a run returned no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The plan cannot run as asked on this machine or on these files.
    #[error("refused: {0}")]
    Refused(String),
    /// A file failed and the policy is to stop.
    #[error(transparent)]
    File(FileError),
    /// The run was cancelled; everything in flight was drained.
    #[error("cancelled after {files} files")]
    Cancelled {
        /// Files processed before.
        files: u64,
    },
    /// Bytes retained by the caller fill the memory budget, so nothing more can be read.
    #[error(
        "the function retains {kept} bytes of a memory budget of {budget} bytes; drop retained \
         bytes sooner, or raise .memory()"
    )]
    BudgetHeld {
        /// Bytes retained.
        kept: u64,
        /// The budget, bytes.
        budget: u64,
    },
    /// A tree could not be walked.
    #[error(transparent)]
    Walk(PathError),
    /// The trace of a run could not be written.
    #[error("cannot write the trace {}: {}", quoted(.path), Explained::new(Operation::Create, .source))]
    Trace {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A call that concerns no single file failed.
    #[error("cannot {operation}: {}", reason(.source))]
    System {
        /// What failed, as in "cannot start a thread".
        operation: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, thiserror::Error)]
    #[error("checksum {0} differs")]
    struct Own(u32);

    #[test]
    fn errors_of_the_function_can_be_downcast() {
        let error = FileError::function(3, Path::new("a b"), Own(7).into());
        assert_eq!(error.to_string(), "cannot process 'a b': checksum 7 differs");
        assert_eq!(error.source().unwrap().downcast_ref::<Own>(), Some(&Own(7)));
    }

    #[test]
    fn system_errors_keep_their_number() {
        let full = io::Error::from_raw_os_error(24);
        let error = FileError::io(0, Path::new("x"), Operation::Open, full);
        assert_eq!(
            error.to_string(),
            "cannot open 'x': Too many open files; raise the limit with 'ulimit -n'"
        );
        assert_eq!(error.io_error().unwrap().raw_os_error(), Some(24));
    }
}
