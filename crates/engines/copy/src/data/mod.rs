//! Moving the bytes of one open file into another.
//!
//! Every way loops until its range is done: a call that moves less than asked is normal, and one
//! that moves nothing means that the source ended early, which is an error, never a shorter copy.
//! Holes of the source are skipped, so that they stay holes.

mod blocks;
mod direct;
mod parallel;

use crate::hash::Hasher;
use crate::plan::{CopyPlan, Mode};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::transfer;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes below which space is not reserved first: it would cost more than it tells.
pub(crate) const RESERVE_BYTES_MIN: u64 = 64 << 10;

/// Why bytes did not arrive.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The source could not be read.
    Read(io::Error),
    /// The target could not be written.
    Write(io::Error),
    /// The source ended before the size that it had.
    Ended,
    /// The copy was ended.
    Cancelled,
    /// This way does not work here; nothing or part of it was written.
    Unsupported(io::Error),
}

/// What bytes flow past: the end of the copy, the counter, the hash.
#[derive(Clone, Copy)]
pub(crate) struct Flow<'a> {
    pub(crate) cancel: &'a AtomicBool,
    /// Bytes of all files of the copy.
    pub(crate) all: &'a AtomicU64,
    /// Bytes of this file, to be taken back if it fails.
    pub(crate) mine: &'a AtomicU64,
}

impl Flow<'_> {
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        if self.cancel.load(Ordering::Relaxed) { Err(Trouble::Cancelled) } else { Ok(()) }
    }

    pub(crate) fn moved(&self, bytes: u64) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.mine.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of this file so far.
    pub(crate) fn so_far(&self) -> u64 {
        self.mine.load(Ordering::Relaxed)
    }

    /// What was moved of this file beyond `so_far` does not count: it failed, or is moved again.
    pub(crate) fn take_back_to(&self, so_far: u64) {
        let before = self.mine.swap(so_far, Ordering::Relaxed);
        self.all.fetch_sub(before - so_far, Ordering::Relaxed);
    }
}

/// The two ends of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    pub(crate) from: BorrowedFd<'a>,
    pub(crate) to: BorrowedFd<'a>,
}

/// What a transfer is about.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) ends: Ends<'a>,
    /// Size of the source, bytes.
    pub(crate) bytes: u64,
    /// The source has holes that are to stay.
    pub(crate) holes: bool,
    /// Blocks of zeros become holes.
    pub(crate) punch_zeros: bool,
    /// Space is reserved before the first byte.
    pub(crate) reserve: bool,
    /// The plan's way is gone also where another one is cheaper.
    pub(crate) pinned: bool,
    pub(crate) plan: CopyPlan,
    pub(crate) flow: Flow<'a>,
}

/// Moves all bytes of a job by a plan other than reflink. `hasher` sees every byte in order.
pub(crate) fn transfer(
    job: &Job<'_>,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<(), Trouble> {
    prepare(job)?;
    let mut at = 0;
    while at < job.bytes {
        let next = if job.holes { next_data(job, at)? } else { Some(at..job.bytes) };
        let data = next.unwrap_or(job.bytes..job.bytes);
        if let Some(hasher) = hasher.as_deref_mut() {
            hasher.zeros(data.start - at);
        }
        if !data.is_empty() {
            range(job, data.clone(), buffer, hasher.as_deref_mut())?;
        }
        at = data.end;
    }
    let padded = job.plan.mode == Mode::Direct && !job.bytes.is_multiple_of(direct::ALIGN);
    if padded || job.plan.extends {
        // The last block was written whole, or a hole at the end was not written at all.
        transfer::set_len(job.ends.to, job.bytes).map_err(Trouble::Write)?;
    }
    Ok(())
}

/// Moves one part of a file whose space is there; who moves the last one sets the size.
pub(crate) fn part(
    job: &Job<'_>,
    data: Range<u64>,
    buffer: &mut Buffer,
    hasher: &mut Hasher,
) -> Result<(), Trouble> {
    range(job, data, buffer, Some(hasher))
}

/// Makes the target as long as the source and reserves space where data will be.
pub(crate) fn prepare(job: &Job<'_>) -> Result<(), Trouble> {
    if job.plan.extends {
        return Ok(());
    }
    let direct = job.plan.mode == Mode::Direct;
    let side_by_side = job.plan.threads > 1;
    if job.holes || job.punch_zeros || direct || side_by_side {
        // Writers that make a file longer wait for each other.
        let bytes = if direct { job.bytes.next_multiple_of(direct::ALIGN) } else { job.bytes };
        transfer::set_len(job.ends.to, bytes).map_err(Trouble::Write)?;
    }
    if !job.reserve || job.punch_zeros || job.bytes < RESERVE_BYTES_MIN {
        return Ok(());
    }
    let mut at = 0;
    while at < job.bytes {
        let next = if job.holes { next_data(job, at)? } else { Some(at..job.bytes) };
        let Some(data) = next.filter(|data| !data.is_empty()) else { break };
        let end = if direct { data.end.next_multiple_of(direct::ALIGN) } else { data.end };
        match transfer::allocate(job.ends.to, data.start..end) {
            Err(e) if transfer::is_unsupported(&e) => return Ok(()),
            result => result.map_err(Trouble::Write)?,
        }
        at = data.end;
    }
    Ok(())
}

/// The next range with data, within the size that the source had.
fn next_data(job: &Job<'_>, at: u64) -> Result<Option<Range<u64>>, Trouble> {
    let data = transfer::next_data(job.ends.from, at).map_err(Trouble::Read)?;
    Ok(data.map(|data| data.start.min(job.bytes)..data.end.min(job.bytes)))
}

/// Moves one range that holds data.
fn range(
    job: &Job<'_>,
    range: Range<u64>,
    buffer: &mut Buffer,
    hasher: Option<&mut Hasher>,
) -> Result<(), Trouble> {
    match job.plan.mode {
        Mode::Range => blocks::by_kernel(job, range),
        Mode::Direct if direct::pays(&range, job.pinned) => {
            direct::past_the_cache(job, range, hasher)
        }
        Mode::Mmap => blocks::from_map(job, range, hasher),
        Mode::Buffered | Mode::Uncached | Mode::Direct | Mode::Reflink => {
            if job.plan.threads > 1 && hasher.is_none() {
                return parallel::side_by_side(job, range);
            }
            blocks::by_blocks(job, range, buffer, hasher)
        }
    }
}

/// Copies to the end of a source whose size is told as zero (files of the kernel).
pub(crate) fn to_the_end(
    job: &Job<'_>,
    buffer: &mut Buffer,
    hasher: Option<&mut Hasher>,
) -> Result<u64, Trouble> {
    blocks::to_the_end(job, buffer, hasher)
}

/// The two ends of a transfer.
pub(crate) fn borrow<'a>(from: &'a impl AsFd, to: &'a impl AsFd) -> Ends<'a> {
    Ends { from: from.as_fd(), to: to.as_fd() }
}
