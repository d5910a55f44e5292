//! Copies without the page cache, keeping many requests in flight with io_uring.
//!
//! Each slot has a buffer that is filled by a read and then written; while one slot writes, others
//! read. The target is extended to its final size first, because writes that extend a file are
//! serialized. The last block is padded with zeros, written in full, and truncated afterwards.
//! Reads and writes are not linked, because a short last read would break the chain. If source and
//! target are on the same rotating disk, all slots are filled before the first write, to seek once
//! per round rather than once per block.
//!
//! Buffers use huge pages if available: a 4 MiB request then has two segments instead of a
//! thousand, which is more than many devices accept.
//!
//! Memory: depth times block size; 16 MiB by default.

use super::job::{Job, TransferError};
use crate::hash::Hasher;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::descriptor;
use ioloom_sys::ring::{Completion, Outcome, Ring};
use ioloom_sys::transfer;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// Alignment of offsets and lengths in bytes. No current file system requires more.
pub(super) const ALIGN: u64 = 4096;

/// Minimum range size for which setting up a ring pays off, in bytes.
const PAYS_BYTES_MIN: u64 = 1 << 20;

/// Returns true if a range is aligned, and either large enough or required to use this method.
pub(super) fn pays(range: &Range<u64>, pinned: bool) -> bool {
    let worth_it = pinned || range.end - range.start >= PAYS_BYTES_MIN;
    worth_it && range.start.is_multiple_of(ALIGN)
}

/// Copies a range.
pub(super) fn transfer(
    job: &Job<'_>,
    range: Range<u64>,
    hasher: Option<&mut Hasher>,
) -> Result<(), TransferError> {
    assert!(range.start.is_multiple_of(ALIGN), "direct I/O requires aligned offsets: {range:?}");
    let flags = Flags::set(job)?;
    let moved = Pipeline::new(job, range, hasher).and_then(Pipeline::run);
    drop(flags);
    match moved {
        // The file system reports support for direct I/O but rejects these requests.
        Err(TransferError::Write(e) | TransferError::Read(e)) if is_refusal(&e) => {
            Err(TransferError::Unsupported(e))
        }
        moved => moved,
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput || error.kind() == io::ErrorKind::Unsupported
}

/// Sets `O_DIRECT` on both files until dropped.
struct Flags<'a>(&'a Job<'a>);

impl<'a> Flags<'a> {
    fn set(job: &'a Job<'a>) -> Result<Self, TransferError> {
        transfer::set_direct(job.ends.to, true).map_err(TransferError::Unsupported)?;
        let flags = Self(job);
        if job.plan.reads_direct {
            transfer::set_direct(job.ends.from, true).map_err(TransferError::Unsupported)?;
        }
        Ok(flags)
    }
}

impl Drop for Flags<'_> {
    fn drop(&mut self) {
        // A failure is ignored: only metadata reads and a sync follow on these files.
        let _ = transfer::set_direct(self.0.ends.to, false);
        let _ = transfer::set_direct(self.0.ends.from, false);
    }
}

/// The state of one block in flight.
struct Slot {
    /// Both files and the buffer; `None` while the ring owns them.
    from: Option<OwnedFd>,
    to: Option<OwnedFd>,
    buffer: Option<Buffer>,
    /// Offset of the block.
    at: u64,
    /// Number of bytes in the block that belong to the file.
    want: usize,
    /// Number of bytes of `want` that have been read or, later, written.
    done: usize,
}

struct Pipeline<'a> {
    job: &'a Job<'a>,
    ring: Ring,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Blocks that have been read but not yet hashed or written, by offset.
    read: BTreeMap<u64, usize>,
    next_read: u64,
    /// The next offset to hash.
    next_hash: u64,
    end: u64,
    reading: usize,
    writing: usize,
    hasher: Option<&'a mut Hasher>,
}

impl<'a> Pipeline<'a> {
    fn new(
        job: &'a Job<'a>,
        range: Range<u64>,
        hasher: Option<&'a mut Hasher>,
    ) -> Result<Self, TransferError> {
        let bytes = range.end - range.start;
        let block = u64::from(job.plan.block_bytes).min(bytes).next_multiple_of(ALIGN) as usize;
        let blocks = bytes.div_ceil(block as u64);
        let depth = u64::from(job.plan.depth.max(1)).min(blocks) as usize;
        let ring = Ring::new(depth as u32).map_err(TransferError::Unsupported)?;
        let slot = |_| {
            Ok(Slot {
                from: Some(job.ends.from.try_clone_to_owned().map_err(TransferError::Read)?),
                to: Some(job.ends.to.try_clone_to_owned().map_err(TransferError::Write)?),
                buffer: Some(Buffer::huge(block).unwrap_or_else(|_| Buffer::new(block))),
                at: 0,
                want: 0,
                done: 0,
            })
        };
        Ok(Self {
            job,
            ring,
            slots: (0..depth).map(slot).collect::<Result<_, TransferError>>()?,
            free: (0..depth).rev().collect(),
            read: BTreeMap::new(),
            next_read: range.start,
            next_hash: range.start,
            end: range.end,
            reading: 0,
            writing: 0,
            hasher,
        })
    }

