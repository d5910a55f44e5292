//! Errors that stop the whole server. An error on one connection closes that connection and is
//! counted.

use crate::store::StoreError;
use ioloom_exchange::BadStockFile;
use ioloom_failure::{Operation, PathError, advice, quoted, reason};
use ioloom_tls::TlsError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;

/// Why a server did not start, or stopped on its own.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address is in use.
    #[error(
        "cannot listen on {address}: Address already in use; choose another port with {flag}, or \
         stop the other program"
    )]
    PortTaken {
        /// The address.
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// Listening failed for another reason.
    #[error("cannot listen on {address}: {}{}", reason(source), listen_advice(flag, source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// The stock file cannot be read.
    #[error("{0}; specify the stock file with --stock")]
    ReadStock(#[source] PathError),
    /// The stock file is invalid.
    #[error("invalid stock file {}: {source}", quoted(path))]
    BadStock {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: BadStockFile,
    },
    /// The stock file cannot be written.
    #[error(
        "{0}; with a store, no orders are lost; without one, the orders since the last write of \
         this file are lost"
    )]
    WriteStock(#[source] PathError),
    /// Another server writes the stock file.
    #[error(
        "cannot use stock file {}: {holder}; stop that server, or specify another stock file with \
         --stock",
        quoted(path)
    )]
    StockInUse {
        /// The file.
        path: PathBuf,
        /// Who has locked it.
        holder: String,
    },
    /// The options conflict or are not supported.
    #[error("{0}")]
    Refused(String),
    /// The certificate or its private key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store failed. All acknowledged orders are in the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database failed. All acknowledged orders are in the database.
    #[error("cannot {operation} database {database}: {reason}; {advice}")]
    Database {
        /// What failed.
        operation: DatabaseOperation,
        /// Location and name of the database, without the password.
        database: String,
        /// The reason.
        reason: String,
        /// What the user can do.
        advice: &'static str,
    },
    /// A system call that the model requires has failed.
    #[error("cannot {operation}: {}", reason(source))]
    System {
        /// What failed.
        operation: SystemOperation,
        /// The system error.
        source: io::Error,
    },
}

impl ServeError {
    /// Returns a closure for `map_err`.
    pub(crate) fn system(operation: SystemOperation) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { operation, source }
    }
}

/// A database operation. Displays as the verb phrase of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseOperation {
    /// Connecting.
    Connect,
    /// Reading or creating its tables.
    Open,
    /// Listing the stocks for the stock file.
    List,
}

impl fmt::Display for DatabaseOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect to",
            Self::Open => "open",
            Self::List => "list the stocks of",
        })
    }
}

/// A system call without a path. Displays as the verb phrase of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemOperation {
    /// Creating an event descriptor.
    CreateWaker,
    /// Creating an epoll set.
    CreateEpoll,
    /// Creating an io_uring.
    CreateRing,
    /// Starting a thread.
    StartThread,
    /// Starting an asynchronous runtime.
    StartRuntime,
    /// Reading the address of a listener.
    GetAddress,
    /// Preparing a listener for its model.
    PrepareListener,
    /// Keeping a lock for the next program.
    KeepLock,
    /// Waiting for connections, requests or completions.
    Wait,
}

impl fmt::Display for SystemOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateWaker => "create an event descriptor",
            Self::CreateEpoll => "create an epoll set",
            Self::CreateRing => "create an io_uring",
            Self::StartThread => "start a thread",
            Self::StartRuntime => "start the asynchronous runtime",
            Self::GetAddress => "read the address of a listener",
            Self::PrepareListener => "prepare a listener",
            Self::KeepLock => "keep the lock for the next program",
            Self::Wait => "wait for events",
        })
    }
}

/// Returns what the user can do about a failure to listen, after a semicolon.
fn listen_advice(flag: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            format!("; choose an address of this machine with {flag}")
        }
        io::ErrorKind::PermissionDenied => format!("; choose another port with {flag}"),
        _ => {
            advice(Operation::Open, error).map_or_else(String::new, |advice| format!("; {advice}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_address_is_advised_only_if_it_can_help() {
        let text = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            let address = SocketAddr::from(([127, 0, 0, 1], 1));
            ServeError::Listen { address, flag: "--listen-line", source }.to_string()
        };
        assert!(text(99).ends_with("; choose an address of this machine with --listen-line"));
        assert!(text(24).ends_with("Too many open files; raise the limit with 'ulimit -n'"));
    }
}
