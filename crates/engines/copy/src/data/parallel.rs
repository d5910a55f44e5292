//! Parts of one big file side by side.
//!
//! A thread takes the next part when it is done with one, so that a slow part holds nobody up. The
//! target has its final size before, else writers would wait for each other at its end. The kernel
//! is told to write a part as soon as it is copied: it would do so later in any case, and then
//! whoever waits for the device waits for all of it.

use super::{Job, Trouble, blocks};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::transfer;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of one part: some of the largest requests that devices take.
const PART_BYTES: u64 = 8 << 20;

/// Copies a range by several threads, the caller among them.
pub(super) fn side_by_side(job: &Job<'_>, range: Range<u64>) -> Result<(), Trouble> {
    let threads = u64::from(job.plan.threads).min((range.end - range.start).div_ceil(PART_BYTES));
    let next = AtomicU64::new(range.start);
    let stop = AtomicBool::new(false);
    let first: Mutex<Option<Trouble>> = Mutex::new(None);
    let work = || {
        let mut buffer = Buffer::new(job.plan.block_bytes as usize);
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(PART_BYTES, Ordering::Relaxed);
            if at >= range.end {
                return;
            }
            let done = at..(at + PART_BYTES).min(range.end);
            let moved = blocks::by_blocks(job, done.clone(), &mut buffer, None);
            if let Err(trouble) = moved.and_then(|()| begin_write(job, done)) {
                stop.store(true, Ordering::Relaxed);
                let mut first = first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                first.get_or_insert(trouble);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // A thread that the system refuses is done without.
            let thread = std::thread::Builder::new().name("ioloom-copy".to_owned());
            let _ = thread.spawn_scoped(scope, work);
        }
        work();
    });
    first.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Lets the kernel begin to write a part while others are copied. A file system that knows no such
/// thing writes it when it wants to.
fn begin_write(job: &Job<'_>, done: Range<u64>) -> Result<(), Trouble> {
    match transfer::start_writeback(job.ends.to, done) {
        Err(e) if !transfer::is_unsupported(&e) => Err(Trouble::Write(e)),
        _ => Ok(()),
    }
}
