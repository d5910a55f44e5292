//! The options of a copy.

use crate::mode::Mode;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Which symbolic links are followed.
pub use ioloom_walk::Follow;

/// The attributes of a file that are preserved in addition to its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserve {
    /// Permission bits and ACLs. Without it, new files get the permissions of the source minus the
    /// umask, and replaced files keep their own. Set-user-ID and set-group-ID are preserved only if
    /// the owner or group is.
    pub mode: bool,
    /// Owner and group, if the user may set them.
    pub owner: bool,
    /// Access and modification times, also of directories.
    pub times: bool,
    /// Hard links.
    pub links: bool,
    /// Extended attributes.
    pub xattrs: bool,
}

impl Preserve {
    /// All attributes, like `cp -a`.
    pub const ALL: Self = Self { mode: true, owner: true, times: true, links: true, xattrs: true };
}

/// How to treat existing target files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Replace them atomically when the copy is complete.
    #[default]
    Replace,
    /// Keep them.
    Keep,
    /// Replace those that are older than the source.
    Update,
    /// Replace those that are older than the source if [`Watcher::may_replace`] agrees.
    UpdateAsk,
    /// Replace those for which [`Watcher::may_replace`] agrees.
    Ask,
}

/// How much to sync before the copy returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durable {
    /// Nothing: a power failure may lose the copy.
    #[default]
    None,
    /// The content of every file before the file gets its name, and the names before the copy
    /// returns.
    File,
    /// The same, and the whole file system of the target: directories, links, owners, times.
    Full,
}

/// Whether to use a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// Where it is possible and worthwhile.
    #[default]
    Auto,
    /// Always; fail where it is impossible.
    Always,
    /// Never.
    Never,
}

/// How to verify the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// Not at all.
    #[default]
    None,
    /// Hash the bytes while copying; do not read the copy.
    InFlight,
    /// Read the copy as any program would, mostly from the page cache.
    Cache,
    /// Sync the copy, evict it from the page cache and read it from the device.
    Device,
}

impl Verify {
    /// Reports whether the copy is read back.
    pub const fn reads_again(self) -> bool {
        matches!(self, Self::Cache | Self::Device)
    }
}

/// The hash function for contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HashKind {
    /// BLAKE3, 256 bits.
    #[default]
    Blake3,
    /// MD5, for existing checksum lists; it detects accidents but not attacks.
    Md5,
}

/// Overrides of the numbers in a plan, for measurements. The plan chooses those that are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Size of one request, bytes.
    pub block_bytes: Option<u32>,
    /// Requests in flight; only `direct` has more than one.
    pub depth: Option<u32>,
    /// Threads that copy parts of one file.
    pub threads: Option<u32>,
    /// Whether the target grows as it is written, without preallocation.
    pub extends: bool,
}

/// The options of a copy.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// Whether to copy directories and their contents.
    pub recursive: bool,
    /// Which symbolic links to follow; the others are copied as links.
    pub follow: Follow,
    /// The attributes to preserve.
    pub preserve: Preserve,
    /// Whether new files get default permissions rather than those of the source minus the umask. Has
    /// no effect with [`Preserve::mode`].
    pub plain_mode: bool,
    /// How to treat existing target files.
    pub existing: Existing,
    /// How much to sync before returning.
    pub durable: Durable,
    /// Whether to share blocks if the file system can.
    pub reflink: When,
    /// Whether to preserve holes; `Always` also turns zeros into holes.
    pub sparse: When,
    /// The required copy method; the copy fails where it cannot be used.
    pub mode: Option<Mode>,
    /// Overrides for the transfer of big files.
    pub tuning: Tuning,
    /// How to verify the copy.
    pub verify: Verify,
    /// The hash function for verification.
    pub hash: HashKind,
    /// Whether to stay on the file system of each source.
    pub one_file_system: bool,
    /// Whether to keep completed files when interrupted, and to resume an earlier copy.
    pub resume: bool,
    /// Number of threads; `None` chooses it.
    pub threads: Option<usize>,
    /// Cancels the copy when set to true.
    pub cancel: Arc<AtomicBool>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            recursive: false,
            follow: Follow::Always,
            preserve: Preserve::default(),
            plain_mode: false,
            existing: Existing::default(),
            durable: Durable::default(),
            reflink: When::Auto,
            sparse: When::Auto,
            mode: None,
            tuning: Tuning::default(),
            verify: Verify::default(),
            hash: HashKind::default(),
            one_file_system: false,
            resume: false,
            threads: None,
            cancel: Arc::default(),
        }
    }
}

/// The progress of a copy, which other threads may read.
#[derive(Debug, Default)]
pub struct CopyCounters {
    /// Bytes copied.
    pub bytes: AtomicU64,
    /// Entries copied: files, directories, links and special files.
    pub entries: AtomicU64,
}

/// Observes a copy; called from any of its threads.
pub trait Watcher: Sync {
    /// Reports whether [`copied`](Self::copied) is to be called; it costs building the paths.
    fn wants_names(&self) -> bool {
        false
    }

    /// Called when a file has its final name, and when a directory was created.
    fn copied(&self, from: &Path, to: &Path) {
        let _ = (from, to);
    }

    /// Decides whether an existing file may be replaced, for [`Existing::Ask`] and
    /// [`Existing::UpdateAsk`].
    fn may_replace(&self, to: &Path) -> bool {
        let _ = to;
        false
    }

    /// Called when a file is written and about to be read back; it has no final name yet.
    fn before_verify(&self, file: BorrowedFd<'_>) {
        let _ = file;
    }

    /// Called with a message that is not an error.
    fn note(&self, text: &str) {
        let _ = text;
    }
}

/// A watcher that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Watcher for Silent {}
