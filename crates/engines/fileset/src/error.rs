//! File set errors, each with advice.

use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::units::format_size;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a set could not be created, read, verified or removed.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The description is not valid.
    #[error("invalid file set: {reason}")]
    Spec {
        /// What is wrong, and how to correct it.
        reason: String,
    },
    /// Parts of a tree could not be read, so its shape is not known.
    #[error("cannot read all of {} (errors: {errors}, first: {reason})", quoted(.dir))]
    Incomplete {
        /// The tree.
        dir: PathBuf,
        /// Number of entries that could not be read.
        errors: u64,
        /// The first error.
        reason: String,
    },
    /// The directory contains something else.
    #[error(
        "cannot create a file set in {}: it is not empty and has no manifest of ioloom; choose an \
         empty or new directory", quoted(.dir)
    )]
    NotOurs {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory contains another set.
    #[error(
        "cannot create a file set in {}: it holds the set '{theirs}', not '{ours}'; choose another \
         directory, or remove that set first", quoted(.dir)
    )]
    OtherSet {
        /// The directory.
        dir: PathBuf,
        /// The existing set.
        theirs: String,
        /// The requested set.
        ours: String,
    },
    /// The directory contains a set with the same text form, but other sizes.
    #[error(
        "cannot create a file set in {}: it holds another set '{text}', whose sizes differ (with \
         like:DIR, because the tree has changed); choose another directory, or remove that set first",
        quoted(.dir)
    )]
    OtherSizes {
        /// The directory.
        dir: PathBuf,
        /// The text form of both sets.
        text: String,
    },
    /// Another process has locked it.
    #[error(
        "the file set in {} is locked by another process that is creating, using or removing it; wait \
         until it exits, or use another directory", quoted(.dir)
    )]
    Busy {
        /// The directory.
        dir: PathBuf,
    },
    /// The set cannot be verified because files may be missing.
    #[error(
        "the file set in {} is incomplete: its creation or removal was interrupted; create it again to \
         complete it, or remove it", quoted(.dir)
    )]
    Unfinished {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no manifest.
    #[error("no file set in {}: '{}' is missing", quoted(.dir), crate::names::MANIFEST)]
    NoSet {
        /// The directory.
        dir: PathBuf,
    },
    /// The manifest is not valid.
    #[error("invalid manifest {}: {reason}; if the set is not needed, remove the directory", quoted(.path))]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is not enough free space to start.
    #[error(
        "not enough space for the file set in {}: it needs {}; {} are free, of which {} are reserved; \
         free some space, or create fewer or smaller files",
        quoted(.dir), format_size(*.needed_bytes), format_size(*.free_bytes),
        format_size(*.reserve_bytes)
    )]
    NoRoom {
        /// The directory.
        dir: PathBuf,
        /// Space needed for the remaining files, in bytes of whole blocks.
        needed_bytes: u64,
        /// Bytes available to this user.
        free_bytes: u64,
        /// Bytes to leave free.
        reserve_bytes: u64,
    },
    /// There are not enough free inodes to start.
    #[error(
        "not enough inodes for the file set in {}: it needs {needed} files and directories, and the \
         file system can hold {free} more; create fewer files, or use another file system",
        quoted(.dir)
    )]
    NoInodes {
        /// The directory.
        dir: PathBuf,
        /// Number of files and directories left to create.
        needed: u64,
        /// Number of free inodes.
        free: u64,
    },
    /// The file system became full.
    #[error(
        "the file system of {} is full after {made} of {files} files; free some space and run the \
         command again to continue, or remove the set", quoted(.dir)
    )]
    Full {
        /// The directory.
        dir: PathBuf,
        /// Number of complete files.
        made: u64,
        /// Number of files in the set.
        files: u64,
    },
    /// The caller stopped it.
    #[error("stopped after {made} of {files} files; run the command again to continue")]
    Stopped {
        /// Number of complete files.
        made: u64,
        /// Number of files in the set.
        files: u64,
    },
    /// A call on a path failed.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl SetError {
    /// Reports whether a call failed because the file system or the quota is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Path(error) if is_full(&error.source))
    }
}

/// Reports whether a call failed because the file system or the quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns a closure for `map_err` that adds the operation and path to an error.
pub(crate) fn io_error(operation: Operation, path: &Path) -> impl FnOnce(io::Error) -> SetError {
    move |source| PathError::new(operation, path, source).into()
}
