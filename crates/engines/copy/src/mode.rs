//! The methods of copying file data.

use std::fmt;
use std::str::FromStr;

/// A method of copying file data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Shares the blocks of the source until either file is modified.
    Reflink,
    /// Copies in the kernel (`copy_file_range`).
    Range,
    /// Reads and writes through the page cache.
    Buffered,
    /// Like `Buffered`, but drops pages from the cache once they are written (`RWF_DONTCACHE`).
    Uncached,
    /// Bypasses the page cache with many requests in flight (io_uring, `O_DIRECT`).
    Direct,
    /// Maps the source. For measurements only: truncating the file during the copy kills the
    /// process with `SIGBUS`.
    Mmap,
}

impl Mode {
    /// All methods.
    pub const ALL: [Self; 6] =
        [Self::Reflink, Self::Range, Self::Buffered, Self::Uncached, Self::Direct, Self::Mmap];

    /// Returns the name used in flags.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reflink => "reflink",
            Self::Range => "range",
            Self::Buffered => "buffered",
            Self::Uncached => "uncached",
            Self::Direct => "direct",
            Self::Mmap => "mmap",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mode| mode.word() == text).ok_or_else(|| {
            format!(
                "invalid copy method '{text}': use reflink, range, buffered, uncached or direct"
            )
        })
    }
}

/// Why a required method cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{mode} cannot be used here: {why}")]
pub struct Refused {
    /// The required method.
    pub mode: Mode,
    /// What is missing.
    pub why: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for mode in Mode::ALL {
            assert_eq!(mode.word().parse(), Ok(mode));
        }
        assert!("fast".parse::<Mode>().is_err());
    }
}
