//! Copies the contents of one open file to another.
//!
//! Every method loops until its range is complete because short reads and writes are normal. A read
//! of zero bytes means that the source was truncated, which is an error; only [`changing`] ends there. Holes
//! in the source are skipped and remain holes.

mod blocks;
mod direct;
mod job;
mod parallel;
mod stream;

pub(crate) use job::{Job, Meter, TransferError, borrow};

use crate::hash::Hasher;
use crate::mode::Mode;
use ioloom_sys::attr;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::transfer;
use std::ops::Range;

/// Minimum file size for which space is reserved, in bytes. Below it, the call is not worth its
/// cost.
pub(crate) const RESERVE_BYTES_MIN: u64 = 64 << 10;

/// Copies all bytes of a job by any plan except reflink. `hasher` receives every byte in order.
pub(crate) fn transfer(
    job: &Job<'_>,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<(), TransferError> {
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
        // Direct I/O wrote the last block in full, or skipped a hole at the end.
        transfer::set_len(job.ends.to, job.bytes).map_err(TransferError::Write)?;
    }
    Ok(())
}

/// Copies one range of a prepared file. The caller sets the size after the last range.
pub(crate) fn transfer_range(
    job: &Job<'_>,
    data: Range<u64>,
    buffer: &mut Buffer,
    hasher: &mut Hasher,
) -> Result<(), TransferError> {
    range(job, data, buffer, Some(hasher))
}

/// Extends the target to the size of the source and reserves space for its data.
pub(crate) fn prepare(job: &Job<'_>) -> Result<(), TransferError> {
    if job.plan.extends {
        return Ok(());
    }
    let direct = job.plan.mode == Mode::Direct;
    let in_parallel = job.plan.threads > 1;
    if job.holes || job.punch_zeros || direct || in_parallel {
        // The kernel serializes writes that extend a file.
        let bytes = if direct { job.bytes.next_multiple_of(direct::ALIGN) } else { job.bytes };
        transfer::set_len(job.ends.to, bytes).map_err(TransferError::Write)?;
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
            result => result.map_err(TransferError::Write)?,
        }
        at = data.end;
    }
    Ok(())
}

/// Returns the next range with data within the original size of the source. Where holes cannot be
/// found, as on some FUSE file systems, all of it is data.
fn next_data(job: &Job<'_>, at: u64) -> Result<Option<Range<u64>>, TransferError> {
    match transfer::next_data(job.ends.from, at) {
        Ok(data) => Ok(data.map(|data| data.start.min(job.bytes)..data.end.min(job.bytes))),
        Err(e) if transfer::is_unsupported(&e) => Ok(Some(at..job.bytes)),
        Err(e) => Err(TransferError::Read(e)),
    }
}

/// Copies one range that contains data.
fn range(
    job: &Job<'_>,
    range: Range<u64>,
    buffer: &mut Buffer,
    hasher: Option<&mut Hasher>,
) -> Result<(), TransferError> {
    match job.plan.mode {
        Mode::Range => blocks::copy_file_range(job, range),
        Mode::Direct if direct::pays(&range, job.pinned) => direct::transfer(job, range, hasher),
        Mode::Mmap => blocks::read_mapped(job, range, hasher),
        Mode::Buffered | Mode::Uncached | Mode::Direct | Mode::Reflink => {
            if job.plan.threads > 1 && hasher.is_none() {
                return parallel::transfer(job, range);
            }
            blocks::read_and_write(job, range, buffer, hasher)
        }
    }
}

/// Copies sequentially to the end of the source, at most `most` bytes. `ends`: whether source and
/// target are pipes or devices.
pub(crate) fn sequential(
    job: &Job<'_>,
    ends: (bool, bool),
    most: u64,
    buffer: &mut Buffer,
    hasher: Option<&mut Hasher>,
) -> Result<u64, TransferError> {
    stream::copy(job, ends, most, buffer, hasher)
}

/// Reads the beginning of a source that reports size zero; returns the number of bytes. Zero means that it is empty.
pub(crate) fn first_of_unsized(job: &Job<'_>, buffer: &mut Buffer) -> Result<usize, TransferError> {
    stream::read_unsized(job, buffer.whole_mut())
}

/// Copies such a source, whose first `got` bytes are in the buffer, to its end; returns the number of bytes copied.
pub(crate) fn rest_of_unsized(
    job: &Job<'_>,
    got: usize,
    buffer: &mut Buffer,
    hasher: Option<&mut Hasher>,
) -> Result<u64, TransferError> {
    stream::copy_unsized(job, got, buffer, hasher)
}

/// Copies a source that other programs change, at most `job.bytes` of it; returns the size of the
/// copy. What was cut off before it was read is not in it.
pub(crate) fn changing(
    job: &Job<'_>,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<u64, TransferError> {
    let mut at = 0;
    while at < job.bytes {
        let next = if job.holes { next_data(job, at)? } else { Some(at..job.bytes) };
        let data = match next {
            Some(data) => data,
            // Only a hole is left of the current size.
            None => {
                let now = attr::of_file(job.ends.from).map_err(TransferError::Read)?;
                let end = now.bytes.min(job.bytes).max(at);
                end..end
            }
        };
        if let Some(hasher) = hasher.as_deref_mut() {
            hasher.zeros(data.start - at);
        }
        at = data.start;
        if data.is_empty() {
            break;
        }
        let before = job.meter.so_far();
        match blocks::read_and_write(job, data.clone(), buffer, hasher.as_deref_mut()) {
            Err(TransferError::SourceEnded) => {
                at += job.meter.so_far() - before;
                break;
            }
            copied => copied?,
        }
        at = data.end;
    }
    if job.holes || job.punch_zeros {
        transfer::set_len(job.ends.to, at).map_err(TransferError::Write)?;
    }
    Ok(at)
}

/// Copies to the end of a source that reports size zero (kernel files).
pub(crate) fn until_eof(
    job: &Job<'_>,
    buffer: &mut Buffer,
    hasher: Option<&mut Hasher>,
) -> Result<u64, TransferError> {
    blocks::until_eof(job, buffer, hasher)
}