    fn run(mut self) -> Result<(), TransferError> {
        let mut done = Vec::new();
        loop {
            self.job.meter.check_cancelled()?;
            self.begin_reads();
            self.begin_writes();
            debug_assert_eq!(
                self.free.len() + self.read.len() + self.reading + self.writing,
                self.slots.len(),
                "every slot must be free, waiting, reading or writing; otherwise its block is lost"
            );
            if self.reading + self.writing == 0 {
                debug_assert!(
                    self.next_read == self.end && self.read.is_empty(),
                    "the pipeline must not stop until every block is written"
                );
                return self.close();
            }
            self.ring.reap(true, &mut done).map_err(TransferError::Unsupported)?;
            for one in done.drain(..) {
                self.completed(one)?;
            }
        }
    }

    /// Closes the duplicates, which reports failed writes.
    fn close(self) -> Result<(), TransferError> {
        for slot in self.slots {
            if let Some(from) = slot.from {
                descriptor::close(from).map_err(TransferError::Read)?;
            }
            if let Some(to) = slot.to {
                descriptor::close(to).map_err(TransferError::Write)?;
            }
        }
        Ok(())
    }

    fn begin_reads(&mut self) {
        if self.job.plan.in_turns && self.writing > 0 {
            return;
        }
        while self.next_read < self.end {
            let Some(number) = self.free.pop() else { return };
            let slot = &mut self.slots[number];
            let room = slot.buffer.as_ref().map_or(0, Buffer::capacity) as u64;
            slot.at = self.next_read;
            slot.want = room.min(self.end - self.next_read) as usize;
            slot.done = 0;
            self.next_read += slot.want as u64;
            self.reading += 1;
            self.read_on(number);
        }
    }

    /// Reads the missing part of a block.
    fn read_on(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        // Requests start at aligned offsets, so part of the data may be read twice.
        slot.done -= slot.done % ALIGN as usize;
        let (Some(file), Some(buffer)) = (slot.from.take(), slot.buffer.take()) else { return };
        let whole = slot.want.next_multiple_of(ALIGN as usize);
        let at = slot.at + slot.done as u64;
        self.ring.read(number as u64, file, buffer, slot.done..whole, at);
    }

    fn begin_writes(&mut self) {
        let all_read = self.reading == 0;
        if self.job.plan.in_turns && !all_read {
            return;
        }
        while let Some((&at, &number)) = self.read.first_key_value() {
            if let Some(hasher) = self.hasher.as_deref_mut() {
                // Blocks are hashed in order; each one waits for those before it.
                if at != self.next_hash {
                    return;
                }
                let slot = &self.slots[number];
                if let Some(buffer) = &slot.buffer {
                    hasher.update(buffer.bytes(slot.want));
                }
                self.next_hash += slot.want as u64;
            }
            self.read.remove(&at);
            let slot = &mut self.slots[number];
            let whole = slot.want.next_multiple_of(ALIGN as usize);
            if let Some(buffer) = &mut slot.buffer {
                buffer.whole_mut()[slot.want..whole].fill(0);
            }
            slot.done = 0;
            self.writing += 1;
            self.write_on(number);
        }
    }

    /// Writes the missing part of a block.
    fn write_on(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        slot.done -= slot.done % ALIGN as usize;
        let (Some(file), Some(buffer)) = (slot.to.take(), slot.buffer.take()) else { return };
        let whole = slot.want.next_multiple_of(ALIGN as usize);
        let at = slot.at + slot.done as u64;
        self.ring.write(number as u64, file, buffer, slot.done..whole, at);
    }

    fn completed(&mut self, done: Completion) -> Result<(), TransferError> {
        let number = done.token as usize;
        let slot = &mut self.slots[number];
        match done.outcome {
            Outcome::Read(file, buffer, result) => {
                (slot.from, slot.buffer) = (Some(file), Some(buffer));
                match result {
                    Err(e) if is_transient(&e) => self.read_on(number),
                    Err(e) => return Err(TransferError::Read(e)),
                    Ok(0) => return Err(TransferError::SourceEnded),
                    Ok(n) => {
                        let before = slot.done;
                        slot.done = (slot.done + n).min(slot.want);
                        if slot.done == slot.want {
                            self.reading -= 1;
                            self.read.insert(slot.at, number);
                        } else if slot.done - slot.done % ALIGN as usize == before {
                            // A short read before the end made no progress: the source shrank.
                            return Err(TransferError::SourceEnded);
                        } else {
                            self.read_on(number);
                        }
                    }
                }
            }
            Outcome::Write(file, buffer, result) => {
                (slot.to, slot.buffer) = (Some(file), Some(buffer));
                match result {
                    Err(e) if is_transient(&e) => self.write_on(number),
                    Err(e) => return Err(TransferError::Write(e)),
                    Ok(0) => return Err(TransferError::Write(io::ErrorKind::WriteZero.into())),
                    Ok(n) => {
                        slot.done += n;
                        if slot.done >= slot.want {
                            let want = slot.want as u64;
                            self.writing -= 1;
                            self.free.push(number);
                            self.job.meter.moved(want);
                        } else {
                            self.write_on(number);
                        }
                    }
                }
            }
            Outcome::Open(_) | Outcome::Size(..) => {}
        }
        Ok(())
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
