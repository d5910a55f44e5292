//! Recycled buffers under the memory budget.
//!
//! A [`Lease`] is a buffer together with its share of the budget; dropping it gives both back. Free
//! buffers wait in one bounded queue for each size class (powers of two and half-steps between
//! them, from 4 KiB on), which any thread may use. Free and leased buffers together never hold more
//! than the budget: before a new buffer is made, free ones of other classes are let go.
//!
//! Protocol: the budget is taken first, then a buffer; a buffer is queued first, then the budget is
//! given back. So whoever has reserved finds either a buffer or room to make one.

use crossbeam_queue::ArrayQueue;
use ioloom_ledger::{Budget, Reserve};
use ioloom_model::Buffers;
use ioloom_sys::buffer::Buffer;
use std::cell::Cell;
use std::io;
use std::sync::{Arc, OnceLock};
use std::sync::atomic::{AtomicU64, Ordering};

const CLASS_MIN: u64 = 4096;
const CLASSES: usize = 48;
/// Free buffers that one class may hold, at least; more than the window are let go.
const FREE_MIN: usize = 64;
const FREE_MAX: usize = 8192;

/// Why there is no buffer.
#[derive(Debug)]
pub(crate) enum NoBuffer {
    /// The budget said so.
    Budget(Reserve),
    /// The system had no memory.
    System(io::Error),
}

/// Buffers of one run.
pub(crate) struct Arena {
    budget: Arc<Budget>,
    kind: Buffers,
    free: [OnceLock<ArrayQueue<Buffer>>; CLASSES],
    free_max: usize,
    free_bytes: AtomicU64,
    /// Buffers registered with a ring: only these are lent, all of one size.
    registered: Option<u64>,
}

/// The place of a buffer. Shared only while the user keeps bytes of it; a ring that is filling the
/// buffer has it out of its slot.
struct Slot {
    buffer: Option<Buffer>,
}

/// A buffer and its share of the budget.
pub(crate) struct Lease {
    slot: Arc<Slot>,
    charged: Cell<u64>,
    of: Arc<Arena>,
}

/// Bytes that the user keeps: counted against the budget until dropped.
pub(crate) struct Kept {
    slot: Arc<Slot>,
    len: usize,
    charged: u64,
    of: Arc<Arena>,
}

impl Arena {
    /// An arena for about `window` buffers at once.
    pub(crate) fn new(budget: Arc<Budget>, kind: Buffers, window: usize) -> Arc<Self> {
        Arc::new(Self {
            budget,
            kind,
            free: [const { OnceLock::new() }; CLASSES],
            free_max: window.clamp(FREE_MIN, FREE_MAX),
            free_bytes: AtomicU64::new(0),
            registered: None,
        })
    }

    /// An arena that lends only the given buffers, which a ring has registered.
    pub(crate) fn of_registered(budget: Arc<Budget>, buffers: Vec<Buffer>) -> Arc<Self> {
        let bytes = buffers.first().map_or(0, |b| b.capacity() as u64);
        let arena = Self {
            budget,
            kind: Buffers::Pool,
            free: [const { OnceLock::new() }; CLASSES],
            free_max: buffers.len().max(1),
            free_bytes: AtomicU64::new(0),
            registered: Some(bytes),
        };
        for buffer in buffers {
            let _ = arena.queue(0).push(buffer);
        }
        Arc::new(arena)
    }

    fn queue(&self, class: usize) -> &ArrayQueue<Buffer> {
        self.free[class].get_or_init(|| ArrayQueue::new(self.free_max))
    }

    /// The largest buffer this arena lends, bytes.
    pub(crate) fn largest(&self) -> u64 {
        self.registered.unwrap_or(self.budget.limit())
    }

    /// A buffer of at least `bytes`, or why not, without waiting.
    pub(crate) fn try_lease(self: &Arc<Self>, bytes: u64) -> Result<Option<Lease>, NoBuffer> {
        if self.registered.is_some() {
            return Ok(self.lend_registered(bytes));
        }
        let charged = self.charge_for(bytes);
        if !self.budget.try_reserve(charged) {
            return Ok(None);
        }
        self.lend(charged).map(Some)
    }

