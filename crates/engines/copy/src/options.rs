//! The options of a copy.

use crate::error::CopyError;
use crate::mode::Mode;
use ioloom_sys::attr::Attr;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Which symbolic links to follow.
pub use ioloom_walk::Follow;

/// The file attributes to preserve in addition to the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserve {
    /// Permission bits and ACLs. Otherwise, new files get the source permissions minus the umask,
    /// and replaced files keep theirs. Set-user-ID and set-group-ID are preserved with the mode, as
    /// GNU cp does, even if the owner is another one.
    pub mode: bool,
    /// Owner and group, if the user is permitted to set them.
    pub owner: bool,
    /// Access and modification times, including those of directories.
    pub times: bool,
    /// Hard links.
    pub links: bool,
    /// Extended attributes, except the security label.
    pub xattrs: bool,
    /// The security label of SELinux (`security.selinux`).
    pub context: bool,
}

impl Preserve {
    /// All attributes, like `cp -a`.
    pub const ALL: Self =
        Self { mode: true, owner: true, times: true, links: true, xattrs: true, context: true };
}

/// How to treat existing target files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Overwrite them; see [`Overwrite`].
    #[default]
    Replace,
    /// Keep existing files.
    Keep,
    /// Replace files that are older than the source.
    Update,
    /// Replace files that are older than the source if [`Watcher::may_replace`] agrees.
    UpdateAsk,
    /// Replace files if [`Watcher::may_replace`] agrees.
    Ask,
}

/// How an existing regular file is overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Atomically by a new file. In place if that would change more than the content: a symbolic
    /// link, a file with several links, a mount point, another user's file, one with flags
    /// (`chattr`), a project or attributes of security modules that a new file would lack, or a
    /// directory in which this user cannot create files.
    #[default]
    Auto,
    /// Atomically by a new file, always; fail if that is impossible. Only the content of a pipe or
    /// device is written in place.
    Replace,
    /// In place, always, like GNU cp.
    InPlace,
}

/// What to make of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Make {
    /// A copy.
    #[default]
    Copy,
    /// A hard link to the source.
    HardLink,
    /// A symbolic link with the path of the source.
    Symlink,
}

/// Whether failures with extended attributes are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Attributes {
    /// Only if they are not due to the abilities of the file system and the permissions of the
    /// user.
    #[default]
    Possible,
    /// Always.
    Required,
}

/// How the names of backups are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupNames {
    /// The suffix.
    Simple,
    /// `.~N~` with the next number.
    Numbered,
    /// Numbered if a numbered backup exists, otherwise simple.
    Existing,
}

/// How to keep files that are overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// How names are chosen.
    pub names: BackupNames,
    /// The suffix of simple names.
    pub suffix: OsString,
}

/// How much to sync before the copy returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durable {
    /// Nothing: a power failure can lose the copy.
    #[default]
    None,
    /// Sync the content of every file before giving it its name, and sync the names before the copy
    /// returns.
    File,
    /// The same, followed by the whole target file system: directories, links, owners and times.
    Full,
}

/// Whether to use a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// If it is possible and worthwhile.
    #[default]
    Auto,
    /// Always; fail if it is impossible.
    Always,
    /// Never.
    Never,
}

/// How to verify the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// Do not verify.
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
    /// Returns true if the copy is read back.
    pub const fn reads_again(self) -> bool {
        matches!(self, Self::Cache | Self::Device)
    }
}

/// The hash function for file contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HashKind {
    /// BLAKE3, 256 bits.
    #[default]
    Blake3,
    /// MD5, for existing checksum lists. It detects accidental changes but not attacks.
    Md5,
}

/// Overrides for the figures in a plan, for measurements. Fields that are `None` are chosen by the
/// plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Request size in bytes.
    pub block_bytes: Option<u32>,
    /// Number of requests in flight; only `direct` uses more than one.
    pub depth: Option<u32>,
    /// Number of threads that copy parts of one file.
    pub threads: Option<u32>,
    /// Whether to let the target grow during the copy, without preallocation.
    pub extends: bool,
}

