//! Errors of the store.

use ioloom_failure::{Operation, quoted, reason};
use std::io;
use std::path::{Path, PathBuf};

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file operation failed.
    #[error("cannot {operation} {}: {}; {advice}", quoted(.path), reason(.source))]
    Io {
        /// The operation that failed.
        operation: Operation,
        /// The path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// A complete line is invalid.
    #[error("{}, line {line}: {reason}; another program has changed the file", quoted(.path))]
    Line {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// Written by a newer program.
    #[error(
        "{}: written in format version {found}, but this program supports only versions up to \
        {known}; use a newer ioloom",
        quoted(.path)
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Version found.
        found: u32,
        /// Newest supported version.
        known: u32,
    },
    /// A part of an exported session is missing.
    #[error(
        "{}: part {part} of session '{session}' is missing; copy all of its files, or export it again",
        quoted(.path)
    )]
    NoPart {
        /// The next file of the session.
        path: PathBuf,
        /// The session.
        session: String,
        /// Number of the missing part, from 0.
        part: u32,
    },
    /// An export would replace another session.
    #[error(
        "cannot replace {}: it contains another session of the same name, or cannot be read; remove it or \
         choose another directory",
        quoted(.path)
    )]
    Taken {
        /// Which file.
        path: PathBuf,
    },
    /// A session has the name of another one, which is read.
    #[error("skipped {}: it contains another session of the same name as {}", quoted(.path), quoted(.kept))]
    SameName {
        /// Which file.
        path: PathBuf,
        /// File of the session that is read.
        kept: PathBuf,
    },
    /// Another process is writing to this session.
    #[error("{}: another process is running this session; wait for it or stop it", quoted(.path))]
    Busy {
        /// Which file.
        path: PathBuf,
    },
    /// No such session.
    #[error("no session '{session}' in {}; `ioloom results list` lists them", quoted(.dir))]
    NoSession {
        /// The requested name.
        session: String,
        /// The store.
        dir: PathBuf,
    },
}

impl StoreError {
    /// Returns the file or directory that caused the error.
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::Line { path, .. }
            | Self::Newer { path, .. }
            | Self::NoPart { path, .. }
            | Self::SameName { path, .. }
            | Self::Busy { path }
            | Self::Taken { path }
            | Self::NoSession { dir: path, .. } => path,
        }
    }
}
