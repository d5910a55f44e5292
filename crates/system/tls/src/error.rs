//! What can go wrong before there is a connection, and with one connection.

use std::path::PathBuf;
use thiserror::Error;

/// Why a side cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or does not hold what it should.
    #[error("read the {what} {}: {reason}; {advice}", path.display())]
    File {
        /// What it should hold.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: String,
        /// What to do.
        advice: &'static str,
    },
    /// No certificates of authorities are known.
    #[error(
        "this system has no file with certificates of authorities where they usually are; name one \
         that the certificate of the server is signed by, or that certificate itself"
    )]
    NoAuthorities,
    /// The name is none that a certificate could have.
    #[error("{0:?} is neither a name nor an address that a certificate could have")]
    Name(String),
    /// The library refuses to work as asked for.
    #[error("prepare TLS: {0}")]
    Library(String),
    /// The program was built without it.
    #[error("this program was built without TLS; build it with the feature tls")]
    Without,
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SessionError(pub(crate) String);
