//! The description of one transfer, shared by every method of moving bytes.

use crate::plan::CopyPlan;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why a transfer failed.
#[derive(Debug)]
pub(crate) enum TransferError {
    /// Reading the source failed.
    Read(io::Error),
    /// Writing the target failed.
    Write(io::Error),
    /// The source is shorter than its reported size.
    SourceEnded,
    /// The copy was cancelled.
    Cancelled,
    /// The method does not work for these files. Part of the target may have been written.
    Unsupported(io::Error),
}

/// The cancellation flag and byte counters of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Meter<'a> {
    pub(crate) cancel: &'a AtomicBool,
    /// Bytes copied in all files of this copy.
    pub(crate) all: &'a AtomicU64,
    /// Bytes copied in this file; subtracted again if the transfer fails.
    pub(crate) mine: &'a AtomicU64,
}

impl Meter<'_> {
    pub(crate) fn check_cancelled(&self) -> Result<(), TransferError> {
        if self.cancel.load(Ordering::Relaxed) { Err(TransferError::Cancelled) } else { Ok(()) }
    }

    pub(crate) fn moved(&self, bytes: u64) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.mine.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes copied in this file so far.
    pub(crate) fn so_far(&self) -> u64 {
        self.mine.load(Ordering::Relaxed)
    }

    /// Resets the byte count of this file to `so_far`, because the rest failed or will be copied
    /// again.
    pub(crate) fn take_back_to(&self, so_far: u64) {
        let before = self.mine.swap(so_far, Ordering::Relaxed);
        debug_assert!(before >= so_far, "the counters would underflow: {before} < {so_far} bytes");
        self.all.fetch_sub(before - so_far, Ordering::Relaxed);
    }
}

/// The source and target of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct FilePair<'a> {
    pub(crate) from: BorrowedFd<'a>,
    pub(crate) to: BorrowedFd<'a>,
}

/// One transfer.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) ends: FilePair<'a>,
    /// Size of the source in bytes.
    pub(crate) bytes: u64,
    /// Whether to preserve holes in the source.
    pub(crate) holes: bool,
    /// Whether to turn blocks of zeros into holes.
    pub(crate) punch_zeros: bool,
    /// Whether to reserve space before the first write.
    pub(crate) reserve: bool,
    /// Whether the method is required even if another one is cheaper.
    pub(crate) pinned: bool,
    pub(crate) plan: CopyPlan,
    pub(crate) meter: Meter<'a>,
}

/// Borrows the source and target of a transfer.
pub(crate) fn borrow<'a>(from: &'a impl AsFd, to: &'a impl AsFd) -> FilePair<'a> {
    FilePair { from: from.as_fd(), to: to.as_fd() }
}
