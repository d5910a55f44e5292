//! Certificate, key and session errors.

use ioloom_failure::{PathError, quoted};
use std::path::PathBuf;
use thiserror::Error;

/// Why one side of a TLS connection cannot be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{source}; {advice}")]
    Read {
        /// The failed call.
        source: PathError,
        /// Advice for the user.
        advice: &'static str,
    },
    /// A file has the wrong contents.
    #[error("invalid {what} {}: {reason}; {advice}", quoted(path))]
    Invalid {
        /// Expected contents of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// Advice for the user.
        advice: &'static str,
    },
    /// The private key can be accessed by users outside its group.
    #[error(
        "invalid private key {}: other users can access it; run 'chmod 600' on it",
        quoted(path)
    )]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The system has no known file of CA certificates.
    #[error(
        "no CA certificates found in the usual locations, and SSL_CERT_FILE is not set; specify a \
        PEM file with the certificate of the server or of its CA"
    )]
    NoAuthorities,
    /// The name cannot appear in a certificate.
    #[error("invalid server name {0:?}: must be a DNS name or an IP address")]
    Name(String),
    /// The TLS library rejected the configuration.
    #[error("cannot set up TLS: {0}")]
    Library(String),
    /// The program was built without TLS.
    #[error("this build does not support TLS; rebuild with the feature 'tls'")]
    Without,
}

/// Why a session cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SessionError(pub(crate) String);

/// Reason of an error of a peer without TLS.
pub(crate) const NOT_TLS: &str = "the peer did not send TLS";

impl SessionError {
    /// Returns true if the peer does not use TLS.
    pub fn is_without_tls(&self) -> bool {
        self.0 == NOT_TLS
    }

    /// Returns true if the certificate of the peer is not valid, trusted, or for its name.
    pub fn is_of_certificate(&self) -> bool {
        self.0.contains("invalid peer certificate")
    }
}

#[cfg(all(test, feature = "rustls"))]
mod tests {
    use super::*;
    use rustls::{CertificateError, Error};

    #[test]
    fn errors_of_certificates_are_recognised() {
        let error = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let error = SessionError(format!("the handshake failed: {error}"));
        assert!(error.is_of_certificate() && !error.is_without_tls());
        assert!(SessionError(NOT_TLS.to_owned()).is_without_tls());
    }
}
