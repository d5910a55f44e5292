//! Totals: apparent bytes, disk bytes, inodes.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign};

/// Totals over entries. Addition saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Tally {
    /// Apparent size in bytes.
    pub apparent_bytes: u64,
    /// Disk usage in bytes.
    pub disk_bytes: u64,
    /// Number of entries, including directories.
    pub inodes: u64,
    /// The latest time of an entry, if times were requested. Not part of documents.
    #[serde(skip)]
    pub newest: Newest,
}

/// The latest of several times, in seconds since 1970 and nanoseconds. The default is earlier than
/// any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Newest(pub (i64, u32));

impl Default for Newest {
    fn default() -> Self {
        Self((i64::MIN, 0))
    }
}

impl Tally {
    /// Returns the totals of one entry.
    #[inline]
    pub const fn entry(apparent_bytes: u64, disk_bytes: u64) -> Self {
        Self { apparent_bytes, disk_bytes, inodes: 1, newest: Newest((i64::MIN, 0)) }
    }

    /// Returns the same totals with the time of the entry.
    #[inline]
    pub const fn at(self, time: (i64, u32)) -> Self {
        Self { newest: Newest(time), ..self }
    }

    /// Returns the requested total.
    pub const fn by(self, measure: Measure) -> u64 {
        match measure {
            Measure::Disk => self.disk_bytes,
            Measure::Apparent => self.apparent_bytes,
            Measure::Inodes => self.inodes,
        }
    }
}

impl Add for Tally {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self {
            apparent_bytes: self.apparent_bytes.saturating_add(other.apparent_bytes),
            disk_bytes: self.disk_bytes.saturating_add(other.disk_bytes),
            inodes: self.inodes.saturating_add(other.inodes),
            newest: self.newest.max(other.newest),
        }
    }
}

impl AddAssign for Tally {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Selects one of the totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Measure {
    /// Disk usage.
    #[default]
    Disk,
    /// Apparent size.
    Apparent,
    /// Number of entries.
    Inodes,
}

impl Measure {
    /// Returns the name of the total.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Apparent => "apparent",
            Self::Inodes => "inodes",
        }
    }
}
