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
//! for a walk only on the side of the workers; in inode order also a `stat`, unless a walk knows the
//! inode.

use crate::bell::Bell;
use crate::error::FileError;
use ioloom_model::ReadOrder;
use ioloom_sys::file::{self, Kind};
use ioloom_walk::PathList;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Paths that may wait in the queue: enough to hide a slow iterator for a moment.
const WAITING_MAX: usize = 4096;
/// Paths that are queued at once if a walk has found them.
const BATCH_MAX: usize = 128;
/// Paths that are sorted by inode at once.
const SORTED_MAX: usize = 65_536;

/// What an iterator yields.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A path.
    Path(PathBuf),
    /// A path that a walk found to be a regular file, and its inode number; 0 if unknown.
    Regular(PathBuf, u64),
    /// An entry that could not be listed.
    Failed(FileError),
}

impl Entry {
    /// Returns an entry of a list.
    pub(crate) fn of(list: &PathList, at: usize) -> Self {
        let path = list.path(at).to_owned();
        if list.known_regular(at) {
            Self::Regular(path, list.inode(at).unwrap_or(0))
        } else {
            Self::Path(path)
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

/// The queue between the feeder and the workers.
pub(crate) struct Feed {
    /// Whether entries are taken in inode order.
    sorted: bool,
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
    /// Entries that the iterator has yielded.
    yielded: usize,
    /// Whether the iterator has ended.
    exhausted: bool,
    /// Whether the run takes no more paths.
    closed: bool,
    feeder_waits: bool,
    panic: Option<Box<dyn Any + Send>>,
}

enum Queue {
    Arrival(VecDeque<(usize, Entry)>),
    Inode {
        paths: BTreeMap<(u64, usize), Entry>,
        /// The last one taken.
        last: (u64, usize),
    },
}

impl Queue {
    fn len(&self) -> usize {
        match self {
            Self::Arrival(entries) => entries.len(),
            Self::Inode { paths, .. } => paths.len(),
        }
    }

    fn is_full(&self) -> bool {
        match self {
            Self::Arrival(entries) => entries.len() >= WAITING_MAX,
            Self::Inode { paths, .. } => paths.len() >= SORTED_MAX,
        }
    }

    fn pop(&mut self) -> Option<(usize, Entry)> {
        match self {
            Self::Arrival(entries) => entries.pop_front(),
            Self::Inode { paths, last } => {
                let above = paths.range((Bound::Excluded(*last), Bound::Unbounded)).next();
                let key = *above.or_else(|| paths.first_key_value())?.0;
                *last = key;
                paths.remove(&key).map(|entry| (key.1, entry))
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
    pub(crate) fn new(order: ReadOrder, bell: Arc<Bell>) -> Self {
        let queue = match order {
            ReadOrder::List => Queue::Arrival(VecDeque::new()),
            ReadOrder::Inode => Queue::Inode { paths: BTreeMap::new(), last: (0, 0) },
        };
        let state = State {
            queue,
            yielded: 0,
            exhausted: false,
            closed: false,
            feeder_waits: false,
            panic: None,
        };
        Self {
            sorted: order == ReadOrder::Inode,
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
            batch.push(self.keyed(entry));
            // A `stat` may take long, and the first path must not wait for those of others.
            let most = if self.sorted { 1 } else { BATCH_MAX };
            while batch.len() < most
                && let Some(entry) = entries.ready()
            {
                batch.push(self.keyed(entry));
            }
            if !self.push(&mut batch) {
                return;
            }
        }
    }

    fn keyed(&self, entry: Entry) -> (u64, Entry) {
        if self.sorted { sort_key(entry) } else { (0, entry) }
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
        for (inode, entry) in batch.drain(..) {
            let index = state.yielded;
            state.yielded += 1;
            match &mut state.queue {
                Queue::Arrival(entries) => entries.push_back((index, entry)),
                Queue::Inode { paths, .. } => {
                    paths.insert((inode, index), entry);
                }
            }
        }
        self.waiting.store(state.queue.len(), Ordering::Release);
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
        if state.queue.len() == 0 {
            self.ended.store(true, Ordering::Release);
        }
        drop(state);
        self.bell.ring_all();
    }

    /// Takes the next entry.
    pub(crate) fn take(&self) -> Taken {
        let mut state = self.lock();
        match state.queue.pop() {
            Some((index, entry)) => {
                self.waiting.store(state.queue.len(), Ordering::Release);
                // Half empty, so that the feeder and the workers do not alternate.
                if state.feeder_waits && state.queue.len() <= WAITING_MAX / 2 {
                    self.room.notify_one();
                }
                if state.exhausted && state.queue.len() == 0 {
                    self.ended.store(true, Ordering::Release);
                }
                Taken::Entry(index, entry)
            }
            None if state.exhausted => Taken::Ended,
            None => Taken::Empty,
        }
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
        state.queue.len() > 0 || state.exhausted
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

/// Returns an entry with its inode. A path whose `stat` fails sorts first and fails later with its
/// own error.
fn sort_key(entry: Entry) -> (u64, Entry) {
    match entry {
        Entry::Path(path) => match file::stat(&path) {
            Ok(facts) if facts.kind == Kind::Regular => {
                (facts.inode, Entry::Regular(path, facts.inode))
            }
            _ => (0, Entry::Path(path)),
        },
        Entry::Regular(path, 0) => sort_key(Entry::Path(path)),
        Entry::Regular(path, inode) => (inode, Entry::Regular(path, inode)),
        Entry::Failed(error) => (0, Entry::Failed(error)),
    }
}
