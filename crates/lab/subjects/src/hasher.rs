//! The hashes that a file can be given, behind one interface. Each uses the instructions of the
//! processor for it, detected at run time: SHA-NI, SSE 4.2 for CRC-32C, AVX2 and AVX-512 for BLAKE3.

use ioloom_model::Hash;
use md5::Digest;
use std::fmt::Write;
use xxhash_rust::xxh64::Xxh64;

/// A hash of bytes that arrive in pieces.
pub(crate) enum Hasher {
    Xxh64(Box<Xxh64>),
    Crc32c(u32),
    Md5(Box<md5::Md5>),
    Sha1(Box<sha1::Sha1>),
    Sha256(Box<sha2::Sha256>),
    Sha512(Box<sha2::Sha512>),
    Blake2b(Box<blake2::Blake2b512>),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    /// Returns a hasher, or `None` for XXH3-64, which every run computes in any case.
    pub(crate) fn new(hash: Hash) -> Option<Self> {
        Some(match hash {
            Hash::Xxh3 => return None,
            Hash::Xxh64 => Self::Xxh64(Box::new(Xxh64::new(0))),
            Hash::Crc32c => Self::Crc32c(0),
            Hash::Md5 => Self::Md5(Box::default()),
            Hash::Sha1 => Self::Sha1(Box::default()),
            Hash::Sha256 => Self::Sha256(Box::default()),
            Hash::Sha512 => Self::Sha512(Box::default()),
            Hash::Blake2b => Self::Blake2b(Box::default()),
            Hash::Blake3 => Self::Blake3(Box::default()),
        })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Xxh64(hasher) => hasher.update(bytes),
            Self::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, bytes),
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
            Self::Blake2b(hasher) => hasher.update(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    /// Returns the hash in lower-case hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        match self {
            Self::Xxh64(hasher) => format!("{:016x}", hasher.digest()),
            Self::Crc32c(sum) => format!("{sum:08x}"),
            Self::Md5(hasher) => hex(&hasher.finalize()),
            Self::Sha1(hasher) => hex(&hasher.finalize()),
            Self::Sha256(hasher) => hex(&hasher.finalize()),
            Self::Sha512(hasher) => hex(&hasher.finalize()),
            Self::Blake2b(hasher) => hex(&hasher.finalize()),
            Self::Blake3(hasher) => hasher.finalize().to_hex().to_string(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
