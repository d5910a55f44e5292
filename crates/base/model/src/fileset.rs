//! File sets: descriptions and generated sets.

use crate::Distribution;
use serde::{Deserialize, Serialize};

/// Directory structure of a file set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectoryLayout {
    /// All files in one directory.
    Flat,
    /// Two directory levels with at most 256 files per directory.
    #[default]
    Nested,
    /// Directories nested at most five levels deep, with 40 files per directory at every level.
    Tree,
    /// Chains of 64 nested directories with four files each.
    Deep,
}

/// Options for creating the files of a set. By default files contain data, are created in numeric
/// order, and have one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// Create sparse files, which have a size but no data blocks.
    #[serde(default)]
    pub sparse: bool,
    /// Create files in random order, so neighbouring files of a directory are not adjacent on the
    /// medium.
    #[serde(default)]
    pub shuffled: bool,
    /// Make every n-th name a hard link to the previous file; 0 for none.
    #[serde(default)]
    pub links: u32,
}

impl Creation {
    /// Reports whether all options have default values.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Description of a seeded file set. The same description always produces the same files.
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
    /// Creation options.
    #[serde(default, skip_serializing_if = "Creation::is_default")]
    pub making: Creation,
    /// Seed for sizes, times and contents.
    #[serde(default)]
    pub seed: u64,
}

/// A generated or existing file set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FileSetRealised {
    /// Name in the study, or the directory specified by the user.
    pub name: String,
    /// Number of files.
    pub files: u64,
    /// Total size in bytes.
    pub bytes_total: u64,
    /// Mean size in bytes.
    pub bytes_mean: f64,
    /// Mean compute time in nanoseconds; `None` if the set has none.
    pub compute_ns_mean: Option<f64>,
    /// XXH3-64 over the sorted lines `SIZE  PATH`, 16 digits. It identifies names and sizes, not contents: with
    /// sizes that do not depend on the seed, sets of different seeds have the same hash.
    pub hash: String,
    /// Medium, if known.
    pub medium: Option<Medium>,
}

/// The medium of a file set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Medium {
    /// Name in tables: `work`, `tmpfs`, `throttled`, or the directory specified with `--on`.
    pub name: String,
    /// `major:minor` of the device.
    pub device: String,
    /// Block device name, if there is one.
    pub block_device: Option<String>,
    /// File-system type.
    pub file_system: String,
    /// I/O scheduler of the device.
    pub scheduler: Option<String>,
    /// The `rotational` flag, which is unreliable for virtual disks.
    pub rotational: Option<bool>,
    /// Device readahead in KiB.
    pub read_ahead_kib: Option<u64>,
}