    /// A buffer of at least `bytes`, waiting for the budget.
    pub(crate) fn lease(self: &Arc<Self>, bytes: u64) -> Result<Lease, NoBuffer> {
        debug_assert!(self.registered.is_none(), "registered buffers are never waited for");
        let charged = self.charge_for(bytes);
        match self.budget.reserve(charged) {
            Reserve::Reserved => self.lend(charged),
            other => Err(NoBuffer::Budget(other)),
        }
    }

    fn charge_for(&self, bytes: u64) -> u64 {
        let class = class_bytes(class_of(bytes));
        // Near the limit the class may not fit where the bytes do.
        if class <= self.budget.limit() { class } else { bytes.next_multiple_of(CLASS_MIN) }
    }

    fn lend_registered(self: &Arc<Self>, bytes: u64) -> Option<Lease> {
        self.registered.filter(|size| bytes <= *size)?;
        let buffer = self.queue(0).pop()?;
        // Registered buffers exist whether they are used or not, so they are charged at the start.
        Some(self.lent(buffer, 0))
    }

    fn lend(self: &Arc<Self>, charged: u64) -> Result<Lease, NoBuffer> {
        let buffer = match self.pop(charged) {
            Some(buffer) => buffer,
            None => {
                self.make_room();
                match self.make(charged as usize) {
                    Ok(buffer) => buffer,
                    Err(error) => {
                        self.budget.give(charged);
                        return Err(NoBuffer::System(error));
                    }
                }
            }
        };
        Ok(self.lent(buffer, charged))
    }

    fn lent(self: &Arc<Self>, buffer: Buffer, charged: u64) -> Lease {
        let slot = Arc::new(Slot { buffer: Some(buffer) });
        Lease { slot, charged: Cell::new(charged), of: self.clone() }
    }

    fn pop(&self, charged: u64) -> Option<Buffer> {
        if self.kind != Buffers::Pool {
            return None;
        }
        let class = class_of(charged);
        let buffer = self.free.get(class)?.get()?.pop()?;
        if (buffer.capacity() as u64) < charged {
            // An odd-sized buffer near the limit; let it go.
            self.free_bytes.fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
            return None;
        }
        self.free_bytes.fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
        Some(buffer)
    }

    fn make(&self, bytes: usize) -> io::Result<Buffer> {
        match self.kind {
            Buffers::Pool => Ok(Buffer::new(bytes)),
            Buffers::Fresh => Buffer::fresh(bytes),
            Buffers::Prefaulted => {
                let mut buffer = Buffer::fresh(bytes)?;
                buffer.touch_pages();
                Ok(buffer)
            }
        }
    }

    /// Lets free buffers go while used (what is wanted is reserved already) and free bytes together
    /// pass the limit.
    fn make_room(&self) {
        for queue in self.free.iter().rev().filter_map(OnceLock::get) {
            while self.budget.used() + self.free_bytes.load(Ordering::Relaxed) > self.budget.limit()
            {
                let Some(buffer) = queue.pop() else { break };
                self.free_bytes.fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
            }
        }
    }

