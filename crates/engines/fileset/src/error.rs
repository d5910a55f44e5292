//! What can go wrong with a set, each with what to do.

use ioloom_model::units::format_size;
use std::io;
use std::path::{Path, PathBuf};

/// Why a set could not be made, read, checked or removed.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The description asks for something that cannot be made.
    #[error("cannot make this set: {reason}")]
    Spec {
        /// What is wrong with it, and what is right.
        reason: String,
    },
    /// The directory holds something else.
    #[error(
        "refused to make a set in {}: it is not empty and has no manifest of ours; choose an empty \
         or new directory", .dir.display()
    )]
    NotOurs {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory holds another set.
    #[error(
        "refused to make a set in {}: it holds the set '{theirs}', not '{ours}'; choose another \
         directory, or remove that set first", .dir.display()
    )]
    OtherSet {
        /// The directory.
        dir: PathBuf,
        /// The set that is there.
        theirs: String,
        /// The set that was asked for.
        ours: String,
    },
    /// Another process holds it.
    #[error(
        "the set in {} is being made, used or removed by another process, and both would disturb \
         each other; wait for its end, or use another directory", .dir.display()
    )]
    Busy {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no manifest.
    #[error("{} holds no set: there is no {} in it", .dir.display(), crate::MANIFEST)]
    NoSet {
        /// The directory.
        dir: PathBuf,
    },
    /// The manifest cannot be understood.
    #[error("the manifest {} cannot be read: {reason}; if the set is not needed, remove the \
         directory by hand", .path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Not enough room before starting.
    #[error(
        "refused to make a set in {}: it needs {} and {} are free, of which {} are kept in \
         reserve; free some space, or make fewer or smaller files",
        .dir.display(), format_size(*.needed_bytes), format_size(*.free_bytes),
        format_size(*.reserve_bytes)
    )]
    NoRoom {
        /// The directory.
        dir: PathBuf,
        /// Bytes still to be written, in whole blocks.
        needed_bytes: u64,
        /// Bytes free for this user.
        free_bytes: u64,
        /// Bytes that are not touched.
        reserve_bytes: u64,
    },
    /// Not enough inodes before starting.
    #[error(
        "refused to make a set in {}: it needs {needed} files and directories, and the file system \
         takes {free} more; make fewer files, or use another file system", .dir.display()
    )]
    NoInodes {
        /// The directory.
        dir: PathBuf,
        /// Files and directories still to be made.
        needed: u64,
        /// What the file system takes.
        free: u64,
    },
    /// The device filled up while files were written.
    #[error(
        "the file system of {} is full after {made} of {files} files; free some space and run it \
         again to go on, or remove the set", .dir.display()
    )]
    Full {
        /// The directory.
        dir: PathBuf,
        /// Files that are complete.
        made: u64,
        /// Files of the set.
        files: u64,
    },
    /// The caller ended it.
    #[error("stopped after {made} of {files} files; run it again to go on")]
    Stopped {
        /// Files that are complete.
        made: u64,
        /// Files of the set.
        files: u64,
    },
    /// A call failed.
    #[error("cannot {operation} {}: {source}; {}", .path.display(), advice(.source))]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A tree could not be walked.
    #[error(transparent)]
    Walk(#[from] ioloom_failure::PathError),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "choose a directory that you may write to",
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space",
        io::ErrorKind::ReadOnlyFilesystem => "choose a file system that can be written",
        _ => "check the file system and the kernel log",
    }
}

/// Gives an error of a call its operation and its path.
pub(crate) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SetError {
    let path = path.to_owned();
    move |source| SetError::Io { operation, path, source }
}
