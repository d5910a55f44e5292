//! What a set of files is made of, and what came out.

use crate::Distribution;
use serde::{Deserialize, Serialize};

/// How the files of a set lie in directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectoryLayout {
    /// All files in one directory.
    Flat,
    /// Two levels of directories, at most 256 files in each.
    #[default]
    Nested,
    /// Directories at most five deep, 40 files in each, those of every level included.
    Tree,
    /// Chains of directories 64 deep, four files in each.
    Deep,
}

/// How the files of a set are made, where that is not the usual way: whole, in the order of their
/// numbers, each with one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// Files have their sizes and no data: they read as zeros and take no blocks.
    #[serde(default)]
    pub sparse: bool,
    /// Files are made in another order than that of their directories, so that neighbours in a
    /// directory are no neighbours on the medium.
    #[serde(default)]
    pub shuffled: bool,
    /// Every so-manieth name is a second name of the file before it; 0 is none.
    #[serde(default)]
    pub links: u32,
}

impl Creation {
    /// Whether it is the usual way.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A seeded set of files: the same text makes the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSetSpec {
    /// Number of files.
    pub count: u64,
    /// Sizes in bytes.
    pub size: Distribution,
    /// Compute time that each file demands, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<Distribution>,
    /// Directories.
    #[serde(default)]
    pub layout: DirectoryLayout,
    /// How the files are made.
    #[serde(default, skip_serializing_if = "Creation::is_default")]
    pub making: Creation,
    /// Seed of sizes, times and content.
    #[serde(default)]
    pub seed: u64,
}

/// What a set turned out to be.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FileSetRealised {
    /// Name in the study, or the directory as the user gave it.
    pub name: String,
    /// Number of files.
    pub files: u64,
    /// Sum of sizes, bytes.
    pub bytes_total: u64,
    /// Mean size, bytes.
    pub bytes_mean: f64,
    /// Mean drawn compute time, nanoseconds; `None` when the set demands none.
    pub compute_ns_mean: Option<f64>,
    /// XXH3-64 over the sorted lines `SIZE  PATH`, 16 digits: which set this is.
    pub hash: String,
    /// Device number (`major:minor`), file system and mount, as far as known.
    pub medium: Option<Medium>,
}

/// Where a set of files lies.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Medium {
    /// The word used in tables: `work`, `tmpfs`, `throttled`, or the directory given by `--on`.
    pub name: String,
    /// `major:minor` of the device.
    pub device: String,
    /// Name of the block device, if there is one.
    pub block_device: Option<String>,
    /// File-system type.
    pub file_system: String,
    /// I/O scheduler of the device.
    pub scheduler: Option<String>,
    /// The `rotational` flag; it lies on virtual disks.
    pub rotational: Option<bool>,
    /// Read-ahead of the device, KiB.
    pub read_ahead_kib: Option<u64>,
}
