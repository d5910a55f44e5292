//! Copies parts of one large file in parallel.
//!
//! Each thread takes the next part when it finishes one, so a slow part does not delay the others.
//! The target is extended to its final size first, because writes that extend a file are
//! serialized. Writeback of a part starts as soon as it is copied; otherwise it would all happen
//! during the final sync.

use super::blocks;
use super::job::{Job, TransferError};

use ioloom_sys::buffer::Buffer;
use ioloom_sys::transfer;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Part size in bytes: several times the largest request that devices accept.
const PART_BYTES: u64 = 8 << 20;

/// Copies a range with several threads, including the calling one.
pub(super) fn transfer(job: &Job<'_>, range: Range<u64>) -> Result<(), TransferError> {
    assert!(
        !range.is_empty() && range.end <= job.bytes,
        "a range past the end of the source would cause a read error: {range:?}"
    );
    let threads = u64::from(job.plan.threads).min((range.end - range.start).div_ceil(PART_BYTES));
    let next = AtomicU64::new(range.start);
    let stop = AtomicBool::new(false);
    let first: Mutex<Option<TransferError>> = Mutex::new(None);
    let work = || {
        let mut buffer = Buffer::new(job.plan.block_bytes as usize);
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(PART_BYTES, Ordering::Relaxed);
            if at >= range.end {
                return;
            }
            let done = at..(at + PART_BYTES).min(range.end);
            let moved = blocks::read_and_write(job, done.clone(), &mut buffer, None);
            if let Err(error) = moved.and_then(|()| begin_write(job, done)) {
                stop.store(true, Ordering::Relaxed);
                let mut first = first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                first.get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If a thread cannot be started, the others do its work.
            let thread = std::thread::Builder::new().name("ioloom-copy".to_owned());
            let _ = thread.spawn_scoped(scope, work);
        }
        work();
    });
    debug_assert!(
        stop.into_inner() || next.into_inner() >= range.end,
        "without an error, every part must be taken; a missing one would leave zeros"
    );
    first.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Starts writeback of a part while others are copied. File systems without support for this write
/// it back at their own pace.
fn begin_write(job: &Job<'_>, done: Range<u64>) -> Result<(), TransferError> {
    match transfer::start_writeback(job.ends.to, done) {
        Err(e) if !transfer::is_unsupported(&e) => Err(TransferError::Write(e)),
        _ => Ok(()),
    }
}
