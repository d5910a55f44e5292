//! Bytes in JSON: text if they are UTF-8, otherwise base64.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path or another sequence of bytes, which JSON keeps without loss.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Form", try_from = "Form")]
pub struct Raw(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Base64 { base64: String },
}

impl Raw {
    /// Returns the bytes as a path.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl From<&Path> for Raw {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<&PathBuf> for Raw {
    fn from(path: &PathBuf) -> Self {
        path.as_path().into()
    }
}

impl From<Raw> for Form {
    fn from(raw: Raw) -> Self {
        match String::from_utf8(raw.0) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64 { base64: BASE64_STANDARD.encode(error.as_bytes()) },
        }
    }
}

impl TryFrom<Form> for Raw {
    type Error = base64::DecodeError;

    fn try_from(form: Form) -> Result<Self, Self::Error> {
        match form {
            Form::Text(text) => Ok(Self(text.into_bytes())),
            Form::Base64 { base64 } => BASE64_STANDARD.decode(base64).map(Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_json() {
        for bytes in [&b"/data/a b"[..], b"a\nb", b"\xff/\x80", b""] {
            let raw = Raw(bytes.to_vec());
            let text = serde_json::to_string(&raw).unwrap();
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(serde_json::from_str::<Raw>(&text).unwrap(), raw);
        }
    }
}
