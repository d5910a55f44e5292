//! Paths that arrive while the run is working.
//!
//! One thread, the feeder, pulls the iterator and queues each path before it pulls the next one.
//! Workers never call the iterator, so they process what they have while the caller is still
//! producing. The feeder is not scoped: if the run is cancelled while the iterator blocks, the run
//! returns, and the feeder exits when the iterator returns.
//!
//! ```text
//! iterator ──next──► feeder ──push──► queue ──take──► workers
//!                      ▲ waits when the queue is full    │ rest on the bell when it is empty
//!                      └──────────── room ◄──────────────┘
//! ```
//!
//! In inode order the queue is an elevator: the next path is the one with the smallest inode above
//! the last one, among those that have arrived. Cost per path: an uncontended lock on either side,
//! for a walk only on the side of the workers; in inode order also a `stat`, but not of what a walk has
//! found.

use crate::bell::Bell;
use crate::elevator::Elevator;
use crate::error::FileError;
use crate::take::Take;
use ioloom_model::ReadOrder;
use ioloom_sys::file::{self, Kind};
use ioloom_walk::PathList;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Paths that may wait in the queue: enough to hide a slow iterator for a moment.
const WAITING_MAX: usize = 4096;
/// Paths that are queued at once if a walk has found them.
const BATCH_MAX: usize = 128;
/// Paths that are sorted by inode at once.
const SORTED_MAX: usize = 65_536;

/// The order in which paths are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakeOrder {
    /// That of the input.
    Input,
    /// By inode number. A path without a recorded one is queried.
    Inode,
    /// By the inode number that a walk has recorded; paths without one count as 0.
    KnownInode,
}

impl From<ReadOrder> for TakeOrder {
    fn from(order: ReadOrder) -> Self {
        match order {
            ReadOrder::List => Self::Input,
            ReadOrder::Inode => Self::Inode,
        }
    }
}

/// What an iterator yields.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A path.
    Path(PathBuf),
    /// A path of a packed list. With an allocation per path, which another thread releases, many
    /// threads would wait for the lock of one heap.
    Listed(Arc<PathList>, usize),
    /// An entry that could not be listed. Boxed because entries are moved often, and few fail.
    Failed(Box<FileError>),
}

impl Entry {
    /// Returns the path, unless the entry could not be listed.
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Listed(list, at) => Some(list.path(*at)),
            Self::Failed(_) => None,
        }
    }

    /// Returns the inode number, if a walk has recorded it.
    fn inode(&self) -> Option<u64> {
        match self {
            Self::Listed(list, at) => list.inode(*at),
            Self::Path(_) | Self::Failed(_) => None,
        }
    }
}

/// Where the feeder takes entries from.
pub(crate) trait Feeding: Iterator<Item = Entry> + Send {
    /// Returns the next entry if it is there already.
    fn ready(&mut self) -> Option<Entry> {
        None
    }
}

/// The input of a feed.
pub(crate) type Entries = Box<dyn Feeding>;

/// An iterator of which nothing is known before its `next` returns.
struct OneByOne<I>(I);

impl<I: Iterator<Item = Entry>> Iterator for OneByOne<I> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.0.next()
    }
}

impl<I: Iterator<Item = Entry> + Send> Feeding for OneByOne<I> {}

/// Makes an input of any iterator.
pub(crate) fn one_by_one(entries: impl Iterator<Item = Entry> + Send + 'static) -> Entries {
    Box::new(OneByOne(entries))
}

/// What is called with the position of an entry before it is taken, and may wait.
pub(crate) type Before = Box<dyn FnMut(usize) + Send>;

/// Takes each entry after a call.
pub(crate) fn after(mut before: Before, mut entries: Entries) -> Entries {
    let mut position = 0;
    one_by_one(std::iter::from_fn(move || -> Option<Entry> {
        before(position);
        position += 1;
        entries.next()
    }))
}

/// The queue between the feeder and the workers.
pub(crate) struct Feed {
    order: TakeOrder,
    state: Mutex<State>,
    /// Entries in the queue, for checks without the lock. Written under it.
    waiting: AtomicUsize,
    /// Whether the queue is empty for good. Written under the lock.
    ended: AtomicBool,
    /// The feeder waits here while the queue is full.
    room: Condvar,
    bell: Arc<Bell>,
}

