//! Why a load could not be run.

use std::io;
use std::net::SocketAddr;
use thiserror::Error;

/// Why a load could not be run, or was broken off.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The plan cannot be.
    #[error("{0}")]
    Plan(String),
    /// The machine does not allow it.
    #[error("{0}")]
    Refused(String),
    /// Nobody answers there.
    #[error(
        "connect to {target}: {reason}; start a server there (ioloom serve), or name another address"
    )]
    Connect {
        /// The server.
        target: SocketAddr,
        /// What the system said.
        reason: io::Error,
    },
    /// The list of stocks cannot be had.
    #[error("ask {target} for its stocks: {reason}; choose the --protocol that the server speaks")]
    List {
        /// The server.
        target: SocketAddr,
        /// What was wrong.
        reason: String,
    },
    /// The server has no room now.
    #[error("ask {target} for its stocks: it has no room (BUSY); wait until others have left")]
    Full {
        /// The server.
        target: SocketAddr,
    },
    /// The server has gone.
    #[error(
        "{target} has gone: {failures} connections in a row failed, the last one with: {reason}"
    )]
    Gone {
        /// The server.
        target: SocketAddr,
        /// How many.
        failures: u32,
        /// What the last one said.
        reason: String,
    },
    /// A call of the system failed.
    #[error("{operation}: {reason}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        reason: io::Error,
    },
    /// A file of ours could not be read or written.
    #[error("{operation} {path}: {reason}")]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: String,
        /// What was wrong.
        reason: String,
    },
}

impl LoadError {
    pub(crate) fn system(operation: &'static str) -> impl Fn(io::Error) -> Self {
        move |reason| Self::System { operation, reason }
    }
}