    fn take_back(&self, buffer: Buffer) {
        if self.registered.is_some() {
            let _ = self.queue(0).push(buffer);
            return;
        }
        if self.kind != Buffers::Pool {
            return;
        }
        let bytes = buffer.capacity() as u64;
        let class = class_of(bytes);
        if class < CLASSES {
            self.free_bytes.fetch_add(bytes, Ordering::Relaxed);
            if self.queue(class).push(buffer).is_err() {
                self.free_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }
}

impl Lease {
    pub(crate) fn capacity(&self) -> usize {
        self.slot.buffer.as_ref().map_or(0, Buffer::capacity)
    }

    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        self.slot.buffer.as_ref().map_or(&[], |b| b.bytes(len))
    }

    pub(crate) fn whole_mut(&mut self) -> &mut [u8] {
        let slot = Arc::get_mut(&mut self.slot).expect("nothing is read into kept bytes");
        slot.buffer.as_mut().map_or(&mut [], Buffer::whole_mut)
    }

    /// Moves the buffer out, for a ring; [`Lease::refill`] brings it back.
    pub(crate) fn take_buffer(&mut self) -> Buffer {
        let slot = Arc::get_mut(&mut self.slot).expect("nothing is read into kept bytes");
        slot.buffer.take().expect("a lease holds its buffer unless a ring has it")
    }

    pub(crate) fn refill(&mut self, buffer: Buffer) {
        Arc::get_mut(&mut self.slot).expect("nothing is read into kept bytes").buffer = Some(buffer);
    }

    /// Keeps the first `len` bytes beyond the life of this lease. Moves the buffer if they fill
    /// most of it, else copies them, so that a small file does not hold a large buffer.
    pub(crate) fn keep(&self, len: usize) -> Kept {
        let charged = self.charged.get();
        if charged > 0 && (len as u64) * 2 > charged {
            self.charged.set(0);
            self.of.budget.keep(charged);
            return Kept { slot: self.slot.clone(), len, charged, of: self.of.clone() };
        }
        Kept::copy(self.bytes(len), &self.of)
    }

    /// Whether the user keeps bytes of this buffer, so that it must not be read into again.
    pub(crate) fn is_kept(&self) -> bool {
        Arc::strong_count(&self.slot) > 1
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        give_back(&mut self.slot, &self.of);
        let charged = self.charged.get();
        if charged > 0 {
            self.of.budget.give(charged);
        }
    }
}

impl Kept {
    /// A copy of `bytes`, charged beyond what is reserved.
    pub(crate) fn copy(bytes: &[u8], of: &Arc<Arena>) -> Self {
        let mut buffer = Buffer::new(bytes.len());
        buffer.whole_mut()[..bytes.len()].copy_from_slice(bytes);
        let charged = buffer.capacity() as u64;
        of.budget.charge_kept(charged);
        let slot = Arc::new(Slot { buffer: Some(buffer) });
        Self { slot, len: bytes.len(), charged, of: of.clone() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.slot.buffer.as_ref().map_or(&[], |b| b.bytes(self.len))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        give_back(&mut self.slot, &self.of);
        self.of.budget.give_kept(self.charged);
    }
}

/// Queues the slot again if this is its last holder.
fn give_back(slot: &mut Arc<Slot>, arena: &Arena) {
    if let Some(inner) = Arc::get_mut(slot)
        && let Some(buffer) = inner.buffer.take()
    {
        arena.take_back(buffer);
    }
}

/// The class that holds `bytes`: 4 KiB, 6 KiB, 8 KiB, 12 KiB, 16 KiB, …
fn class_of(bytes: u64) -> usize {
    let bytes = bytes.max(CLASS_MIN);
    let power = bytes.ilog2() - CLASS_MIN.ilog2();
    let base = CLASS_MIN << power;
    if bytes == base {
        2 * power as usize
    } else if bytes <= base + base / 2 {
        2 * power as usize + 1
    } else {
        2 * power as usize + 2
    }
}

fn class_bytes(class: usize) -> u64 {
    let base = CLASS_MIN << (class / 2);
    if class.is_multiple_of(2) { base } else { (base + base / 2).next_multiple_of(CLASS_MIN) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn classes_hold_their_bytes_without_much_waste(bytes in 1u64..1 << 40) {
            let class = class_bytes(class_of(bytes));
            prop_assert!(class >= bytes);
            prop_assert!(bytes < 8192 || class <= bytes + bytes / 2 + 4096);
        }

        #[test]
        fn free_and_leased_stay_within_the_budget(sizes in proptest::collection::vec(1u64..400_000, 1..200)) {
            let arena = Arena::new(Arc::new(Budget::new(1 << 20)), Buffers::Pool, 8);
            let mut held = std::collections::VecDeque::new();
            for bytes in sizes {
                while let Ok(None) = arena.try_lease(bytes).map(|l| l.map(|l| held.push_back(l))) {
                    prop_assert!(held.pop_front().is_some(), "everything fits once all is given back");
                }
                let free = arena.free_bytes.load(Ordering::Relaxed);
                prop_assert!(arena.budget.used() + free <= 1 << 20);
            }
            held.clear();
            prop_assert_eq!(arena.budget.used(), 0);
        }
    }

    #[test]
    fn a_buffer_is_used_again() {
        let arena = Arena::new(Arc::new(Budget::new(1 << 20)), Buffers::Pool, 8);
        let mut lease = arena.lease(5000).unwrap();
        lease.whole_mut()[0] = 42;
        drop(lease);
        assert_eq!(arena.lease(5000).unwrap().bytes(1), [42]);
    }
}