struct State {
    queue: Queue,
    /// Entries that threads have given back, taken before all others.
    returned: VecDeque<(usize, Entry)>,
    /// Entries that the iterator has yielded.
    yielded: usize,
    /// Whether the iterator has ended.
    exhausted: bool,
    /// Whether the run takes no more paths.
    closed: bool,
    feeder_waits: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl State {
    fn len(&self) -> usize {
        self.returned.len() + self.queue.len()
    }

    fn pop(&mut self) -> Option<(usize, Entry)> {
        self.returned.pop_front().or_else(|| self.queue.pop())
    }

    /// Moves the next entries to `to`, at most `most`.
    fn pop_into(&mut self, to: &mut VecDeque<(usize, Entry)>, most: usize) {
        let returned = most.min(self.returned.len());
        if returned > 0 {
            to.extend(self.returned.drain(..returned));
        }
        self.queue.pop_into(to, most - returned);
    }
}

enum Queue {
    Arrival(VecDeque<(usize, Entry)>),
    /// By inode and position.
    Inode(Elevator<(u64, usize), Entry>),
}

impl Queue {
    fn len(&self) -> usize {
        match self {
            Self::Arrival(entries) => entries.len(),
            Self::Inode(entries) => entries.len(),
        }
    }

    fn is_full(&self) -> bool {
        self.len() >= self.most()
    }

    fn is_half_empty(&self) -> bool {
        self.len() <= self.most() / 2
    }

    fn most(&self) -> usize {
        match self {
            Self::Arrival(_) => WAITING_MAX,
            Self::Inode(_) => SORTED_MAX,
        }
    }

    fn pop(&mut self) -> Option<(usize, Entry)> {
        match self {
            Self::Arrival(entries) => entries.pop_front(),
            Self::Inode(entries) => entries.pop().map(|((_, index), entry)| (index, entry)),
        }
    }

    /// Moves the next entries to `to`, at most `most`.
    fn pop_into(&mut self, to: &mut VecDeque<(usize, Entry)>, most: usize) {
        let count = most.min(self.len());
        match self {
            Self::Arrival(entries) => to.extend(entries.drain(..count)),
            Self::Inode(entries) => {
                to.reserve(count);
                for ((_, index), entry) in (0..count).map_while(|_| entries.pop()) {
                    to.push_back((index, entry));
                }
            }
        }
    }
}

/// The outcome of taking an entry.
pub(crate) enum Taken {
    /// The next entry and its position in the input.
    Entry(usize, Entry),
    /// Nothing has arrived.
    Empty,
    /// Nothing will arrive.
    Ended,
}

impl Feed {
    pub(crate) fn new(order: TakeOrder, bell: Arc<Bell>) -> Self {
        let queue = match order {
            TakeOrder::Input => Queue::Arrival(VecDeque::new()),
            TakeOrder::Inode | TakeOrder::KnownInode => Queue::Inode(Elevator::new()),
        };
        let state = State {
            queue,
            returned: VecDeque::new(),
            yielded: 0,
            exhausted: false,
            closed: false,
            feeder_waits: false,
            panic: None,
        };
        Self {
            order,
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            room: Condvar::new(),
            bell,
        }
    }

    /// Starts the feeder.
    pub(crate) fn start(self: &Arc<Self>, entries: Entries) -> std::io::Result<()> {
        let feed = self.clone();
        std::thread::Builder::new().name("ioloom-input".to_owned()).spawn(move || {
            let pulled = catch_unwind(AssertUnwindSafe(|| feed.pull(entries)));
            feed.exhaust(pulled.err());
        })?;
        Ok(())
    }

    fn pull(&self, mut entries: Entries) {
        let mut batch = Vec::new();
        while let Some(entry) = entries.next() {
            // A `stat` may take long, and the first path must not wait for those of others.
            let mut quick = self.is_quick(&entry);
            batch.push(self.keyed(entry));
            while quick
                && batch.len() < BATCH_MAX
                && let Some(entry) = entries.ready()
            {
                quick = self.is_quick(&entry);
                batch.push(self.keyed(entry));
            }
            if !self.push(&mut batch) {
                return;
            }
        }
    }

    /// Reports whether an entry needs no `stat` before it is queued.
    fn is_quick(&self, entry: &Entry) -> bool {
        self.order != TakeOrder::Inode || entry.inode().is_some() || entry.path().is_none()
    }

