//! What can go wrong with a server as a whole. What goes wrong with one connection ends that
//! connection and is counted, nothing more.

use crate::store::StoreError;
use ioloom_exchange::BadStockFile;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;

/// Why a server did not start, or stopped by itself.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address is in use.
    #[error(
        "listen on {0}: the port is taken by another program; choose another with --listen, or stop that program"
    )]
    PortTaken(SocketAddr),
    /// The address cannot be listened on for another reason.
    #[error("listen on {address}: {reason}; choose an address of this machine with --listen")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        reason: io::Error,
    },
    /// The stock file cannot be read.
    #[error("read the stock file {}: {reason}; name an existing one with --stock", path.display())]
    ReadStock {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
    /// The stock file has the wrong form.
    #[error("the stock file {}: {reason}", path.display())]
    BadStock {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: BadStockFile,
    },
    /// The stock file cannot be written.
    #[error("write the stock file {}: {reason}; the orders are safe in the store, if there is one: make room or correct the rights, and start again", path.display())]
    WriteStock {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
    /// What was asked for does not go together.
    #[error("{0}")]
    Refused(String),
    /// The store failed. Nothing was acknowledged that it does not hold.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database failed. Nothing was acknowledged that it does not hold.
    #[error("{operation} the database {place}: {reason}; {advice}")]
    Database {
        /// What was tried.
        operation: &'static str,
        /// Which, without a password.
        place: String,
        /// Why not.
        reason: String,
        /// What to do.
        advice: &'static str,
    },
    /// The system refused something that every server of this model needs.
    #[error("{operation}: {reason}; the server cannot go on")]
    System {
        /// What was tried.
        operation: &'static str,
        /// Why not.
        reason: io::Error,
    },
}

impl ServeError {
    /// Turns an error of the system into one of ours.
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::System { operation, reason }
    }
}
