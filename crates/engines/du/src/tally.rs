//! What is added up: apparent bytes, bytes on disk, inodes.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign};

/// Sums over entries. Adding ends at the largest number instead of wrapping round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Tally {
    /// Sizes as files tell them, bytes.
    pub apparent_bytes: u64,
    /// Blocks taken on the file system, bytes.
    pub disk_bytes: u64,
    /// Entries, directories included.
    pub inodes: u64,
}

impl Tally {
    /// One entry.
    #[inline]
    pub const fn entry(apparent_bytes: u64, disk_bytes: u64) -> Self {
        Self { apparent_bytes, disk_bytes, inodes: 1 }
    }

    /// The one of the three that was asked for.
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
        }
    }
}

impl AddAssign for Tally {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Which sum is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Measure {
    /// Blocks taken on the file system.
    #[default]
    Disk,
    /// Sizes as files tell them.
    Apparent,
    /// Number of entries.
    Inodes,
}

impl Measure {
    /// The word for people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Apparent => "apparent",
            Self::Inodes => "inodes",
        }
    }
}
