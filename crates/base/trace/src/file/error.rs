//! Trace file errors.

use super::format::{MAGIC, VERSION};

/// Error when reading a trace file. The caller adds the path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The file does not begin with the magic bytes of a trace.
    #[error("not a trace file (it does not begin with {:?}); use a file written by 'ioloom each --trace', 'ioloom watch -o' or IOLOOM_TRACE", String::from_utf8_lossy(&MAGIC))]
    NotATrace,
    /// The file has a different format version.
    #[error(
        "unsupported trace file version {found} (supported: {VERSION}); use the program that wrote the file"
    )]
    Version {
        /// Version in the file.
        found: u32,
    },
    /// The file is truncated.
    #[error(
        "the trace file is truncated in section {section}; copy it again or record a new trace"
    )]
    CutOff {
        /// Section in which the file ends.
        section: String,
    },
    /// The file contains invalid data.
    #[error(
        "section {section} of the trace file is damaged: {reason}; copy it again or record a new trace"
    )]
    Damaged {
        /// The damaged section.
        section: String,
        /// The problem.
        reason: String,
    },
}

impl FileError {
    pub(super) fn damaged(section: &str, reason: impl Into<String>) -> Self {
        Self::Damaged { section: section.to_owned(), reason: reason.into() }
    }
}
