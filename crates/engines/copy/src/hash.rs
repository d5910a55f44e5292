//! Hashes file contents in order.

use crate::options::HashKind;
use md5::Digest;

/// A hash computation in progress.
pub(crate) enum Hasher {
    Blake3(Box<blake3::Hasher>),
    Md5(md5::Md5),
}

impl Hasher {
    pub(crate) fn new(kind: HashKind) -> Self {
        match kind {
            HashKind::Blake3 => Self::Blake3(Box::default()),
            HashKind::Md5 => Self::Md5(md5::Md5::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Md5(hasher) => hasher.update(bytes),
        }
    }

    /// Hashes the zeros of a hole.
    pub(crate) fn zeros(&mut self, mut bytes: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while bytes > 0 {
            let now = bytes.min(ZEROS.len() as u64);
            self.update(&ZEROS[..now as usize]);
            bytes -= now;
        }
    }

    /// Returns the hash in hexadecimal.
    pub(crate) fn finish(self) -> String {
        match self {
            Self::Blake3(hasher) => hasher.finalize().to_hex().to_string(),
            Self::Md5(hasher) => {
                hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }
    }
}
