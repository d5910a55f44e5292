//! Recycled buffers under the memory budget.
//!
//! A [`Lease`] is a buffer together with its share of the budget; dropping it returns both. Free
//! buffers wait in bounded queues, one per size class (powers of two and the steps halfway between
//! them, from 4 KiB), and any thread may take them. Free and leased buffers together never exceed
//! the budget: before a new buffer is allocated, free ones of other classes are freed.
//!
//! Protocol: take from the budget first, then a buffer; queue a buffer first, then return its bytes
//! to the budget. A thread that has reserved bytes therefore finds either a buffer or room for one.

use crossbeam_queue::ArrayQueue;
use ioloom_budget::{Budget, Reserve};
use ioloom_model::Buffers;
use ioloom_sys::buffer::Buffer;
use std::collections::TryReserveError;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

const CLASS_MIN: u64 = 4096;
const CLASSES: usize = 48;
/// Limits on the free buffers of one class. The window sets the number; more are freed.
const FREE_MIN: usize = 64;
const FREE_MAX: usize = 8192;

/// Why no buffer is available.
#[derive(Debug)]
pub(crate) enum NoBuffer {
    /// The budget refused the bytes.
    Budget(Reserve),
    /// The allocation failed.
    System(io::Error),
}

/// The buffers of one run.
pub(crate) struct Arena {
    budget: Arc<Budget>,
    kind: Buffers,
    free: [OnceLock<ArrayQueue<Buffer>>; CLASSES],
    free_max: usize,
    free_bytes: AtomicU64,
    /// Largest buffer that is rounded up to its class. Rounding up a larger one could take the
    /// budget of other files' first buffers.
    class_max: u64,
    /// Size of the buffers, if they are registered with a ring and no others are lent.
    registered: Option<u64>,
    /// Whether buffers that come back are freed, because no more are lent.
    closed: AtomicBool,
}

/// A buffer and its share of the budget; the last owner returns both. It has more than one owner
/// only while the user retains bytes of it. While a ring fills the buffer, the slot is empty.
pub(crate) struct Slot {
    buffer: Option<Buffer>,
    charged: u64,
    /// Whether the share counts as retained by the user.
    kept: AtomicBool,
    of: Arc<Arena>,
}

/// A buffer and its share of the budget.
pub(crate) struct Lease {
    slot: Arc<Slot>,
}

/// Bytes that the user retains, counted against the budget until they are dropped. While the
/// function that retained them is still running they count as in use, because it may still drop
/// them.
pub(crate) enum RetainedBytes {
    /// The first bytes of a buffer, which is charged whole.
    Shared { slot: Arc<Slot>, len: usize },
    /// A copy. Small files are retained in large numbers, so a copy is charged no more than it takes.
    Copied { bytes: Box<[u8]>, of: Arc<Arena> },
}

