//! What has arrived, on its way to the threads that run the function.
//!
//! Ranges of an object arrive in any order and are handed over in theirs. One thread at a time has an
//! object; the next range follows when it returns the object.

use crate::error::{Kind, ObjectError};
use crate::gate::Gate;
use crate::reason::Reason;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Arrivals after which the bell is rung at once.
const UNRUNG_MAX: usize = 16;

/// The bytes of a range, which count towards the memory budget until they are dropped.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub(crate) data: Vec<u8>,
    /// The MD5 of the whole object, if the store has one.
    pub(crate) md5: Option<String>,
    charged: u64,
    gate: Arc<Gate>,
}

impl Bytes {
    /// `charged` bytes were reserved.
    pub(crate) fn new(charged: u64, gate: Arc<Gate>) -> Self {
        Self { data: Vec::new(), md5: None, charged, gate }
    }

    /// Reserves more memory.
    ///
    /// # Errors
    ///
    /// Returns why there is none: it is taken, which another attempt may change, or the budget is too small.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), Reason> {
        if !self.gate.may_grow(bytes) {
            let text =
                "it was replaced while it was read, by contents too large for the memory budget";
            return Err(Reason::new(Kind::Changed, text));
        }
        if !self.gate.grow(bytes) {
            let text =
                "it was replaced while it was read, and memory for the new contents was short";
            return Err(Reason::new(Kind::Interrupted, text));
        }
        self.charged += bytes;
        Ok(())
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.data = Vec::new();
        self.gate.release(self.charged);
    }
}

/// An object of a run.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) index: usize,
    pub(crate) url: String,
    pub(crate) key: object_store::path::Path,
    pub(crate) size: u64,
    pub(crate) e_tag: Option<String>,
    /// The version of the first response, if the listing has none.
    pub(crate) first_e_tag: OnceLock<Option<String>>,
    /// Memory of a copy that the function makes.
    _held: Option<Bytes>,
    progress: Mutex<Progress>,
}

/// The ranges of an object that have arrived.
#[derive(Debug, Default)]
struct Progress {
    /// Ranges by offset. A range after the next one waits.
    ranges: BTreeMap<u64, (Bytes, u64)>,
    next: u64,
    /// Whether a thread has the object, or it is in the queue.
    busy: bool,
    /// Whether the object has ended: it failed, or its last range was taken.
    over: bool,
    error: Option<ObjectError>,
}

/// What a thread takes.
#[derive(Debug)]
pub(crate) enum Ready {
    /// The next range of an object: offset, bytes, and whether it is the last one.
    Range(Arc<Item>, u64, Bytes, bool),
    /// The object failed.
    Failed(Arc<Item>, ObjectError),
    /// The listing ended early, or an object in it cannot be read, with memory that it counts for.
    Unlisted(ObjectError, Option<Bytes>),
}

impl Item {
    pub(crate) fn new(
        index: usize,
        url: String,
        key: object_store::path::Path,
        (size, e_tag): (u64, Option<String>),
    ) -> Self {
        let first_e_tag = OnceLock::new();
        let (_held, progress) = (None, Mutex::default());
        Self { index, url, key, size, e_tag, first_e_tag, _held, progress }
    }

    /// Keeps memory until the object is dropped.
    pub(crate) fn holding(self, bytes: Bytes) -> Self {
        Self { _held: Some(bytes), ..self }
    }