/// The options of a copy.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// Whether to copy directories and their contents.
    pub recursive: bool,
    /// Which symbolic links to follow; all others are copied as links.
    pub follow: Follow,
    /// The attributes to preserve.
    pub preserve: Preserve,
    /// Whether new files get default permissions rather than those of the source minus the umask.
    /// Has no effect with [`Preserve::mode`].
    pub plain_mode: bool,
    /// Whether failures with extended attributes are errors.
    pub attributes: Attributes,
    /// Whether failures with the security label are errors. They are also with
    /// [`attributes`](Self::attributes).
    pub context: Attributes,
    /// How to treat existing target files.
    pub existing: Existing,
    /// How an existing regular file is overwritten.
    pub overwrite: Overwrite,
    /// Whether a file that cannot be opened for writing is removed first.
    pub force: bool,
    /// Whether every existing file is removed first.
    pub remove_destination: bool,
    /// How to keep files that are overwritten; `None` to lose them.
    pub backup: Option<Backup>,
    /// What to make of source files.
    pub make: Make,
    /// Whether to copy only attributes, not the content.
    pub attributes_only: bool,
    /// Whether to read pipes and devices in a tree instead of creating special files.
    pub contents: bool,
    /// Whether to create the target of a dangling symbolic link instead of reporting it.
    pub through_dangling: bool,
    /// Whether to create the directories of each source path below the target.
    pub parents: bool,
    /// Whether a source that changes during the copy is not copied, rather than in part.
    pub strict_source: bool,
    /// How much to sync before returning.
    pub durable: Durable,
    /// Whether to share blocks if the file system supports it.
    pub reflink: When,
    /// Whether to preserve holes. `Always` also turns zeros into holes.
    pub sparse: When,
    /// The required copy method; the copy fails if it cannot be used.
    pub mode: Option<Mode>,
    /// Overrides for large file transfers.
    pub tuning: Tuning,
    /// How to verify the copy.
    pub verify: Verify,
    /// The hash function for verification.
    pub hash: HashKind,
    /// Whether to stay on the file system of each source.
    pub one_file_system: bool,
    /// Whether to keep completed files when interrupted, and to resume an earlier copy.
    pub resume: bool,
    /// Number of threads; `None` for an automatic choice.
    pub threads: Option<usize>,
    /// Setting this to true cancels the copy.
    pub cancel: Arc<AtomicBool>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            recursive: false,
            follow: Follow::Always,
            preserve: Preserve::default(),
            plain_mode: false,
            attributes: Attributes::default(),
            context: Attributes::default(),
            existing: Existing::default(),
            overwrite: Overwrite::default(),
            force: false,
            remove_destination: false,
            backup: None,
            make: Make::default(),
            attributes_only: false,
            contents: false,
            through_dangling: false,
            parents: false,
            strict_source: false,
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

/// The progress of a copy; other threads can read it at any time.
#[derive(Debug, Default)]
pub struct CopyCounters {
    /// Number of bytes copied.
    pub bytes: AtomicU64,
    /// Number of entries copied: files, directories, links and special files.
    pub entries: AtomicU64,
    /// Number of threads that remove incomplete files, or remove or merge incomplete directories. It takes long for
    /// large or many files, goes on after an interrupt, and makes no progress in the other numbers.
    pub cleaning: AtomicU64,
}

/// Observes a copy; called from any of its threads.
pub trait Watcher: Sync {
    /// Returns true if [`copied`](Self::copied) should be called, which requires building the
    /// paths.
    fn wants_names(&self) -> bool {
        false
    }

    /// Called after a file gets its final name, and after a directory is created. `backup` is the
    /// new name of the file that was there.
    fn copied(&self, from: &Path, to: &Path, backup: Option<&Path>) {
        let _ = (from, to, backup);
    }

    /// Called after [`copied`](Self::copied) with the method, if content was copied. `finds_holes` is
    /// true if the file system was asked for the holes of the source.
    fn copied_by(&self, mode: Mode, finds_holes: bool) {
        let _ = (mode, finds_holes);
    }

    /// Called after a directory of a source path was created (`--parents`).
    fn made_parent(&self, from: &Path, to: &Path) {
        let _ = (from, to);
    }

    /// Called with a file that is removed before another one gets its name.
    fn removed(&self, to: &Path) {
        let _ = to;
    }

    /// Called with every error, including those that the report only counts.
    fn failed(&self, error: &CopyError) {
        let _ = error;
    }

    /// Decides whether an existing file may be replaced, for [`Existing::Ask`] and
    /// [`Existing::UpdateAsk`]. `there` is the file that would be overwritten or removed.
    fn may_replace(&self, to: &Path, there: &Attr) -> bool {
        let _ = (to, there);
        false
    }

    /// Called when a file has been written and is about to be read back. It does not have its final
    /// name yet.
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