impl Arena {
    /// Creates an arena for about `window` buffers at once. Buffers above `class_max` bytes are not
    /// rounded up.
    pub(crate) fn new(
        budget: Arc<Budget>,
        kind: Buffers,
        window: usize,
        class_max: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            budget,
            kind,
            free: [const { OnceLock::new() }; CLASSES],
            free_max: window.clamp(FREE_MIN, FREE_MAX),
            free_bytes: AtomicU64::new(0),
            class_max,
            registered: None,
            closed: AtomicBool::new(false),
        })
    }

    /// Returns the budget that the buffers are charged to.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Creates an arena that lends only the given buffers, which are registered with a ring.
    pub(crate) fn of_registered(budget: Arc<Budget>, buffers: Vec<Buffer>) -> Arc<Self> {
        let bytes = buffers.first().map_or(0, |b| b.capacity() as u64);
        let arena = Self {
            budget,
            kind: Buffers::Pool,
            free: [const { OnceLock::new() }; CLASSES],
            free_max: buffers.len().max(1),
            free_bytes: AtomicU64::new(0),
            class_max: bytes,
            registered: Some(bytes),
            closed: AtomicBool::new(false),
        };
        arena.budget.begin_idle(bytes * buffers.len() as u64);
        for buffer in buffers {
            let _ = arena.queue(0).push(buffer);
        }
        Arc::new(arena)
    }

    fn queue(&self, class: usize) -> &ArrayQueue<Buffer> {
        self.free[class].get_or_init(|| ArrayQueue::new(self.free_max))
    }

    /// Reports whether only registered buffers are lent.
    pub(crate) fn is_registered(&self) -> bool {
        self.registered.is_some()
    }

    /// Returns a buffer of at least `bytes`, or `None` if memory is short. Does not wait.
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

    /// Returns a buffer of at least `bytes`, after waiting for the budget if necessary, and for buffers in use
    /// if the system refuses memory. `holding`: bytes charged for leases that the calling thread keeps while
    /// it waits.
    pub(crate) fn lease(self: &Arc<Self>, bytes: u64, holding: u64) -> Result<Lease, NoBuffer> {
        let charged = self.reserve(bytes, holding)?;
        loop {
            let buffer = self.buffer(charged);
            if buffer.is_err() && self.budget.await_release(holding.saturating_add(charged)) {
                continue;
            }
            // The last buffer in use may have come back between the attempt and the wait.
            return self.lent_or_released(buffer.or_else(|_| self.buffer(charged)), charged);
        }
    }

    /// Like [`Arena::lease`], for a thread that may hold other leases. Does not wait for buffers in use, because
    /// they may be its own.
    pub(crate) fn lease_or_fail(self: &Arc<Self>, bytes: u64) -> Result<Lease, NoBuffer> {
        let charged = self.reserve(bytes, 0)?;
        self.lend(charged)
    }

    /// Reserves bytes for a buffer, after waiting for the budget if necessary. Returns their number.
    fn reserve(&self, bytes: u64, holding: u64) -> Result<u64, NoBuffer> {
        assert!(self.registered.is_none(), "a wait for registered buffers would have no waker");
        let charged = self.charge_for(bytes);
        match self.budget.reserve_holding(charged, holding) {
            Reserve::Reserved => Ok(charged),
            other => Err(NoBuffer::Budget(other)),
        }
    }

    fn charge_for(&self, bytes: u64) -> u64 {
        let class = class_bytes(class_of(bytes));
        // Near the limit the bytes may fit where their class does not.
        if class <= self.class_max { class } else { bytes.next_multiple_of(CLASS_MIN) }
    }

    /// Registered buffers are charged when they are registered, used or not, and idle while they are
    /// not lent. None is lent while copies that the user retains exceed the budget.
    fn lend_registered(self: &Arc<Self>, bytes: u64) -> Option<Lease> {
        let size = self.registered.filter(|size| bytes <= *size)?;
        if self.budget.used() > self.budget.limit() {
            return None;
        }
        let buffer = self.queue(0).pop()?;
        self.budget.end_idle(size);
        Some(self.lent(buffer, 0))
    }

    fn lend(self: &Arc<Self>, charged: u64) -> Result<Lease, NoBuffer> {
        self.lent_or_released(self.buffer(charged), charged)
    }

    /// Returns a lease of the buffer, or releases the bytes that were reserved for it.
    fn lent_or_released(
        self: &Arc<Self>,
        buffer: io::Result<Buffer>,
        charged: u64,
    ) -> Result<Lease, NoBuffer> {
        match buffer {
            Ok(buffer) => Ok(self.lent(buffer, charged)),
            Err(error) => {
                self.budget.release(charged);
                Err(NoBuffer::System(error))
            }
        }
    }

    /// Returns a free buffer or a new one, for bytes that are reserved.
    fn buffer(&self, charged: u64) -> io::Result<Buffer> {
        if let Some(buffer) = self.pop(charged) {
            return Ok(buffer);
        }
        self.make_room();
        // Free buffers of other sizes may be what takes the memory.
        self.make(charged as usize).or_else(|_| {
            self.free_all();
            self.make(charged as usize)
        })
    }

    fn lent(self: &Arc<Self>, buffer: Buffer, charged: u64) -> Lease {
        debug_assert!(
            self.registered.is_some() || buffer.capacity() as u64 == charged,
            "a buffer is charged its capacity, or the budget would not bound memory"
        );
        let kept = AtomicBool::new(false);
        let of = self.clone();
        Lease { slot: Arc::new(Slot { buffer: Some(buffer), charged, kept, of }) }
    }

    fn pop(&self, charged: u64) -> Option<Buffer> {
        if self.kind != Buffers::Pool {
            return None;
        }
        let class = class_of(charged);
        let buffer = self.free.get(class)?.get()?.pop()?;
        if buffer.capacity() as u64 != charged {
            // An odd-sized buffer near the limit: free it.
            self.free_bytes.fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
            return None;
        }
        self.free_bytes.fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
        Some(buffer)
    }

    fn make(&self, bytes: usize) -> io::Result<Buffer> {
        match self.kind {
            Buffers::Pool => Buffer::try_new(bytes),
            Buffers::Fresh => Buffer::fresh(bytes),
            Buffers::Prefaulted => {
                let mut buffer = Buffer::fresh(bytes)?;
                buffer.touch_pages();
                Ok(buffer)
            }
        }
    }

    /// Frees buffers while used bytes (including those just reserved) and free bytes exceed the
    /// limit.
    fn make_room(&self) {
        for queue in self.free.iter().rev().filter_map(OnceLock::get) {
            while self.budget.used() + self.free_bytes.load(Ordering::Relaxed) > self.budget.limit()
            {
                let Some(buffer) = queue.pop() else { break };
                self.free_bytes.fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Frees the free buffers, and from now on every buffer that comes back: bytes that the user
    /// retains keep the arena, which must not keep the memory of the run.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.free_all();
    }

    fn free_all(&self) {
        for queue in self.free.iter().filter_map(OnceLock::get) {
            self.empty(queue);
        }
    }

    fn empty(&self, queue: &ArrayQueue<Buffer>) {
        while let Some(buffer) = queue.pop() {
            if self.registered.is_none() {
                self.free_bytes.fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Frees what was queued, if the arena has been closed. The thread that queues and the one that closes
    /// each write first and then read, with a fence between: one of them sees what the other wrote.
    fn empty_if_closed(&self, queue: &ArrayQueue<Buffer>) {
        fence(Ordering::SeqCst);
        if self.closed.load(Ordering::Relaxed) {
            self.empty(queue);
        }
    }

    /// Takes a buffer back. `kept`: the user had retained it, so another thread may close the arena
    /// meanwhile. All other buffers that are not registered come back from threads of the run, which
    /// ends before the arena is closed, or from the thread that closed it.
    fn take_back(&self, buffer: Buffer, kept: bool) {
        if let Some(size) = self.registered {
            let queue = self.queue(0);
            let _ = queue.push(buffer);
            self.empty_if_closed(queue);
            self.budget.begin_idle(size);
            return;
        }
        if self.kind != Buffers::Pool || self.closed.load(Ordering::Relaxed) {
            return;
        }
        let bytes = buffer.capacity() as u64;
        let class = class_of(bytes);
        if class < CLASSES {
            self.free_bytes.fetch_add(bytes, Ordering::Relaxed);
            let queue = self.queue(class);
            if queue.push(buffer).is_err() {
                self.free_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
            if kept {
                self.empty_if_closed(queue);
            }
        }
    }
}

impl Lease {
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.slot.buffer.as_ref().map_or(0, Buffer::capacity)
    }

    #[inline]
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        self.slot.buffer.as_ref().map_or(&[], |b| b.bytes(len))
    }

    #[inline]
    pub(crate) fn whole_mut(&mut self) -> &mut [u8] {
        let slot = Arc::get_mut(&mut self.slot).expect("retained bytes are never read into");
        slot.buffer.as_mut().map_or(&mut [], Buffer::whole_mut)
    }

    /// Moves the buffer out to a ring; [`Lease::refill`] moves it back.
    pub(crate) fn take_buffer(&mut self) -> Buffer {
        let slot = Arc::get_mut(&mut self.slot).expect("retained bytes are never read into");
        slot.buffer.take().expect("a lease has its buffer unless a ring has it")
    }

    pub(crate) fn refill(&mut self, buffer: Buffer) {
        let slot = Arc::get_mut(&mut self.slot).expect("retained bytes are never read into");
        debug_assert!(
            slot.buffer.is_none(),
            "a ring returns the buffer it took, to the same lease"
        );
        slot.buffer = Some(buffer);
    }

    /// Retains the first `len` bytes beyond the life of this lease. Shares the buffer if they fill
    /// most of it, otherwise copies them, so that a small file does not hold a large buffer. Without
    /// memory for the copy, shares the buffer as well.
    pub(crate) fn keep(&self, len: usize) -> RetainedBytes {
        let fills = (len as u64) * 2 > self.charged() && self.charged() > 0;
        let copied = (!fills).then(|| RetainedBytes::try_copy(self.bytes(len), &self.slot.of).ok());
        copied.flatten().unwrap_or_else(|| RetainedBytes::Shared { slot: self.slot.clone(), len })
    }

    /// Returns the bytes of the budget charged for this lease.
    pub(crate) fn charged(&self) -> u64 {
        self.slot.charged
    }

    /// Returns the bytes of the budget that are not idle because of this lease: what a thread holds while
    /// it waits for more. Registered buffers are charged together, and are not idle while they are lent.
    pub(crate) fn held(&self) -> u64 {
        self.slot.of.registered.unwrap_or(self.slot.charged)
    }

    /// Reports whether the user retains bytes of this buffer, which must then not be overwritten.
    pub(crate) fn is_kept(&self) -> bool {
        Arc::strong_count(&self.slot) > 1
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // From here on only the user holds the bytes; the last owner returns what is counted here.
        if self.is_kept() {
            self.slot.kept.store(true, Ordering::Release);
            self.slot.of.budget.retain(self.slot.charged);
        }
    }
}

impl RetainedBytes {
    /// Copies `bytes` and charges them beyond what is reserved.
    pub(crate) fn copy(bytes: &[u8], of: &Arc<Arena>) -> Self {
        Self::of_copy(bytes.into(), of)
    }

    /// Copies `bytes` if there is memory for them, and charges them beyond what is reserved.
    fn try_copy(bytes: &[u8], of: &Arc<Arena>) -> Result<Self, TryReserveError> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len())?;
        copy.extend_from_slice(bytes);
        Ok(Self::of_copy(copy.into(), of))
    }

    fn of_copy(bytes: Box<[u8]>, of: &Arc<Arena>) -> Self {
        of.budget.charge_retained(copy_charge(bytes.len()));
        Self::Copied { bytes, of: of.clone() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared { slot, len } => slot.buffer.as_ref().map_or(&[], |b| b.bytes(*len)),
            Self::Copied { bytes, .. } => bytes,
        }
    }
}

impl Drop for RetainedBytes {
    fn drop(&mut self) {
        if let Self::Copied { bytes, of } = self {
            let charged = copy_charge(bytes.len());
            drop(std::mem::take(bytes));
            of.budget.release_retained(charged);
        }
    }
}

/// Returns what a copy of `len` bytes is charged: the bytes, and what refers to them.
fn copy_charge(len: usize) -> u64 {
    (len + size_of::<RetainedBytes>()) as u64
}

impl Drop for Slot {
    fn drop(&mut self) {
        let kept = *self.kept.get_mut();
        if let Some(buffer) = self.buffer.take() {
            self.of.take_back(buffer, kept);
        }
        if kept {
            self.of.budget.release_retained(self.charged);
        } else if self.charged > 0 {
            self.of.budget.release(self.charged);
        }
    }
}

/// Returns the class that holds `bytes`: 4 KiB, 6 KiB, 8 KiB, 12 KiB, 16 KiB, …
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

/// Returns what a buffer of `bytes` is charged.
pub(crate) fn rounded(bytes: u64) -> u64 {
    class_bytes(class_of(bytes))
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
        fn classes_waste_little(bytes in 1u64..1 << 40) {
            let class = class_bytes(class_of(bytes));
            prop_assert!(class >= bytes);
            prop_assert!(bytes < 8192 || class <= bytes + bytes / 2 + 4096);
        }

        #[test]
        fn free_and_leased_stay_within_the_budget(sizes in proptest::collection::vec(1u64..400_000, 1..200)) {
            let arena = Arena::new(Arc::new(Budget::new(1 << 20)), Buffers::Pool, 8, 1 << 20);
            let mut held = std::collections::VecDeque::new();
            for bytes in sizes {
                while let Ok(None) = arena.try_lease(bytes).map(|l| l.map(|l| held.push_back(l))) {
                    prop_assert!(held.pop_front().is_some(), "everything fits once all is returned");
                }
                let free = arena.free_bytes.load(Ordering::Relaxed);
                prop_assert!(arena.budget.used() + free <= 1 << 20);
            }
            held.clear();
            prop_assert_eq!(arena.budget.used(), 0);
        }
    }

    #[test]
    fn buffers_are_reused() {
        let arena = Arena::new(Arc::new(Budget::new(1 << 20)), Buffers::Pool, 8, 1 << 20);
        let mut lease = arena.lease(5000, 0).unwrap();
        lease.whole_mut()[0] = 42;
        drop(lease);
        assert_eq!(arena.lease(5000, 0).unwrap().bytes(1), [42]);
    }

    #[test]
    fn a_closed_arena_keeps_no_buffer() {
        let arena = Arena::new(Arc::new(Budget::new(1 << 20)), Buffers::Pool, 8, 1 << 20);
        let (one, two) = (arena.lease(5000, 0).unwrap(), arena.lease(5000, 0).unwrap());
        drop(one);
        assert!(arena.free_bytes.load(Ordering::Relaxed) > 0);
        arena.close();
        assert_eq!(arena.free_bytes.load(Ordering::Relaxed), 0);
        drop(two);
        assert_eq!(arena.free_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn bytes_that_outlive_a_run_keep_no_free_buffer() {
        let files = crate::files(std::iter::repeat_n("Cargo.toml", 50));
        let kept = files.map(|f| f.keep()).collect().unwrap();
        let of = match &kept[0].0 {
            RetainedBytes::Shared { slot, .. } => &slot.of,
            RetainedBytes::Copied { of, .. } => of,
        };
        assert_eq!(of.free_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_copy_is_charged_what_it_takes() {
        let budget = Arc::new(Budget::new(1 << 20));
        let arena = Arena::new(budget.clone(), Buffers::Pool, 8, 1 << 20);
        let lease = arena.lease(4096, 0).unwrap();
        let copies: Vec<_> = (0..1000).map(|_| lease.keep(50)).collect();
        assert!(copies.iter().all(|copy| copy.bytes() == lease.bytes(50)));
        drop(lease);
        assert_eq!(budget.used(), budget.retained());
        assert!(budget.used() <= 1000 * 100, "{}", budget.used());
        drop(copies);
        assert_eq!((budget.used(), budget.retained()), (0, 0));
    }

    #[test]
    fn a_buffer_that_no_memory_can_hold_is_an_error() {
        let budget = Arc::new(Budget::new(u64::MAX));
        let arena = Arena::new(budget.clone(), Buffers::Pool, 8, u64::MAX);
        assert!(matches!(arena.try_lease(1 << 60), Err(NoBuffer::System(_))));
        assert!(matches!(arena.lease(1 << 60, 0), Err(NoBuffer::System(_))));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_buffer_that_the_system_refuses_waits_for_those_in_use() {
        let budget = Arc::new(Budget::new(u64::MAX));
        let arena = Arena::new(budget.clone(), Buffers::Pool, 8, u64::MAX);
        let (in_use, held) = (arena.lease(5000, 0).unwrap(), arena.lease(5000, 0).unwrap());
        let holding = held.charged();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| arena.lease(1 << 60, holding).is_err());
            while !budget.is_waited_for() && !waits.is_finished() {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits.is_finished(), "the buffer in use comes back");
            drop(in_use);
            assert!(waits.join().unwrap(), "all others are held by the thread that waits");
        });
        assert_eq!(budget.used(), holding);
    }

    #[test]
    fn retained_bytes_count_once_their_lease_is_dropped() {
        let budget = Arc::new(Budget::new(1 << 20));
        let arena = Arena::new(budget.clone(), Buffers::Pool, 8, 1 << 20);
        let lease = arena.lease(8192, 0).unwrap();
        let (one, two) = (lease.keep(8000), lease.keep(7000));
        assert_eq!(
            (budget.used(), budget.retained()),
            (8192, 0),
            "the function may still drop them"
        );
        drop((one, lease));
        assert_eq!((budget.used(), budget.retained()), (8192, 8192));
        drop(two);
        assert_eq!((budget.used(), budget.retained()), (0, 0));
    }

    #[test]
    fn registered_arenas_lend_only_registered_buffers() {
        let buffers: Vec<Buffer> = (0..2).map(|_| Buffer::new(8192)).collect();
        let own: Vec<*const u8> = buffers.iter().map(|b| b.bytes(1).as_ptr()).collect();
        let arena = Arena::of_registered(Arc::new(Budget::new(1 << 20)), buffers);
        let lease = arena.try_lease(100).unwrap().unwrap();
        drop(lease.keep(100));
        drop(lease);
        for lease in
            [arena.try_lease(100).unwrap().unwrap(), arena.try_lease(100).unwrap().unwrap()]
        {
            assert!(own.contains(&lease.bytes(1).as_ptr()) && lease.capacity() == 8192);
        }
    }
}
