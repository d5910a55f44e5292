//! What the store could not do.

use ioloom_failure::{Operation, quoted, reason};
use std::io;
use std::path::PathBuf;

/// What the store could not do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A call failed.
    #[error("cannot {operation} {}: {}; {remedy}", quoted(.path), reason(.source))]
    Io {
        /// What was tried.
        operation: Operation,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A complete line that is no line of a store.
    #[error("{}, line {line}: {reason}; the file was changed by something else", quoted(.path))]
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
        "{}: written in version {found} of the format, this program reads up to {known}; use a \
         newer ioloom",
        quoted(.path)
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Version found.
        found: u32,
        /// Newest version that is understood.
        known: u32,
    },
    /// Another process writes this session.
    #[error("{}: another process is running this session; wait for it or stop it", quoted(.path))]
    Busy {
        /// Which file.
        path: PathBuf,
    },
    /// No such session.
    #[error("no session '{session}' in {}; `ioloom results` lists them", quoted(.dir))]
    NoSession {
        /// The name asked for.
        session: String,
        /// The store.
        dir: PathBuf,
    },
}