    fn keyed(&self, entry: Entry) -> (u64, Entry) {
        let inode = match self.order {
            TakeOrder::Input => None,
            TakeOrder::KnownInode => entry.inode(),
            TakeOrder::Inode => entry.inode().or_else(|| queried_inode(&entry)),
        };
        (inode.unwrap_or(0), entry)
    }

    /// Queues all entries of a batch, after waiting for room. Returns false if the run takes no more.
    fn push(&self, batch: &mut Vec<(u64, Entry)>) -> bool {
        let mut state = self.lock();
        while state.queue.is_full() && !state.closed {
            state.feeder_waits = true;
            state = self.room.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.feeder_waits = false;
        if state.closed {
            return false;
        }
        let many = batch.len() > 1;
        let from = state.yielded;
        state.yielded += batch.len();
        let numbered =
            batch.drain(..).enumerate().map(|(n, (inode, entry))| (inode, from + n, entry));
        match &mut state.queue {
            Queue::Arrival(entries) => {
                entries.extend(numbered.map(|(_, index, entry)| (index, entry)))
            }
            Queue::Inode(entries) => {
                entries.extend(
                    numbered.map(|(inode, index, entry)| ((inode, index), entry)).collect(),
                );
            }
        }
        self.waiting.store(state.len(), Ordering::Release);
        drop(state);
        if many {
            self.bell.ring_all();
        } else {
            self.bell.ring();
        }
        true
    }

    /// Records that the iterator has ended, or that it panicked.
    fn exhaust(&self, panic: Option<Box<dyn Any + Send>>) {
        let mut state = self.lock();
        assert!(!state.exhausted, "one feeder ends a feed once");
        state.exhausted = true;
        state.panic = panic;
        if state.len() == 0 {
            self.ended.store(true, Ordering::Release);
        }
        drop(state);
        self.bell.ring_all();
    }

    /// Takes the next entry, and moves to `more` as many as follow it of a fair share of those that have
    /// arrived.
    pub(crate) fn take(&self, take: Take, more: &mut VecDeque<(usize, Entry)>) -> Taken {
        let mut state = self.lock();
        match state.pop() {
            Some((index, entry)) => {
                let following = take.size(state.len() + 1) - 1;
                if following > 0 {
                    state.pop_into(more, following);
                }
                self.waiting.store(state.len(), Ordering::Release);
                // Half empty, so that the feeder and the workers do not alternate.
                if state.feeder_waits && state.queue.is_half_empty() {
                    self.room.notify_one();
                }
                if state.exhausted && state.len() == 0 {
                    self.ended.store(true, Ordering::Release);
                }
                Taken::Entry(index, entry)
            }
            None if state.exhausted => Taken::Ended,
            None => Taken::Empty,
        }
    }

    /// Returns entries that were taken, to be taken next. Returns false if the end has been seen: they
    /// then stay with the caller.
    pub(crate) fn give_back(&self, entries: &mut VecDeque<(usize, Entry)>) -> bool {
        let mut state = self.lock();
        if self.ended.load(Ordering::Acquire) {
            return false;
        }
        while let Some(entry) = entries.pop_back() {
            state.returned.push_front(entry);
        }
        self.waiting.store(state.len(), Ordering::Release);
        true
    }

    /// Returns the panic of the iterator, once.
    pub(crate) fn panic(&self) -> Option<Box<dyn Any + Send>> {
        self.lock().panic.take()
    }

    /// Reports whether a thread that looks now would find an entry or the end.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0 || self.ended.load(Ordering::Acquire)
    }

    /// Reports the same under the lock, for threads about to sleep.
    pub(crate) fn is_settled_surely(&self) -> bool {
        let state = self.lock();
        state.len() > 0 || state.exhausted
    }

    /// Returns the number of entries that have arrived, and whether there will be no more.
    pub(crate) fn arrived(&self) -> (usize, bool) {
        let state = self.lock();
        (state.yielded, state.exhausted)
    }

    /// Returns the number of entries in the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Reports whether the queue is empty for good.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Ends the feeder at its next entry.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.room.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Queries the inode of an entry. A path whose `stat` fails sorts first and fails later with its
/// own error. A path that was given may be a link, which is followed.
fn queried_inode(entry: &Entry) -> Option<u64> {
    let facts = file::stat(entry.path()?).ok()?;
    (facts.kind == Kind::Regular).then_some(facts.inode)
}
