//! Work on file data.

use crate::{Distribution, ParseError, serialize_as_text};
use std::fmt;
use std::str::FromStr;

/// Work on the data of a file. Every kind processes all bytes, either itself or with an additional
/// XXH3-64 hash, which proves that the run read them.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Compute {
    /// Only the hash that proves the data was read.
    #[default]
    None,
    /// Reads one byte per 4 KiB page in order and records the time of each access.
    Touch,
    /// A repeated sum of bytes. Source study 000 uses it with 50 repetitions for mmap.
    Checksum {
        /// Repetitions.
        times: u32,
    },
    /// A hash of all bytes.
    Hash(Hash),
    /// Busy for a random time; `None` uses the distribution of the file set.
    Spin(Option<Distribution>),
    /// Asleep for a random time, which simulates having enough cores.
    Sleep(Option<Distribution>),
}

/// A hash function or checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// XXH3-64, as `xxhsum -H3` computes it.
    Xxh3,
    /// XXH64, as `xxhsum` computes it.
    Xxh64,
    /// CRC-32C (Castagnoli), as iSCSI and ext4 use it.
    Crc32c,
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// BLAKE2b-512, as `b2sum` computes it.
    Blake2b,
    /// BLAKE3-256, as `b3sum` computes it.
    Blake3,
}

impl Hash {
    /// All hashes, fast ones first.
    pub const ALL: [Self; 9] = [
        Self::Xxh3,
        Self::Xxh64,
        Self::Crc32c,
        Self::Blake3,
        Self::Sha256,
        Self::Sha1,
        Self::Sha512,
        Self::Blake2b,
        Self::Md5,
    ];

    /// Returns the name in plans and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xxh3 => "xxh3",
            Self::Xxh64 => "xxh64",
            Self::Crc32c => "crc32c",
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
            Self::Blake2b => "blake2b",
            Self::Blake3 => "blake3",
        }
    }

    /// Returns the name in tagged lines `NAME (PATH) = HEX`, as the program of that hash prints it.
    pub fn tag(self) -> &'static str {
        match self {
            Self::Xxh3 => "XXH3",
            Self::Xxh64 => "XXH64",
            Self::Crc32c => "CRC32C",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
            Self::Blake2b => "BLAKE2b",
            Self::Blake3 => "BLAKE3",
        }
    }

    /// Reports whether reading usually costs more than this hash: several bytes per nanosecond.
    pub fn is_light(self) -> bool {
        matches!(self, Self::Xxh3 | Self::Xxh64 | Self::Crc32c)
    }

    /// Returns the number of hexadecimal digits.
    pub fn digits(self) -> usize {
        match self {
            Self::Crc32c => 8,
            Self::Xxh3 | Self::Xxh64 => 16,
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 | Self::Blake3 => 64,
            Self::Sha512 | Self::Blake2b => 128,
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Compute {
    /// The accepted text forms, for help and errors.
    pub const NAMES: &'static str = "none, touch, checksum:N, xxh3, xxh64, crc32c, blake3, sha256, \
                                     sha1, sha512, blake2b, md5, spin[:TIME], sleep[:TIME]";

    /// Returns the hash, if the work is one.
    pub fn hash(&self) -> Option<Hash> {
        match self {
            Self::Hash(hash) => Some(*hash),
            _ => None,
        }
    }

    /// Returns the name without numbers, such as `sleep` for `sleep:1ms`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Touch => "touch",
            Self::Checksum { .. } => "checksum",
            Self::Hash(hash) => hash.name(),
            Self::Spin(_) => "spin",
            Self::Sleep(_) => "sleep",
        }
    }

    /// Returns the random time for file `index` in nanoseconds, if this kind has one. `demand` is
    /// the distribution of the file set.
    pub fn demand_ns(&self, demand: Option<&Distribution>, seed: u64, index: u64) -> Option<u64> {
        match self {
            Self::Spin(own) | Self::Sleep(own) => {
                Some(own.as_ref().or(demand).map_or(0, |d| d.value(seed ^ 0xC0DE, index)))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Touch => f.write_str("touch"),
            Self::Checksum { times } => write!(f, "checksum:{times}"),
            Self::Hash(hash) => hash.fmt(f),
            Self::Spin(None) => f.write_str("spin"),
            Self::Spin(Some(d)) => write!(f, "spin:{d}"),
            Self::Sleep(None) => f.write_str("sleep"),
            Self::Sleep(Some(d)) => write!(f, "sleep:{d}"),
        }
    }
}

impl FromStr for Compute {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        if let (Some(hash), None) = (Hash::ALL.into_iter().find(|hash| hash.name() == name), rest) {
            return Ok(Self::Hash(hash));
        }
        let drawn = || rest.map(Distribution::of_times).transpose();
        match (name, rest) {
            ("none", None) => Ok(Self::None),
            ("touch", None) => Ok(Self::Touch),
            ("spin", _) => Ok(Self::Spin(drawn()?)),
            ("sleep", _) => Ok(Self::Sleep(drawn()?)),
            ("checksum", times) => match times.unwrap_or("1").parse() {
                Ok(times) if times > 0 => Ok(Self::Checksum { times }),
                _ => {
                    let range = format!("N of checksum:N must be 1 to {}", u32::MAX);
                    Err(ParseError::new("compute", text, range))
                }
            },
            _ => Err(ParseError::new("compute", text, format!("must be one of {}", Self::NAMES))),
        }
    }
}

serialize_as_text!(Compute);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_survive_a_round_trip() {
        for text in ["none", "touch", "checksum:50", "spin", "sleep:exp(mean=400000)"] {
            assert_eq!(text.parse::<Compute>().unwrap().to_string(), text);
        }
        let five: Compute = "sleep:5min".parse().unwrap();
        assert_eq!(five.demand_ns(None, 1, 0), Some(300_000_000_000));
        for hash in Hash::ALL {
            assert_eq!(hash.to_string().parse(), Ok(Compute::Hash(hash)));
            assert!(Compute::NAMES.contains(hash.name()), "{hash}");
        }
        for text in ["sha9", "checksum:0", "xxh3:4", "spin:fast", "sleep:5m", "spin:inf"] {
            assert!(text.parse::<Compute>().is_err(), "{text}");
        }
        for text in ["checksum:0", "checksum:99999999999999999999"] {
            let error = text.parse::<Compute>().unwrap_err();
            assert!(error.reason.ends_with("must be 1 to 4294967295"), "{error}");
        }
    }

    #[test]
    fn spin_and_sleep_take_the_same_times() {
        let demand: Distribution = "exp(mean=400us)".parse().unwrap();
        for index in 0..100 {
            assert_eq!(
                Compute::Spin(None).demand_ns(Some(&demand), 3, index),
                Compute::Sleep(None).demand_ns(Some(&demand), 3, index)
            );
        }
    }
}
