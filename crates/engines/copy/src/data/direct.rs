//! Past the page cache, with many requests under way: io_uring on both sides.
//!
//! Each slot is a buffer that is read into and then written from; while one slot writes, others
//! read. The target has its final size before, because writes that make a file longer wait for each
//! other. The last block is written whole, padded with zeros, and cut afterwards. Reads and writes
//! are not linked: a short last read would break the chain. On one disk that turns, all slots are
//! filled before any is written, so that it seeks once per round and not once per block.
//!
//! Buffers lie in huge pages where the system has them: a request of 4 MiB is then two pieces for the
//! device and not a thousand, more than many devices take at once.
//!
//! Memory: depth times block, 16 MiB as planned by default.

use super::{Job, Trouble, transfer};
use crate::hash::Hasher;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::ring::{Completion, Outcome, Ring};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// What offsets and lengths are multiples of, bytes: no file system of today asks for more.
pub(super) const ALIGN: u64 = 4096;

/// Ranges below this are not worth a ring.
const PAYS_BYTES_MIN: u64 = 1 << 20;

/// Whether a range is worth it, or is to go this way in any case, and begins where it must.
pub(super) fn pays(range: &Range<u64>, pinned: bool) -> bool {
    let worth_it = pinned || range.end - range.start >= PAYS_BYTES_MIN;
    worth_it && range.start.is_multiple_of(ALIGN)
}

/// Moves a range.
pub(super) fn past_the_cache(
    job: &Job<'_>,
    range: Range<u64>,
    hasher: Option<&mut Hasher>,
) -> Result<(), Trouble> {
    let flags = Flags::set(job)?;
    let moved = Pipeline::new(job, range, hasher).and_then(Pipeline::run);
    drop(flags);
    match moved {
        // Said to take direct requests, and does not take these.
        Err(Trouble::Write(e) | Trouble::Read(e)) if is_refusal(&e) => Err(Trouble::Unsupported(e)),
        moved => moved,
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput || error.kind() == io::ErrorKind::Unsupported
}

/// The two files go past the cache while this lives.
struct Flags<'a>(&'a Job<'a>);

impl<'a> Flags<'a> {
    fn set(job: &'a Job<'a>) -> Result<Self, Trouble> {
        transfer::set_direct(job.ends.to, true).map_err(Trouble::Unsupported)?;
        let flags = Self(job);
        if job.plan.reads_direct {
            transfer::set_direct(job.ends.from, true).map_err(Trouble::Unsupported)?;
        }
        Ok(flags)
    }
}

impl Drop for Flags<'_> {
    fn drop(&mut self) {
        // What follows on these files are reads of metadata and a sync.
        let _ = transfer::set_direct(self.0.ends.to, false);
        let _ = transfer::set_direct(self.0.ends.from, false);
    }
}

/// What one slot is about.
struct Slot {
    /// The two files, at home while they are not with the ring.
    from: Option<OwnedFd>,
    to: Option<OwnedFd>,
    buffer: Option<Buffer>,
    /// Offset of its block.
    at: u64,
    /// Bytes of the block that belong to the file.
    want: usize,
    /// Of those, bytes read or, later, bytes written.
    done: usize,
}

struct Pipeline<'a> {
    job: &'a Job<'a>,
    ring: Ring,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Blocks that are read and wait to be hashed or written, by offset.
    read: BTreeMap<u64, usize>,
    next_read: u64,
    /// The next offset that the hash takes.
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
    ) -> Result<Self, Trouble> {
        let bytes = range.end - range.start;
        let block = u64::from(job.plan.block_bytes).min(bytes).next_multiple_of(ALIGN) as usize;
        let blocks = bytes.div_ceil(block as u64);
        let depth = u64::from(job.plan.depth.max(1)).min(blocks) as usize;
        let ring = Ring::new(depth as u32).map_err(Trouble::Unsupported)?;
        let slot = |_| {
            Ok(Slot {
                from: Some(job.ends.from.try_clone_to_owned().map_err(Trouble::Read)?),
                to: Some(job.ends.to.try_clone_to_owned().map_err(Trouble::Write)?),
                buffer: Some(Buffer::huge(block).unwrap_or_else(|_| Buffer::new(block))),
                at: 0,
                want: 0,
                done: 0,
            })
        };
        Ok(Self {
            job,
            ring,
            slots: (0..depth).map(slot).collect::<Result<_, Trouble>>()?,
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

    fn run(mut self) -> Result<(), Trouble> {
        let mut done = Vec::new();
        loop {
            self.job.flow.check()?;
            self.begin_reads();
            self.begin_writes();
            if self.reading + self.writing == 0 {
                return Ok(());
            }
            self.ring.reap(true, &mut done).map_err(Trouble::Unsupported)?;
            for one in done.drain(..) {
                self.came(one)?;
            }
        }
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

    /// Reads what is missing of a block.
    fn read_on(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        // Requests begin at multiples, so bytes of a part of one come again.
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
                // The hash takes blocks in their order; a later one waits for an earlier.
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

    /// Writes what is missing of a block.
    fn write_on(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        slot.done -= slot.done % ALIGN as usize;
        let (Some(file), Some(buffer)) = (slot.to.take(), slot.buffer.take()) else { return };
        let whole = slot.want.next_multiple_of(ALIGN as usize);
        let at = slot.at + slot.done as u64;
        self.ring.write(number as u64, file, buffer, slot.done..whole, at);
    }

    fn came(&mut self, done: Completion) -> Result<(), Trouble> {
        let number = done.token as usize;
        let slot = &mut self.slots[number];
        match done.outcome {
            Outcome::Read(file, buffer, result) => {
                (slot.from, slot.buffer) = (Some(file), Some(buffer));
                match result {
                    Err(e) if is_passing(&e) => self.read_on(number),
                    Err(e) => return Err(Trouble::Read(e)),
                    Ok(0) => return Err(Trouble::Ended),
                    Ok(n) => {
                        let before = slot.done;
                        slot.done = (slot.done + n).min(slot.want);
                        if slot.done == slot.want {
                            self.reading -= 1;
                            self.read.insert(slot.at, number);
                        } else if slot.done - slot.done % ALIGN as usize == before {
                            // Less than a block, and not the end as it was: nothing will come.
                            return Err(Trouble::Ended);
                        } else {
                            self.read_on(number);
                        }
                    }
                }
            }
            Outcome::Write(file, buffer, result) => {
                (slot.to, slot.buffer) = (Some(file), Some(buffer));
                match result {
                    Err(e) if is_passing(&e) => self.write_on(number),
                    Err(e) => return Err(Trouble::Write(e)),
                    Ok(0) => return Err(Trouble::Write(io::ErrorKind::WriteZero.into())),
                    Ok(n) => {
                        slot.done += n;
                        if slot.done >= slot.want {
                            let want = slot.want as u64;
                            self.writing -= 1;
                            self.free.push(number);
                            self.job.flow.moved(want);
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

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
