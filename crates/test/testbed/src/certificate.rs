//! A certificate for tests of TLS: of nobody, for 127.0.0.1 and localhost, signed by itself.
//!
//! Everybody can read its key here, so it proves nothing and is good for nothing else. Both files were
//! made once, and it is valid for a hundred years:
//!
//! ```text
//! openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 \
//!   -keyout key.pem -out certificate.pem -subj /CN=localhost \
//!   -addext subjectAltName=IP:127.0.0.1,DNS:localhost \
//!   -addext basicConstraints=critical,CA:FALSE
//! ```

use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The files of a certificate.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate, which is its own authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// A key of another one.
    pub other_key: PathBuf,
}

impl Certificate {
    /// Writes the files into a directory; the keys for their owner alone.
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
            other_key: put("other-key.pem", include_str!("certificate/other-key.pem")),
        }
    }
}
