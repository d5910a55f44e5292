//! Configuration of both sides: the server's identity, and the CAs trusted by a client.

use crate::error::{SessionError, TlsError};
use crate::session::TlsSession;
use crate::verify::Lenient;
use ioloom_failure::{Operation, PathError, quoted};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, ConfigBuilder, Connection, RootCertStore,
    ServerConfig, ServerConnection, WantsVerifier,
};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a PEM file in bytes.
const PEM_MAX: u64 = 16 << 20;

/// Usual locations of CA certificates, below the root directory.
const AUTHORITIES: [&str; 5] = [
    // Debian, Arch; Fedora, RHEL; openSUSE; Alpine, BSD.
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/cert.pem",
];

/// Environment variable that names a file of CA certificates, as for OpenSSL.
const AUTHORITIES_FILE: &str = "SSL_CERT_FILE";

const CERTIFICATE_ADVICE: &str = "specify a PEM file with the certificate of this server";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn library(error: rustls::Error) -> TlsError {
    TlsError::Library(error.to_string())
}

fn client() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider());
    builder.with_safe_default_protocol_versions().map_err(library)
}

/// Returns the file of CA certificates of the system below `root`: the one that the environment names, or
/// else the first one in the usual locations.
fn usual_authorities(root: &Path, named: Option<OsString>) -> Option<PathBuf> {
    let named = named.filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = || AUTHORITIES.iter().map(|path| root.join(path)).find(|path| path.exists());
    named.or_else(usual)
}

/// Reads the CA certificates in a file, or those of this system.
fn roots(authorities: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let usual = || usual_authorities(Path::new("/"), std::env::var_os(AUTHORITIES_FILE));
    let path = authorities.map(Path::to_owned).or_else(usual).ok_or(TlsError::NoAuthorities)?;
    let advice = "specify a PEM file with the certificate of the server's CA";
    let mut roots = RootCertStore::empty();
    let text = std::fs::read(&path);
    let (added, _) =
        roots.add_parsable_certificates(certificates("CA certificates", &path, text, advice)?);
    if added == 0 {
        let what = "CA certificates";
        let reason = "no certificate could be parsed".to_owned();
        return Err(TlsError::Invalid { what, path, reason, advice });
    }
    Ok(roots)
}

/// Returns the certificates in a PEM file with this text.
fn certificates(
    what: &'static str,
    path: &Path,
    text: io::Result<Vec<u8>>,
    advice: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let invalid = |reason| TlsError::Invalid { what, path: path.to_owned(), reason, advice };
    let text = text.map_err(|error| unreadable(path, error, advice))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|e| invalid(pem_reason(&e)))?;
    if all.is_empty() {
        return Err(invalid("no certificate found".to_owned()));
    }
    Ok(all)
}

/// Returns the reason for an invalid PEM file. The messages of the library contain the bytes of
/// markers as numbers.
fn pem_reason(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "the end of a section is missing".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "the start of a section is invalid".to_owned(),
        pem::Error::NoItemsFound => "no key found".to_owned(),
        _ => error.to_string(),
    }
}

fn invalid_certificate(path: &Path, reason: String) -> TlsError {
    let advice = CERTIFICATE_ADVICE;
    TlsError::Invalid { what: "certificate", path: path.to_owned(), reason, advice }
}

fn unreadable(path: &Path, error: io::Error, advice: &'static str) -> TlsError {
    TlsError::Read { source: PathError::new(Operation::Read, path, error), advice }
}

/// Reads a regular file. A server reads its files again while it runs, and must not wait for a
/// pipe.
fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(PEM_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PEM_MAX {
        return Err(io::Error::other("larger than 16 MiB"));
    }
    Ok(bytes)
}

