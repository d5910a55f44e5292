//! Errors of a run and of a file.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the user's function: any error converts with `?`.
pub type FnError = Box<dyn std::error::Error + Send + Sync>;

/// What was being done when a file failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Asking what the path is.
    Stat,
    /// Opening.
    Open,
    /// Reading.
    Read,
    /// Mapping.
    Map,
    /// Reserving memory.
    Reserve,
    /// The user's function.
    Function,
}

impl Operation {
    /// The word for messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Open => "open",
            Self::Read => "read",
            Self::Map => "map",
            Self::Reserve => "reserve memory for",
            Self::Function => "process",
        }
    }
}

/// A file that failed: operation, path and reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot {} {}: {reason}", .operation.word(), .path.display())]
#[non_exhaustive]
pub struct FileError {
    /// Position of the file in the input.
    pub index: usize,
    /// Path as given.
    pub path: PathBuf,
    /// What was being done.
    pub operation: Operation,
    /// The number of the system's error, if it was one.
    pub errno: Option<i32>,
    /// The reason in words, with what to do where something can be done.
    pub reason: String,
}

impl FileError {
    pub(crate) fn io(index: usize, path: &Path, operation: Operation, error: &io::Error) -> Self {
        let advice = match error.raw_os_error() {
            Some(EACCES) => "; run as a user that may read it",
            Some(EMFILE | ENFILE) => {
                "; raise the limit of open files (ulimit -n) or use a smaller window"
            }
            Some(ELOOP) => "; it became a symbolic link after it was listed",
            _ => "",
        };
        Self {
            index,
            path: path.to_owned(),
            operation,
            errno: error.raw_os_error(),
            reason: format!("{}{advice}", in_words(error)),
        }
    }

    pub(crate) fn other(
        index: usize,
        path: &Path,
        operation: Operation,
        reason: impl Into<String>,
    ) -> Self {
        Self { index, path: path.to_owned(), operation, errno: None, reason: reason.into() }
    }
}

const EACCES: i32 = 13;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ELOOP: i32 = 40;

/// The system's words without the number that the standard library appends.
pub(crate) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// Why a run did not give a result.
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
        /// Files computed before.
        files: u64,
    },
    /// Bytes kept by the caller fill the memory budget, so that nothing more can be read.
    #[error(
        "the function keeps {kept} bytes of a budget of {budget}: drop what it keeps, or raise \
         .memory()"
    )]
    BudgetHeld {
        /// Bytes kept.
        kept: u64,
        /// The budget, bytes.
        budget: u64,
    },
    /// A tree could not be walked.
    #[error("{0}")]
    Walk(String),
    /// The trace of a run cannot be kept.
    #[error("cannot write the trace {}: {reason}; name a file in a directory that you may write to", .path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The system failed in a way that no single file explains.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was being done.
        operation: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}
