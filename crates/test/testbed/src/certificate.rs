//! A self-signed certificate for TLS tests, for 127.0.0.1 and localhost.
//!
//! Its key is public, so it proves nothing. The files are checked in rather than generated: they
//! are valid until 2126, and a generator such as rcgen would make `xtask`, which depends on this
//! crate, compile a cryptography library.
//!
//! ```text
//! openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 \
//!   -keyout key.pem -out certificate.pem -subj /CN=localhost \
//!   -addext subjectAltName=IP:127.0.0.1,DNS:localhost \
//!   -addext basicConstraints=critical,CA:FALSE
//! ```
//!
//! The expired certificate was issued for the same key with `openssl ca -selfsign -enddate`.

use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Files of a certificate.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The self-signed certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Another certificate for the same names.
    pub other_certificate: PathBuf,
    /// Its private key.
    pub other_key: PathBuf,
    /// A certificate for the key of the first one that expired in 2020.
    pub expired_certificate: PathBuf,
}

impl Certificate {
    /// Writes the files into a directory; the keys are readable by their owner only.
    pub fn in_dir(dir: &Path) -> Self {
        let put = |name: &str, text: &str| {
            let path = dir.join(name);
            write(&path, text).expect("a file is written");
            set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
            path
        };
        Self {
            certificate: put("certificate.pem", include_str!("certificate/certificate.pem")),
            key: put("key.pem", include_str!("certificate/key.pem")),
            other_certificate: put(
                "other-certificate.pem",
                include_str!("certificate/other-certificate.pem"),
            ),
            other_key: put("other-key.pem", include_str!("certificate/other-key.pem")),
            expired_certificate: put(
                "expired-certificate.pem",
                include_str!("certificate/expired-certificate.pem"),
            ),
        }
    }
}
