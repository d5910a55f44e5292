//! Copies block by block, in this process or in the kernel.

use super::job::{Job, TransferError};
use crate::hash::Hasher;
use crate::mode::Mode;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::map::{Map, MapAdvice};
use ioloom_sys::{file, transfer};
use std::io;
use std::ops::Range;

/// Maximum number of bytes per `copy_file_range` call. Between calls, progress is updated and
/// cancellation is checked.
const KERNEL_BLOCK_BYTES: u64 = 64 << 20;

/// Size and alignment of zero blocks that become a hole, in bytes.
pub(super) const HOLE_BYTES: usize = 4096;

/// Copies a range using the kernel.
pub(super) fn copy_file_range(job: &Job<'_>, range: Range<u64>) -> Result<(), TransferError> {
    let mut at = range.start;
    while at < range.end {
        job.meter.check_cancelled()?;
        let len = (range.end - at).min(KERNEL_BLOCK_BYTES) as usize;
        match transfer::copy_range(job.ends.from, at, job.ends.to, at, len) {
            // Some kernel file systems return zero before the end of the file; they can only be
            // read.
            Ok(0) => return Err(TransferError::SourceEnded),
            Ok(n) => {
                at += n as u64;
                job.meter.moved(n as u64);
            }
            Err(e) if at == range.start && transfer::is_unsupported(&e) => {
                return Err(TransferError::Unsupported(e));
            }
            Err(e) => return Err(TransferError::Write(e)),
        }
    }
    Ok(())
}

/// Copies a range with reads and writes.
pub(super) fn read_and_write(
    job: &Job<'_>,
    range: Range<u64>,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<(), TransferError> {
    let uncached = job.plan.mode == Mode::Uncached;
    let block = buffer.capacity().min(job.plan.block_bytes as usize);
    let mut at = range.start;
    while at < range.end {
        job.meter.check_cancelled()?;
        let want = block.min((range.end - at) as usize);
        let into = &mut buffer.whole_mut()[..want];
        let got = if uncached {
            match transfer::read_uncached_at(job.ends.from, into, at) {
                Err(e) if at == range.start && transfer::is_unsupported(&e) => {
                    return Err(TransferError::Unsupported(e));
                }
                result => result,
            }
        } else {
            file::read_at(job.ends.from, into, at)
        };
        let got = got.map_err(TransferError::Read)?;
        if got == 0 {
            return Err(TransferError::SourceEnded);
        }
        let bytes = buffer.bytes(got);
        if let Some(hasher) = hasher.as_deref_mut() {
            hasher.update(bytes);
        }
        write(job, bytes, at)?;
        at += got as u64;
        job.meter.moved(got as u64);
    }
    Ok(())
}

/// Copies a range by writing from a mapping of the source. For measurements only: truncating the
/// source kills the process with `SIGBUS`.
pub(super) fn read_mapped(
    job: &Job<'_>,
    range: Range<u64>,
    mut hasher: Option<&mut Hasher>,
) -> Result<(), TransferError> {
    let map = Map::new(job.ends.from, job.bytes as usize, MapAdvice::Sequential);
    let map = map.map_err(TransferError::Read)?;
    let mut at = range.start;
    for part in
        map.bytes()[range.start as usize..range.end as usize].chunks(job.plan.block_bytes as usize)
    {
        job.meter.check_cancelled()?;
        if let Some(hasher) = hasher.as_deref_mut() {
            hasher.update(part);
        }
        write(job, part, at)?;
        at += part.len() as u64;
        job.meter.moved(part.len() as u64);
    }
    Ok(())
}

/// Writes all of `bytes` at `at`, skipping zero blocks that become holes.
pub(super) fn write(job: &Job<'_>, bytes: &[u8], at: u64) -> Result<(), TransferError> {
    if !job.punch_zeros {
        return write_full(job, bytes, at);
    }
    let mut start = None;
    for (number, part) in bytes.chunks(HOLE_BYTES).enumerate() {
        let here = number * HOLE_BYTES;
        let zeros = part.iter().all(|b| *b == 0);
        match (zeros, start) {
            (true, Some(from)) => {
                write_full(job, &bytes[from..here], at + from as u64)?;
                start = None;
            }
            (false, None) => start = Some(here),
            _ => {}
        }
    }
    match start {
        Some(from) => write_full(job, &bytes[from..], at + from as u64),
        None => Ok(()),
    }
}

fn write_full(job: &Job<'_>, mut bytes: &[u8], mut at: u64) -> Result<(), TransferError> {
    // A hole, or a part that another thread writes, is not in a file without offsets.
    let in_order = !(job.holes || job.punch_zeros) && job.plan.threads <= 1;
    while !bytes.is_empty() {
        let written = if job.plan.mode == Mode::Uncached {
            match transfer::write_uncached_at(job.ends.to, bytes, at) {
                Err(e) if transfer::is_unsupported(&e) => {
                    return Err(TransferError::Unsupported(e));
                }
                result => result,
            }
        } else if in_order {
            transfer::write_next_at(job.ends.to, bytes, at)
        } else {
            transfer::write_at(job.ends.to, bytes, at)
        };
        let written = written.map_err(TransferError::Write)?;
        if written == 0 {
            return Err(TransferError::Write(io::ErrorKind::WriteZero.into()));
        }
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

/// Reads and writes until the end of the source; returns the number of bytes copied.
pub(super) fn until_eof(
    job: &Job<'_>,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<u64, TransferError> {
    let mut at = 0;
    loop {
        job.meter.check_cancelled()?;
        let got =
            file::read_at(job.ends.from, buffer.whole_mut(), at).map_err(TransferError::Read)?;
        if got == 0 {
            return Ok(at);
        }
        let bytes = buffer.bytes(got);
        if let Some(hasher) = hasher.as_deref_mut() {
            hasher.update(bytes);
        }
        write_full(job, bytes, at)?;
        at += got as u64;
        job.meter.moved(got as u64);
    }
}
