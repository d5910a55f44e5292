//! Block after block, by this process or by the kernel.

use super::{Job, Trouble};
use crate::hash::Hasher;
use crate::plan::Mode;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::map::{Map, MapAdvice};
use ioloom_sys::{file, transfer};
use std::io;
use std::ops::Range;

/// Bytes that the kernel is asked to copy by one call, so that the end of the copy and the progress
/// are looked at now and then.
const KERNEL_BLOCK_BYTES: u64 = 64 << 20;

/// Zeros of this size and alignment become a hole.
const HOLE_BYTES: usize = 4096;

/// The kernel copies.
pub(super) fn by_kernel(job: &Job<'_>, range: Range<u64>) -> Result<(), Trouble> {
    let mut at = range.start;
    while at < range.end {
        job.flow.check()?;
        let len = (range.end - at).min(KERNEL_BLOCK_BYTES) as usize;
        match transfer::copy_range(job.ends.from, at, job.ends.to, at, len) {
            // Some file systems of the kernel tell zero though there is more; reading tells.
            Ok(0) => return Err(Trouble::Ended),
            Ok(n) => {
                at += n as u64;
                job.flow.moved(n as u64);
            }
            Err(e) if at == range.start && transfer::is_unsupported(&e) => {
                return Err(Trouble::Unsupported(e));
            }
            Err(e) => return Err(Trouble::Write(e)),
        }
    }
    Ok(())
}

/// This process reads and writes.
pub(super) fn by_blocks(
    job: &Job<'_>,
    range: Range<u64>,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<(), Trouble> {
    let uncached = job.plan.mode == Mode::Uncached;
    let block = buffer.capacity().min(job.plan.block_bytes as usize);
    let mut at = range.start;
    while at < range.end {
        job.flow.check()?;
        let want = block.min((range.end - at) as usize);
        let into = &mut buffer.whole_mut()[..want];
        let got = if uncached {
            match transfer::read_uncached_at(job.ends.from, into, at) {
                Err(e) if at == range.start && transfer::is_unsupported(&e) => {
                    return Err(Trouble::Unsupported(e));
                }
                result => result,
            }
        } else {
            file::read_at(job.ends.from, into, at)
        };
        let got = got.map_err(Trouble::Read)?;
        if got == 0 {
            return Err(Trouble::Ended);
        }
        let bytes = buffer.bytes(got);
        if let Some(hasher) = hasher.as_deref_mut() {
            hasher.update(bytes);
        }
        write(job, bytes, at)?;
        at += got as u64;
        job.flow.moved(got as u64);
    }
    Ok(())
}

/// This process writes what it sees of the mapped source. For measurements: a source that is cut
/// while it is mapped ends the process.
pub(super) fn from_map(
    job: &Job<'_>,
    range: Range<u64>,
    mut hasher: Option<&mut Hasher>,
) -> Result<(), Trouble> {
    let map = Map::new(job.ends.from, job.bytes as usize, MapAdvice::Sequential);
    let map = map.map_err(Trouble::Read)?;
    let mut at = range.start;
    for part in
        map.bytes()[range.start as usize..range.end as usize].chunks(job.plan.block_bytes as usize)
    {
        job.flow.check()?;
        if let Some(hasher) = hasher.as_deref_mut() {
            hasher.update(part);
        }
        write(job, part, at)?;
        at += part.len() as u64;
        job.flow.moved(part.len() as u64);
    }
    Ok(())
}

/// Writes all of `bytes` at `at`, leaving out zeros where they are to be holes.
fn write(job: &Job<'_>, bytes: &[u8], at: u64) -> Result<(), Trouble> {
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

fn write_full(job: &Job<'_>, mut bytes: &[u8], mut at: u64) -> Result<(), Trouble> {
    while !bytes.is_empty() {
        let written = if job.plan.mode == Mode::Uncached {
            match transfer::write_uncached_at(job.ends.to, bytes, at) {
                Err(e) if transfer::is_unsupported(&e) => return Err(Trouble::Unsupported(e)),
                result => result,
            }
        } else {
            transfer::write_at(job.ends.to, bytes, at)
        };
        let written = written.map_err(Trouble::Write)?;
        if written == 0 {
            return Err(Trouble::Write(io::ErrorKind::WriteZero.into()));
        }
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

/// Reads and writes until the source says that it is at its end; returns the bytes.
pub(super) fn to_the_end(
    job: &Job<'_>,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<u64, Trouble> {
    let mut at = 0;
    loop {
        job.flow.check()?;
        let got = file::read_at(job.ends.from, buffer.whole_mut(), at).map_err(Trouble::Read)?;
        if got == 0 {
            return Ok(at);
        }
        let bytes = buffer.bytes(got);
        if let Some(hasher) = hasher.as_deref_mut() {
            hasher.update(bytes);
        }
        write_full(job, bytes, at)?;
        at += got as u64;
        job.flow.moved(got as u64);
    }
}
