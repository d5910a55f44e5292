//! What the two sides need before there is a connection: who one is, and whom one trusts.

use crate::error::{SessionError, TlsError};
use crate::session::TlsSession;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Where systems keep the certificates of authorities.
const AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn library(error: rustls::Error) -> TlsError {
    TlsError::Library(error.to_string())
}

/// The certificates in a file.
fn certificates(
    what: &'static str,
    path: &Path,
    advice: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fail = |reason: String| TlsError::File { what, path: path.to_owned(), reason, advice };
    let text = std::fs::read(path).map_err(|e| fail(e.to_string()))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|e| fail(e.to_string()))?;
    if all.is_empty() {
        return Err(fail("it holds no certificate".to_owned()));
    }
    Ok(all)
}

/// Who a server is: a certificate, and the key that belongs to it.
#[derive(Clone)]
pub struct Identity(Arc<ServerConfig>);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads the two files, both PEM: the certificate with those between it and its authority behind
    /// it, and the key, which not everybody may read.
    ///
    /// # Errors
    /// A file cannot be read, does not hold what it should, or the two do not belong together.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let advice = "name a file in PEM with the certificate of this server";
        let chain = certificates("certificate", certificate, advice)?;
        let fail = |reason: String, advice| TlsError::File {
            what: "key",
            path: key.to_owned(),
            reason,
            advice,
        };
        let named = "name a file in PEM with the key of the certificate, without a password";
        let meta = std::fs::metadata(key).map_err(|e| fail(e.to_string(), named))?;
        if meta.permissions().mode() & 0o007 != 0 {
            return Err(fail("everybody may read or change it".to_owned(), "chmod 600 it"));
        }
        let text = std::fs::read(key).map_err(|e| fail(e.to_string(), named))?;
        let secret =
            PrivateKeyDer::from_pem_slice(&text).map_err(|e| fail(e.to_string(), named))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(library)?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|e| {
                fail(
                    format!("it does not fit the certificate {}: {e}", certificate.display()),
                    "name the two that were made together",
                )
            })?;
        // Nobody is remembered, so nothing of a client is kept when its connection ends.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let config = Arc::new(config);
        // It fails by its configuration alone: here, and then never again.
        ServerConnection::new(Arc::clone(&config)).map_err(library)?;
        Ok(Self(config))
    }

    /// The server's side of a new connection.
    pub fn session(&self) -> TlsSession {
        let connection = ServerConnection::new(Arc::clone(&self.0));
        TlsSession::new(Connection::Server(connection.expect("it was made once with the same")))
    }
}

/// Whom a client trusts, and whom it wants to meet.
#[derive(Clone)]
pub struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

impl Trust {
    /// Trusts the authorities whose certificates are in `authorities`, or those of this system, to tell
    /// who is `name`: a name or an address. A certificate that is its own authority may be named
    /// itself.
    ///
    /// # Errors
    /// There is no such file, it holds no certificate, or the name cannot be one.
    pub fn new(authorities: Option<&Path>, name: &str) -> Result<Self, TlsError> {
        let usual = || AUTHORITIES.map(Path::new).into_iter().find(|path| path.exists());
        let path = authorities.or_else(usual).ok_or(TlsError::NoAuthorities)?;
        let advice = "name a file in PEM with the certificate of the server's authority";
        let mut roots = RootCertStore::empty();
        let (added, _) =
            roots.add_parsable_certificates(certificates("authorities", path, advice)?);
        if added == 0 {
            let (what, path) = ("authorities", path.to_owned());
            let reason = "it holds no certificate that can be read".to_owned();
            return Err(TlsError::File { what, path, reason, advice });
        }
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(library)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        let server = ServerName::try_from(name.to_owned());
        let server = server.map_err(|_| TlsError::Name(name.to_owned()))?;
        Ok(Self { config: Arc::new(config), name: server })
    }

    /// The client's side of a new connection.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn session(&self) -> Result<TlsSession, SessionError> {
        let made = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        made.map(|made| TlsSession::new(Connection::Client(made)))
            .map_err(|e| SessionError(format!("begin a handshake: {e}")))
    }
}
