//! The options and the progress of a scan.

use crate::exclude::Exclude;
use ioloom_walk::{Fields, Follow, Meta, Method, Threads};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Maximum number of error messages to keep.
pub const ERRORS_KEPT_MAX: usize = ioloom_walk::ERRORS_KEPT_MAX;

/// A time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Last modification of the contents.
    Modified,
    /// Last access.
    Accessed,
    /// Last change of the inode.
    Changed,
}

impl Time {
    pub(crate) const fn fields(self) -> Fields {
        match self {
            Self::Modified => Fields::MTIME,
            Self::Accessed => Fields::ATIME,
            Self::Changed => Fields::CTIME,
        }
    }

    pub(crate) const fn of(self, meta: &Meta) -> (i64, u32) {
        match self {
            Self::Modified => meta.mtime,
            Self::Accessed => meta.atime,
            Self::Changed => meta.ctime,
        }
    }
}

/// How much of a tree to retain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detail {
    /// Maximum depth of directories that become nodes; 0 keeps only the root.
    pub depth_max: u32,
    /// Whether files down to that depth also become nodes.
    pub files: bool,
}

impl Detail {
    /// Retains everything.
    pub const ALL: Self = Self { depth_max: u32::MAX, files: true };
    /// Retains only the roots.
    pub const ROOTS: Self = Self { depth_max: 0, files: false };
}

/// Scan options.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// How much of the tree to retain.
    pub detail: Detail,
    /// Whether to count every hard link.
    pub count_links: bool,
    /// Whether to count an entry once that a single root reaches twice, as through a bind mount. With several
    /// roots, it always counts once.
    pub each_once: bool,
    /// Whether to stay on the device of the root, as `du -x` does.
    pub one_file_system: bool,
    /// Whether to stay on the mount of the root, excluding bind mounts and other mounts of the same
    /// device.
    pub one_mount: bool,
    /// Whether to enter file systems of the kernel too.
    pub all_file_systems: bool,
    /// Which symbolic links to follow.
    pub follow: Follow,
    /// What to exclude.
    pub exclude: Exclude,
    /// The time to collect in `Tally::newest`; `None` collects none.
    pub time: Option<Time>,
    /// How to read sizes.
    pub method: Method,
    /// Number of threads.
    pub threads: Threads,
}

impl Default for ScanOptions {
    /// Totals of the roots, without following links, and with an automatic number of threads.
    fn default() -> Self {
        Self {
            detail: Detail::ROOTS,
            count_links: false,
            each_once: false,
            one_file_system: false,
            one_mount: false,
            all_file_systems: false,
            follow: Follow::Never,
            exclude: Exclude::new(),
            time: None,
            method: Method::Statx,
            threads: Threads::Auto,
        }
    }
}

/// The options that decide which entries a document counts and lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Whether entries other than directories are listed.
    pub all: bool,
    /// Whether every hard link was counted.
    pub count_links: bool,
    /// Whether the scan stayed on the device of each root.
    pub one_file_system: bool,
    /// Whether the scan stayed on the mount of each root.
    pub one_mount: bool,
    /// Whether file systems of the kernel were entered.
    pub all_file_systems: bool,
    /// Which symbolic links were followed: `never`, `roots` or `always`.
    pub follow: String,
    /// The patterns of excluded entries, sorted.
    pub exclude: Vec<String>,
}

impl Recorded {
    /// Returns what decides which entries a scan counts. It lists files if the scan retains them.
    pub fn of(options: &ScanOptions) -> Self {
        let follow = match options.follow {
            Follow::Never => "never",
            Follow::Roots => "roots",
            Follow::Always => "always",
        };
        let mut exclude = options.exclude.texts();
        exclude.sort();
        exclude.dedup();
        Self {
            all: options.detail.files,
            count_links: options.count_links,
            one_file_system: options.one_file_system,
            one_mount: options.one_mount,
            all_file_systems: options.all_file_systems,
            follow: follow.to_owned(),
            exclude,
        }
    }

    /// Returns the flags of an option that makes the sizes of two scans differ.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        [
            (self.count_links != other.count_links, "--count-links (-l)"),
            (self.one_file_system != other.one_file_system, "--one-file-system (-x)"),
            (self.one_mount != other.one_mount, "--one-mount"),
            (self.all_file_systems != other.all_file_systems, "--all-file-systems"),
            (self.follow != other.follow, "the symbolic links that they follow (-L, -D)"),
            (self.exclude != other.exclude, "--exclude"),
        ]
        .into_iter()
        .find_map(|(differs, flags)| differs.then_some(flags))
    }
}

/// The progress of a scan. A timer reads it; each thread updates it once per directory.
#[derive(Debug, Default)]
pub struct ScanProgress {
    /// Number of entries, without files with several links.
    pub entries: AtomicU64,
    /// Disk usage of these entries in bytes.
    pub disk_bytes: AtomicU64,
    /// Whether threads query arguments or read directories, which can block for as long as a server does not
    /// answer.
    pub walking: AtomicBool,
}
