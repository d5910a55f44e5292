//! Copies sequentially, from or to pipes, terminals and devices, or from a file that is changing.
//!
//! Waits are bounded, so a copy that waits for the other end of a pipe can be cancelled.

use super::job::{Job, TransferError};
use crate::hash::Hasher;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::stream::{self, Ready};
use ioloom_sys::{file, transfer};
use std::io;
use std::time::Duration;

/// Time after which a wait checks whether the copy was cancelled.
const WAIT: Duration = Duration::from_millis(100);

/// Copies at most `most` bytes; returns their number.
pub(super) fn copy(
    job: &Job<'_>,
    (reads_stream, writes_stream): (bool, bool),
    most: u64,
    buffer: &mut Buffer,
    mut hasher: Option<&mut Hasher>,
) -> Result<u64, TransferError> {
    let mut at = 0;
    while at < most {
        job.meter.check_cancelled()?;
        let want = (buffer.capacity() as u64).min(most - at) as usize;
        let into = &mut buffer.whole_mut()[..want];
        let got = match reads_stream {
            true => read(job, into)?,
            false => file::read_at(job.ends.from, into, at).map_err(TransferError::Read)?,
        };
        if got == 0 {
            break;
        }
        let bytes = buffer.bytes(got);
        if let Some(hasher) = hasher.as_deref_mut() {
            hasher.update(bytes);
        }
        write_all(job, writes_stream, bytes, at)?;
        at += got as u64;
        job.meter.moved(got as u64);
    }
    Ok(at)
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
            transfer::write_at(job.ends.to, bytes, at)
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
