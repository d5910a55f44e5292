//! Errors of a load.

use ioloom_failure::{PathError, quoted, reason};
use ioloom_tls::SessionError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;

/// Why a load could not run.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The plan is invalid.
    #[error("{0}")]
    Plan(String),
    /// The system does not permit it.
    #[error("{0}")]
    Refused(String),
    /// The null server cannot listen.
    #[error("cannot listen on {address}: {}", reason(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system error.
        source: io::Error,
    },
    /// No server is listening at the address.
    #[error(
        "cannot connect to {target}: {}; start a server there (ioloom serve), or specify another \
         address",
        reason(source)
    )]
    Connect {
        /// The server.
        target: SocketAddr,
        /// The system error.
        source: io::Error,
    },
    /// The stocks cannot be listed.
    #[error(
        "cannot list the stocks on {target}: {reason}; choose the --protocol that the server speaks"
    )]
    List {
        /// The server.
        target: SocketAddr,
        /// What went wrong.
        reason: String,
    },
    /// The TLS session with the server failed.
    #[error("cannot use TLS with {target}: {source}{}", tls_advice(source))]
    Tls {
        /// The server.
        target: SocketAddr,
        /// What went wrong.
        source: SessionError,
    },
    /// A command that prepares the load failed.
    #[error("cannot prepare {target}: {reason}; check the commands file")]
    Prepare {
        /// The server.
        target: SocketAddr,
        /// What went wrong.
        reason: String,
    },
    /// The server is at its connection limit, or does not use TLS.
    #[error("cannot list the stocks on {target}: {}", full(*is_handshaking))]
    Full {
        /// The server.
        target: SocketAddr,
        /// Whether it closed the connection during the TLS handshake, without a reason.
        is_handshaking: bool,
    },
    /// A stop request ended the wait for an answer.
    #[error("interrupted while waiting for {target}")]
    Interrupted {
        /// The server.
        target: SocketAddr,
    },
    /// A system call failed.
    #[error("cannot {operation}: {}", reason(source))]
    System {
        /// What failed.
        operation: SystemOperation,
        /// The system error.
        source: io::Error,
    },
    /// A history cannot be read or written.
    #[error(transparent)]
    File(#[from] PathError),
    /// A history is malformed.
    #[error("invalid history {}, line {line}: {reason}", quoted(path))]
    History {
        /// The file.
        path: PathBuf,
        /// Line number, starting at 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
}

const fn full(is_handshaking: bool) -> &'static str {
    if is_handshaking {
        "the server closed the connection during the TLS handshake; omit --tls if it does not use \
         TLS, or retry when it has fewer clients"
    } else {
        "the server is busy; retry when it has fewer clients"
    }
}

fn tls_advice(error: &SessionError) -> &'static str {
    if error.is_without_tls() {
        "; omit --tls"
    } else if error.is_of_certificate() {
        "; check the certificate of the server, --tls-ca and --tls-name"
    } else {
        ""
    }
}

impl LoadError {
    /// Returns the error of a TLS session with the server, if this is one.
    pub(crate) fn of_tls(target: SocketAddr, error: &io::Error) -> Option<Self> {
        let source = error.get_ref()?.downcast_ref::<SessionError>()?.clone();
        Some(Self::Tls { target, source })
    }

    /// Returns a closure for `map_err`.
    pub(crate) fn system(operation: SystemOperation) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { operation, source }
    }
}

/// A system call without a path. Displays as the verb phrase of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemOperation {
    /// Reading the address of a listener.
    GetAddress,
    /// Reading the set of CPUs that this process may use.
    GetCpus,
    /// Pinning a thread to its CPU.
    PinThread,
    /// Starting a thread.
    StartThread,
    /// Creating an epoll set.
    CreateEpoll,
    /// Waiting for requests or answers.
    Wait,
}

impl fmt::Display for SystemOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GetAddress => "read the address of a listener",
            Self::GetCpus => "read the CPUs that this process may use",
            Self::PinThread => "pin a thread to its CPU",
            Self::StartThread => "start a thread",
            Self::CreateEpoll => "create an epoll set",
            Self::Wait => "wait for events",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_errors_are_not_of_tls() {
        let target = SocketAddr::from(([127, 0, 0, 1], 1));
        for error in [io::Error::other("x"), io::ErrorKind::WouldBlock.into()] {
            assert!(LoadError::of_tls(target, &error).is_none(), "{error}");
        }
    }
}
