//! File sets: descriptions and generated sets.

use crate::Distribution;
use serde::{Deserialize, Serialize};

/// Directory structure of a file set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectoryLayout {
    /// All files in one directory.
    Flat,
    /// Two levels of directories, at most 256 files in each.
    #[default]
    Nested,
    /// Directories at most five levels deep, with 40 files in each directory of every level.
    Tree,
    /// Chains of 64 nested directories, with four files in each.
    Deep,
}

/// Options for creating the files of a set. By default files have data, are created in the order of
/// their numbers, and have one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// Create sparse files: they have a size but no data and take no blocks.
    #[serde(default)]
    pub sparse: bool,
    /// Create files in random order, so that adjacent files of a directory are not adjacent on the
    /// medium.
    #[serde(default)]
    pub shuffled: bool,
    /// Make every n-th name a hard link to the previous file; 0 for none.
    #[serde(default)]
    pub links: u32,
}

impl Creation {
    /// Reports whether all options have their defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Description of a seeded file set. The same description creates the same files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSetSpec {
    /// Number of files.
    pub count: u64,
    /// Sizes in bytes.
    pub size: Distribution,
    /// Compute time per file, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<Distribution>,
    /// Directory structure.
    #[serde(default)]
    pub layout: DirectoryLayout,
    /// Options for creating the files.
    #[serde(default, skip_serializing_if = "Creation::is_default")]
    pub making: Creation,
    /// Seed of sizes, times and contents.
    #[serde(default)]
    pub seed: u64,
}

/// A generated or existing file set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FileSetRealised {
    /// Name in the study, or the directory given by the user.
    pub name: String,
    /// Number of files.
    pub files: u64,
    /// Sum of sizes, bytes.
    pub bytes_total: u64,
    /// Mean size, bytes.
    pub bytes_mean: f64,
    /// Mean compute time, nanoseconds; `None` if the set has none.
    pub compute_ns_mean: Option<f64>,
    /// Identifies the set: XXH3-64 over the sorted lines `SIZE  PATH`, 16 digits.
    pub hash: String,
    /// Medium, if known.
    pub medium: Option<Medium>,
}

/// The medium of a file set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Medium {
    /// Name in tables: `work`, `tmpfs`, `throttled`, or the directory given by `--on`.
    pub name: String,
    /// `major:minor` of the device.
    pub device: String,
    /// Name of the block device, if there is one.
    pub block_device: Option<String>,
    /// File-system type.
    pub file_system: String,
    /// I/O scheduler of the device.
    pub scheduler: Option<String>,
    /// The `rotational` flag, which is unreliable for virtual disks.
    pub rotational: Option<bool>,
    /// Read-ahead of the device in KiB.
    pub read_ahead_kib: Option<u64>,
}