/// Identity of a server: its certificate and private key.
#[derive(Clone)]
pub struct Identity {
    config: Arc<ServerConfig>,
    certificate: Arc<CertificateDer<'static>>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads two PEM files: the certificate, followed by any intermediate certificates, and the
    /// private key, which other users must not be able to access.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is invalid, or if the key does not match the certificate.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let text = read_regular(certificate);
        let chain = certificates("certificate", certificate, text, CERTIFICATE_ADVICE)?;
        let invalid = |reason: String, advice| TlsError::Invalid {
            what: "private key",
            path: key.to_owned(),
            reason,
            advice,
        };
        let advice = "specify a PEM file with the unencrypted private key of the certificate";
        let failed = PathError::on(Operation::Stat, key);
        let meta =
            std::fs::metadata(key).map_err(|e| TlsError::Read { source: failed(e), advice })?;
        // What is not a regular file is refused below: its mode is not the reason.
        if meta.is_file() && meta.permissions().mode() & 0o007 != 0 {
            return Err(TlsError::Exposed { path: key.to_owned() });
        }
        let text = read_regular(key).map_err(|error| unreadable(key, error, advice))?;
        let secret =
            PrivateKeyDer::from_pem_slice(&text).map_err(|e| invalid(pem_reason(&e), advice))?;
        let own = Arc::new(chain[0].clone());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(library)?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => invalid(
                    format!("it does not match certificate {}", quoted(certificate)),
                    "specify a certificate and the key for which it was issued",
                ),
                rustls::Error::InvalidCertificate(error) => {
                    let reason = match error {
                        CertificateError::BadEncoding => "not an X.509 certificate".to_owned(),
                        _ => error.to_string(),
                    };
                    invalid_certificate(certificate, reason)
                }
                rustls::Error::General(reason) => invalid(reason, advice),
                error => invalid(error.to_string(), advice),
            })?;
        // Sessions are never resumed, so nothing about a client is stored after its connection
        // closes.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let config = Arc::new(config);
        // Creating a connection fails only if the configuration is invalid. Fail here rather than
        // later.
        ServerConnection::new(Arc::clone(&config)).map_err(library)?;
        Ok(Self { config, certificate: own })
    }

    /// Returns why clients reject the certificate at this time: it has expired, or it is not valid yet.
    pub fn outdated(&self) -> Option<&'static str> {
        let parsed = ParsedCertificate::try_from(&*self.certificate).ok()?;
        // The period of validity is verified before the issuer, so no CA is needed.
        let verified = verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &RootCertStore::empty(),
            &[],
            UnixTime::now(),
            provider().signature_verification_algorithms.all,
        );
        match verified {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => Some("has expired"),
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            )) => Some("is not valid yet"),
            _ => None,
        }
    }

    /// Creates the server side of a new connection.
    pub fn session(&self) -> TlsSession {
        let connection = ServerConnection::new(Arc::clone(&self.config));
        TlsSession::new(Connection::Server(
            connection.expect("creating a connection succeeded earlier"),
        ))
    }
}

/// The CAs trusted by a client, and the expected server name.
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
    /// Trusts the CA certificates in the file `authorities`, or those of this system, to identify
    /// `name`, a DNS name or an IP address. A self-signed certificate can be specified directly. The
    /// certificates of this system are those in the file that the environment variable `SSL_CERT_FILE`
    /// names, or in the usual locations.
    ///
    /// # Errors
    /// Fails if the file cannot be read or contains no certificate, or if the name is invalid.
    pub fn new(authorities: Option<&Path>, name: &str) -> Result<Self, TlsError> {
        let roots = roots(authorities)?;
        let config = client()?.with_root_certificates(roots).with_no_client_auth();
        Self::with(config, name)
    }

    /// Like [`new`](Self::new), but accepts a certificate for any name: every owner of a
    /// certificate of one of these CAs can impersonate the server.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn of_any_name(authorities: Option<&Path>, name: &str) -> Result<Self, TlsError> {
        let verifier = Lenient::chain(roots(authorities)?, provider())?;
        Self::lenient(verifier, name)
    }

    /// Accepts every certificate: the connection is encrypted, but anyone on the network path can
    /// impersonate the server.
    ///
    /// # Errors
    /// Fails if the name is invalid.
    pub fn unverified(name: &str) -> Result<Self, TlsError> {
        Self::lenient(Lenient::nothing(provider()), name)
    }

    fn lenient(verifier: Lenient, name: &str) -> Result<Self, TlsError> {
        let config = client()?.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        Self::with(config.with_no_client_auth(), name)
    }

    fn with(mut config: ClientConfig, name: &str) -> Result<Self, TlsError> {
        config.resumption = rustls::client::Resumption::disabled();
        let server = ServerName::try_from(name.to_owned());
        let server = server.map_err(|_| TlsError::Name(name.to_owned()))?;
        Ok(Self { config: Arc::new(config), name: server })
    }

    /// Creates the client side of a new connection.
    ///
    /// # Errors
    /// Fails if the system provides no random numbers.
    pub fn session(&self) -> Result<TlsSession, SessionError> {
        let made = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        made.map(|made| TlsSession::new(Connection::Client(made)))
            .map_err(|e| SessionError(format!("cannot begin the handshake: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_devices_are_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe.as_path(), Path::new("/dev/zero"), dir.path()] {
            let error = Identity::read(path, path).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }

    #[test]
    fn certificates_of_the_system_are_found_in_all_usual_locations() {
        let root = tempfile::tempdir().unwrap();
        let of = |named: Option<&str>| usual_authorities(root.path(), named.map(OsString::from));
        assert_eq!((of(None), of(Some(""))), (None, None));
        for name in AUTHORITIES.iter().rev() {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            assert_eq!((of(None), of(Some(""))), (Some(path.clone()), Some(path)));
        }
        assert_eq!(of(Some("/own/ca.pem")), Some(PathBuf::from("/own/ca.pem")));
    }
}
