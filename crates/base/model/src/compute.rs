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
    /// XXH3-64.
    Xxh3,
    /// BLAKE3-256.
    Blake3,
    /// MD5, only for reproducing published runs.
    Md5,
    /// Busy for a random time; `None` uses the distribution of the file set.
    Spin(Option<Distribution>),
    /// Asleep for a random time, which simulates having enough cores.
    Sleep(Option<Distribution>),
}

impl Compute {
    /// Accepted text forms, for help and errors.
    pub const NAMES: &'static str =
        "none, touch, checksum:N, xxh3, blake3, md5, spin[:TIME], sleep[:TIME]";

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
            Self::Xxh3 => f.write_str("xxh3"),
            Self::Blake3 => f.write_str("blake3"),
            Self::Md5 => f.write_str("md5"),
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
        let drawn = || rest.map(str::parse::<Distribution>).transpose();
        match (name, rest) {
            ("none", None) => Ok(Self::None),
            ("touch", None) => Ok(Self::Touch),
            ("xxh3", None) => Ok(Self::Xxh3),
            ("blake3", None) => Ok(Self::Blake3),
            ("md5", None) => Ok(Self::Md5),
            ("spin", _) => Ok(Self::Spin(drawn()?)),
            ("sleep", _) => Ok(Self::Sleep(drawn()?)),
            ("checksum", times) => match times.unwrap_or("1").parse() {
                Ok(times) if times > 0 => Ok(Self::Checksum { times }),
                _ => Err(ParseError::new("compute", text, "N of checksum:N must be at least 1")),
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
        for text in ["none", "touch", "checksum:50", "xxh3", "spin", "sleep:exp(mean=400000)"] {
            assert_eq!(text.parse::<Compute>().unwrap().to_string(), text);
        }
        for text in ["sha9", "checksum:0", "xxh3:4", "spin:fast"] {
            assert!(text.parse::<Compute>().is_err(), "{text}");
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
