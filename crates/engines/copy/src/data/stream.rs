//! Copies sequentially, from or to pipes, terminals and devices, or from a file that is changing.
//!
//! Waits are bounded, so a copy that waits for the other end of a pipe can be cancelled.

use super::blocks::{self, HOLE_BYTES};
use super::job::{Job, TransferError};
use crate::hash::Hasher;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::stream::{self, Ready};
use ioloom_sys::{file, transfer};
use std::io;
use std::time::Duration;

/// Time after which a wait checks whether the copy was cancelled.
const WAIT: Duration = Duration::from_millis(100);

/// Maximum number of successive reads of a kernel file that would block although it is ready.
const READY_MAX: u32 = 10;

/// Time between two such reads.
const READY_WAIT: Duration = Duration::from_millis(10);

/// Copies at most `most` bytes; returns their number.
pub(super) fn copy(
    job: &Job<'_>,
    (reads_stream, writes_stream): (bool, bool),
    most: u64,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<u64, TransferError> {
    if job.punch_zeros && !writes_stream {
        return copy_with_holes(job, reads_stream, most, buffer, hasher);
    }
    let mut at = 0;
    while at < most {
        job.meter.check_cancelled()?;
        let want = (buffer.capacity() as u64).min(most - at) as usize;
        let got = read_next(job, reads_stream, &mut buffer.whole_mut()[..want], at)?;
        if got == 0 {
            break;
        }
        pass_on(job, writes_stream, buffer.bytes(got), at, hasher.as_deref_mut())?;
        at += got as u64;
    }
    Ok(at)
}

/// Like [`copy`], but leaves out blocks of zeros. The part of a block that a short read ends with stays in
/// the buffer until the rest has been read.
fn copy_with_holes(
    job: &Job<'_>,
    reads_stream: bool,
    most: u64,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<u64, TransferError> {
    let (mut at, mut kept) = (0, 0);
    loop {
        job.meter.check_cancelled()?;
        let end = at + kept as u64;
        let want = ((buffer.capacity() - kept) as u64).min(most - end) as usize;
        let got = match want {
            0 => 0,
            _ => read_next(job, reads_stream, &mut buffer.whole_mut()[kept..][..want], end)?,
        };
        let bytes = buffer.bytes(kept + got);
        if let Some(hasher) = hasher.as_deref_mut() {
            hasher.update(&bytes[kept..]);
        }
        let whole = if got == 0 { kept } else { bytes.len() / HOLE_BYTES * HOLE_BYTES };
        blocks::write(job, &bytes[..whole], at)?;
        job.meter.moved(got as u64);
        at += whole as u64;
        if got == 0 {
            // It can end with a hole.
            transfer::set_len(job.ends.to, at).map_err(TransferError::Write)?;
            return Ok(at);
        }
        let end = bytes.len();
        buffer.whole_mut().copy_within(whole..end, 0);
        kept = end - whole;
    }
}

/// Reads once, at `at` unless the source is a pipe or device; zero is the end.
fn read_next(
    job: &Job<'_>,
    is_stream: bool,
    into: &mut [u8],
    at: u64,
) -> Result<usize, TransferError> {
    match is_stream {
        true => read(job, into),
        false => file::read_at(job.ends.from, into, at).map_err(TransferError::Read),
    }
}

fn wait(job: &Job<'_>, ready: Ready) -> io::Result<bool> {
    match ready {
        Ready::Read => stream::wait(job.ends.from, ready, WAIT),
        Ready::Write => stream::wait(job.ends.to, ready, WAIT),
    }
}

fn read(job: &Job<'_>, into: &mut [u8]) -> Result<usize, TransferError> {
    loop {
        job.meter.check_cancelled()?;
        // A pipe without a writer reads as empty; it is ready once a writer has been there.
        if !wait(job, Ready::Read).map_err(TransferError::Read)? {
            continue;
        }
        match stream::read(job.ends.from, into) {
            Err(e) if stream::would_block(&e) => {}
            got => return got.map_err(TransferError::Read),
        }
    }
}

/// Reads once at the current position of a regular file whose size is unknown; zero is the end. Files of the kernel can
/// require a large buffer, have no offsets, or wait for data.
pub(super) fn read_unsized(job: &Job<'_>, into: &mut [u8]) -> Result<usize, TransferError> {
    let mut blocked = 0;
    loop {
        job.meter.check_cancelled()?;
        match stream::read(job.ends.from, &mut *into) {
            // Another reader can have taken the data. A file that cannot be polled is always ready: the error remains.
            Err(e) if stream::would_block(&e) && blocked < READY_MAX => {
                if !wait(job, Ready::Read).map_err(TransferError::Read)? {
                    blocked = 0;
                    continue;
                }
                if blocked > 0 {
                    std::thread::sleep(READY_WAIT);
                }
                blocked += 1;
            }
            got => return got.map_err(TransferError::Read),
        }
    }
}

/// Copies such a file to its end. Its first `got` bytes are in the buffer. Returns the number of bytes copied, and
/// leaves the file at its start.
pub(super) fn copy_unsized(
    job: &Job<'_>,
    mut got: usize,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<u64, TransferError> {
    let mut at = 0;
    while got > 0 {
        pass_on(job, false, buffer.bytes(got), at, hasher.as_deref_mut())?;
        at += got as u64;
        got = read_unsized(job, buffer.whole_mut())?;
    }
    // Another attempt reads it again. Ignore a failure: what has no offsets can be read only once.
    let _ = stream::rewind(job.ends.from);
    Ok(at)
}

/// Writes what was read, and counts and hashes it.
fn pass_on(
    job: &Job<'_>,
    to_stream: bool,
    bytes: &[u8],
    at: u64,
    hasher: Option<&mut Hasher>,
) -> Result<(), TransferError> {
    if let Some(hasher) = hasher {
        hasher.update(bytes);
    }
    write_all(job, to_stream, bytes, at)?;
    job.meter.moved(bytes.len() as u64);
    Ok(())
}

fn write_all(
    job: &Job<'_>,
    to_stream: bool,
    mut bytes: &[u8],
    mut at: u64,
) -> Result<(), TransferError> {
    while !bytes.is_empty() {
        job.meter.check_cancelled()?;
        let written = if to_stream {
            stream::write(job.ends.to, bytes)
        } else {
            transfer::write_next_at(job.ends.to, bytes, at)
        };
        match written {
            Err(e) if to_stream && stream::would_block(&e) => {
                wait(job, Ready::Write).map_err(TransferError::Write)?;
            }
            Err(e) => return Err(TransferError::Write(e)),
            Ok(0) => return Err(TransferError::Write(io::ErrorKind::WriteZero.into())),
            Ok(n) => {
                bytes = &bytes[n..];
                at += n as u64;
            }
        }
    }
    Ok(())
}
