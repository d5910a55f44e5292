//! What a copy is asked for.

use crate::plan::Mode;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Which symbolic links are followed.
pub use ioloom_walk::Follow;

/// What of a file is kept beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserve {
    /// Permission bits as they are; without it new files get them less the umask, and replaced
    /// files keep those that they had. Set-uid and set-gid are kept only where the owner is. Access
    /// control lists are permissions.
    pub mode: bool,
    /// Owner and group, where the user may set them.
    pub owner: bool,
    /// Times of access and change, of directories too.
    pub times: bool,
    /// Names that are the same file stay the same file.
    pub links: bool,
    /// Extended attributes.
    pub xattrs: bool,
}

impl Preserve {
    /// Everything, as `cp -a`.
    pub const ALL: Self = Self { mode: true, owner: true, times: true, links: true, xattrs: true };
}

/// What happens to a file that is at the target already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// It is replaced, at once and as a whole, when the copy is complete.
    #[default]
    Replace,
    /// It stays.
    Keep,
    /// It is replaced if the source was changed later.
    Update,
    /// The same, and [`Watcher::may_replace`] decides.
    UpdateAsk,
    /// [`Watcher::may_replace`] decides.
    Ask,
}

/// What is on the device when the copy is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durable {
    /// Nothing is waited for: a power cut may lose what was copied.
    #[default]
    None,
    /// The content of every file is on the device before the file gets its name, and the name is
    /// there when the copy ends.
    File,
    /// The same, and all else of the target's file system: directories, links, owners, times.
    Full,
}

/// Whether something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// Where it can be and pays.
    #[default]
    Auto,
    /// In any case; an error where it cannot be.
    Always,
    /// In no case.
    Never,
}

/// What is read again to know that the copy is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// Nothing.
    #[default]
    None,
    /// The bytes are hashed on their way; the copy is not read.
    InFlight,
    /// The copy is read as any program would read it: mostly from memory.
    Cache,
    /// The copy is written, put out of memory and read from the device.
    Device,
}

impl Verify {
    /// Whether the copy is read.
    pub const fn reads_again(self) -> bool {
        matches!(self, Self::Cache | Self::Device)
    }
}

/// Which hash tells contents apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HashKind {
    /// BLAKE3, 256 bits.
    #[default]
    Blake3,
    /// MD5: for lists of others; it protects against accidents, not against people.
    Md5,
}

/// Numbers of a transfer that are pinned, for measurements; what is `None` the plan chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Bytes of one request.
    pub block_bytes: Option<u32>,
    /// Requests under way at a time; only `direct` has more than one.
    pub depth: Option<u32>,
    /// Threads that copy parts of one file.
    pub threads: Option<u32>,
    /// The target grows with the bytes that arrive: it has neither size nor space before.
    pub extends: bool,
}

/// How to copy.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// Copy directories with all that is in them.
    pub recursive: bool,
    /// Which symbolic links are followed; the others are copied as links.
    pub follow: Follow,
    /// What is kept.
    pub preserve: Preserve,
    /// Where [`Preserve::mode`] is not set: what is new gets the permissions that anything new gets, and
    /// not those of the source less the umask.
    pub plain_mode: bool,
    /// What happens to files that are there.
    pub existing: Existing,
    /// What is on the device at the end.
    pub durable: Durable,
    /// Whether blocks are shared where the file system can.
    pub reflink: When,
    /// Whether holes stay holes; `Always` makes holes of zeros too.
    pub sparse: When,
    /// Pins how bytes are moved; refused where that cannot be.
    pub mode: Option<Mode>,
    /// Pins numbers of big files' transfers.
    pub tuning: Tuning,
    /// What is read again.
    pub verify: Verify,
    /// By which hash.
    pub hash: HashKind,
    /// Stay on the file system of each source.
    pub one_file_system: bool,
    /// Keep what is whole when the copy is interrupted, and take up what an earlier one left.
    pub resume: bool,
    /// Threads; `None` for as many as pay.
    pub threads: Option<usize>,
    /// Ends the copy early when it becomes true.
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

/// What a copy has done so far; read by whoever tells it.
#[derive(Debug, Default)]
pub struct CopyCounters {
    /// Bytes that are in their targets.
    pub bytes: AtomicU64,
    /// Files, links and others that are done.
    pub entries: AtomicU64,
}

/// Listens to a copy, from any of its threads.
pub trait Watcher: Sync {
    /// Whether [`copied`](Self::copied) is wanted; paths are built only then.
    fn wants_names(&self) -> bool {
        false
    }

    /// Something is done: a file under its name, a directory that was begun.
    fn copied(&self, from: &Path, to: &Path) {
        let _ = (from, to);
    }

    /// Whether an existing file may be replaced, for [`Existing::Ask`] and
    /// [`Existing::UpdateAsk`].
    fn may_replace(&self, to: &Path) -> bool {
        let _ = to;
        false
    }

    /// A file is written, has no name yet, and is about to be read again.
    fn before_verify(&self, file: BorrowedFd<'_>) {
        let _ = file;
    }

    /// Something worth a line that is no error.
    fn note(&self, text: &str) {
        let _ = text;
    }
}

/// Nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Watcher for Silent {}
