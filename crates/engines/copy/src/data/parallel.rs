//! Copies parts of one big file in parallel.
//!
//! A thread takes the next part when it has finished one, so a slow part delays no other. The target
//! has its final size before, because writes that extend a file are serialized. Writeback of a part
//! starts as soon as it is copied; otherwise it would all happen at the end, when a sync waits for it.

use super::blocks;
use super::job::{Job, TransferError};

use ioloom_sys::buffer::Buffer;
use ioloom_sys::transfer;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Size of one part, bytes: several of the largest requests that devices accept.
const PART_BYTES: u64 = 8 << 20;

/// Copies a range with several threads, including the caller.
pub(super) fn transfer(job: &Job<'_>, range: Range<u64>) -> Result<(), TransferError> {
    assert!(
        !range.is_empty() && range.end <= job.bytes,
        "a range beyond the source would read its end as an error: {range:?}"
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
        "without an error, every part was taken: a missing one would be a hole of zeros"
    );
    first.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Starts writeback of a part while others are copied. A file system that does not support this
/// writes it back in its own time.
fn begin_write(job: &Job<'_>, done: Range<u64>) -> Result<(), TransferError> {
    match transfer::start_writeback(job.ends.to, done) {
        Err(e) if !transfer::is_unsupported(&e) => Err(TransferError::Write(e)),
        _ => Ok(()),
    }
}