    /// Returns whether a thread has had a range of it.
    pub(crate) fn was_begun(&self) -> bool {
        self.progress().next > 0
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// Returns whether the object has failed, so that further ranges are not needed.
    pub(crate) fn is_over(&self) -> bool {
        let progress = self.progress();
        progress.over || progress.error.is_some()
    }

    /// Returns the next thing for a thread, if no thread has the object.
    fn take(self: &Arc<Self>) -> Option<Ready> {
        let mut progress = self.progress();
        if progress.busy || progress.over {
            return None;
        }
        if let Some(error) = progress.error.take() {
            progress.over = true;
            progress.ranges.clear();
            return Some(Ready::Failed(self.clone(), error));
        }
        let next = progress.next;
        let (bytes, end) = progress.ranges.remove(&next)?;
        let last = end >= self.size || next == 0 && end == u64::MAX;
        (progress.busy, progress.next, progress.over) = (true, end, last);
        Some(Ready::Range(self.clone(), next, bytes, last))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queue of what is ready.
#[derive(Debug)]
pub(crate) struct HandOver {
    queue: Mutex<Queue>,
    bell: Condvar,
    /// Objects that may be begun and not ended.
    begun_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    /// Ranges of objects that were begun, and failures.
    ready: VecDeque<Ready>,
    /// First ranges.
    first: VecDeque<Ready>,
    begun: usize,
    /// Threads that wait. Others need no bell: they look before they wait.
    idle: usize,
    /// What arrived since the last bell.
    unrung: usize,
    closed: bool,
}

impl Queue {
    fn can_take(&self, begun_max: usize) -> bool {
        !self.ready.is_empty() || self.begun < begun_max && !self.first.is_empty()
    }

    fn take(&mut self, begun_max: usize) -> Option<Ready> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        let first = if self.begun < begun_max { self.first.pop_front() } else { None };
        self.begun += usize::from(first.is_some());
        first
    }
}

impl HandOver {
    /// Returns a queue that begins an object only if fewer than `begun_max` are begun and not ended.
    pub(crate) fn new(begun_max: usize) -> Self {
        Self { queue: Mutex::default(), bell: Condvar::new(), begun_max: begun_max.max(1) }
    }

    /// Hands over a range that arrived. `whole`: it is all of the object, whatever was listed. The caller
    /// will ring the bell.
    pub(crate) fn arrived(&self, item: &Arc<Item>, offset: u64, bytes: Bytes, whole: bool) {
        let end = if whole { u64::MAX } else { offset + bytes.data.len() as u64 };
        let mut progress = item.progress();
        if progress.over {
            return;
        }
        progress.ranges.insert(offset, (bytes, end));
        drop(progress);
        self.offer(item);
    }

    /// Hands over the failure of an object, unless it has failed already. The caller will ring the bell.
    pub(crate) fn failed(&self, item: &Arc<Item>, error: ObjectError) {
        item.progress().error.get_or_insert(error);
        self.offer(item);
    }

    fn offer(&self, item: &Arc<Item>) {
        if let Some(ready) = item.take() {
            self.push(ready);
        }
    }

    /// Hands over something. The caller will ring the bell.
    pub(crate) fn push(&self, ready: Ready) {
        let mut queue = lock(&self.queue);
        match ready {
            Ready::Range(_, 0, ..) => queue.first.push_back(ready),
            _ => queue.ready.push_back(ready),
        }
        queue.unrung += 1;
        if queue.unrung >= UNRUNG_MAX {
            self.ring_once(queue);
        }
    }

    /// Wakes a thread if something arrived since the last bell. It takes all that it finds, and wakes
    /// another one if that takes long.
    pub(crate) fn bell(&self) {
        self.ring_once(lock(&self.queue));
    }

    fn ring_once(&self, mut queue: MutexGuard<'_, Queue>) {
        let arrived = std::mem::take(&mut queue.unrung) > 0;
        self.ring(queue, |queue| arrived && queue.can_take(self.begun_max));
    }

    /// Wakes a thread if something waits. To be called from time to time: the function may take long for
    /// the first time.
    pub(crate) fn ring_if_any(&self) {
        self.ring(lock(&self.queue), |queue| queue.can_take(self.begun_max));
    }

    /// Wakes a thread that waits, if there is one and `is_for_it`. Each bell costs a system call.
    fn ring(&self, queue: MutexGuard<'_, Queue>, is_for_it: impl Fn(&Queue) -> bool) {
        let rings = queue.idle > 0 && is_for_it(&queue);
        drop(queue);
        if rings {
            self.bell.notify_one();
        }
    }

    /// Returns an object after a range. If the function `gave_up`, the rest is not wanted. The caller will
    /// take the next thing itself, so no bell is needed.
    pub(crate) fn give_back(&self, item: &Arc<Item>, gave_up: bool) {
        {
            let mut progress = item.progress();
            progress.busy = false;
            if gave_up {
                progress.over = true;
                progress.ranges.clear();
            }
        }
        self.offer(item);
    }

    /// Notes that an object that was begun has ended.
    pub(crate) fn ended(&self) {
        let mut queue = lock(&self.queue);
        debug_assert!(queue.begun > 0, "an object ends once");
        let was_full = queue.begun >= self.begun_max;
        queue.begun -= 1;
        self.ring(queue, |queue| was_full && !queue.first.is_empty());
    }

    /// Ends the queue.
    pub(crate) fn close(&self) {
        lock(&self.queue).closed = true;
        self.bell.notify_all();
    }

    /// Returns the next thing to process, or `None` at the end. If it will take `long`, another thread is
    /// woken for what follows it.
    pub(crate) fn next(&self, long: bool) -> Option<Ready> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(ready) = queue.take(self.begun_max) {
                self.ring(queue, |queue| long && queue.can_take(self.begun_max));
                return Some(ready);
            }
            // Threads that end an object take the next one.
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Action;

    fn item(size: u64) -> Arc<Item> {
        Arc::new(Item::new(0, "s3://b/k".into(), "k".into(), (size, None)))
    }

    fn bytes(gate: &Arc<Gate>, data: &[u8]) -> Bytes {
        assert!(gate.take(data.len() as u64));
        let mut bytes = Bytes::new(data.len() as u64, gate.clone());
        bytes.data = data.to_vec();
        bytes
    }

    #[test]
    fn ranges_are_handed_over_in_order_one_at_a_time() {
        let (gate, queue, item) = (Arc::new(Gate::new(100, 1)), HandOver::new(usize::MAX), item(6));
        queue.arrived(&item, 4, bytes(&gate, b"ef"), false);
        queue.arrived(&item, 0, bytes(&gate, b"ab"), false);
        queue.arrived(&item, 2, bytes(&gate, b"cd"), false);
        let mut all = Vec::new();
        for expected in [0, 2, 4] {
            let Some(Ready::Range(item, offset, bytes, last)) = queue.next(true) else { panic!() };
            assert_eq!((offset, last), (expected, expected == 4));
            assert!(
                {
                    let queue = lock(&queue.queue);
                    queue.ready.is_empty() && queue.first.is_empty()
                },
                "one at a time"
            );
            all.extend_from_slice(&bytes.data);
            drop(bytes);
            queue.give_back(&item, false);
        }
        assert_eq!(all, b"abcdef");
        assert_eq!(gate.look().0.memory_max, 6);
        assert!(gate.take(100), "all memory was returned");
        queue.close();
        assert!(queue.next(true).is_none());
    }

    #[test]
    fn a_failure_follows_what_a_thread_has_and_drops_the_rest() {
        let (gate, queue, item) = (Arc::new(Gate::new(100, 1)), HandOver::new(usize::MAX), item(6));
        queue.arrived(&item, 0, bytes(&gate, b"ab"), false);
        queue.arrived(&item, 4, bytes(&gate, b"ef"), false);
        queue.failed(&item, ObjectError::new(Action::Read, "u", Kind::Changed, "x"));
        queue.failed(&item, ObjectError::new(Action::Read, "u", Kind::Server, "y"));
        let Some(Ready::Range(first, 0, ..)) = queue.next(true) else { panic!() };
        assert!(item.is_over());
        queue.give_back(&first, false);
        let Some(Ready::Failed(_, error)) = queue.next(true) else { panic!() };
        assert_eq!(error.kind, Kind::Changed);
        assert!(gate.take(100), "the ranges that were not needed are gone");
        queue.close();
        assert!(queue.next(true).is_none());
    }

    #[test]
    fn no_more_objects_are_begun_than_allowed() {
        let (gate, queue) = (Arc::new(Gate::new(100, 1)), HandOver::new(1));
        let (one, two) = (item(4), item(2));
        queue.arrived(&one, 0, bytes(&gate, b"ab"), false);
        queue.arrived(&two, 0, bytes(&gate, b"xy"), false);
        let Some(Ready::Range(first, 0, ..)) = queue.next(true) else { panic!() };
        assert!(lock(&queue.queue).take(1).is_none(), "the first object has not ended");
        queue.give_back(&first, false);
        queue.arrived(&one, 2, bytes(&gate, b"cd"), false);
        let Some(Ready::Range(first, 2, _, true)) = queue.next(true) else { panic!() };
        assert!(first.was_begun() && lock(&queue.queue).take(1).is_none());
        queue.ended();
        let Some(Ready::Range(second, 0, _, true)) = queue.next(true) else { panic!() };
        assert_eq!(second.size, 2);
    }
}
