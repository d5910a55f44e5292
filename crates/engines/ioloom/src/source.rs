//! The paths of a run: a packed list, or entries from an iterator.

use crate::bell::Bell;
use crate::cancel::Cancel;
use crate::claim::Claim;
use crate::error::FileError;
use crate::feed::{Entries, Entry, Feed, TakeOrder, Taken};
use crate::take::Take;
use ioloom_observe::Began;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file;
use ioloom_walk::{PathList, order_of};
use std::any::Any;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The paths of a run, which threads take from.
pub(crate) struct Source<'s> {
    paths: From<'s>,
    /// When a thread first found no more paths, on the monotonic clock; 0 before.
    ended_ns: AtomicU64,
    /// Where threads wait for a path.
    bell: Arc<Bell>,
}

enum From<'s> {
    /// All paths in memory.
    List {
        list: Listed<'s>,
        /// Positions in the order of reading; `None` for the order of the list.
        order: Option<Vec<usize>>,
        next: AtomicUsize,
        max: usize,
        returned: Returned,
    },
    /// Entries from an iterator, and the iterator before the start.
    /// With `one_by_one` a thread claims one entry at a time.
    Stream { feed: Arc<Feed>, entries: Mutex<Option<Entries>>, one_by_one: bool },
}

/// Positions that threads have claimed and given back.
#[derive(Debug, Default)]
struct Returned {
    /// The list ends under this lock, when nothing is left.
    ranges: Mutex<Vec<Range<usize>>>,
    /// How many positions there are.
    positions: AtomicUsize,
}

impl Returned {
    fn lock(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        self.ranges.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes a share. `end` is called under the lock if nothing is left.
    #[cold]
    fn claim(&self, take: Take, end: impl FnOnce()) -> Option<Range<usize>> {
        let mut ranges = self.lock();
        let Some(range) = ranges.pop() else {
            end();
            return None;
        };
        let positions = self.positions.load(Ordering::Relaxed);
        // Not single positions, which would bring threads together again.
        let size = take.size(positions).max(take.stripe.min(range.len() / 4)).min(range.len());
        self.positions.store(positions - size, Ordering::Relaxed);
        let split = range.start + size;
        if split < range.end {
            ranges.push(split..range.end);
        }
        Some(range.start..split)
    }

    /// Adds a range, unless the list has ended: other threads may be gone.
    #[cold]
    fn add(&self, range: Range<usize>, has_ended: impl FnOnce() -> bool) -> bool {
        let mut ranges = self.lock();
        if has_ended() {
            return false;
        }
        self.positions.fetch_add(range.len(), Ordering::Relaxed);
        ranges.push(range);
        true
    }
}

/// A list and who owns it.
pub(crate) enum Listed<'s> {
    Borrowed(&'s PathList),
    Shared(Arc<PathList>),
}

impl Deref for Listed<'_> {
    type Target = PathList;

    fn deref(&self) -> &PathList {
        match self {
            Self::Borrowed(list) => list,
            Self::Shared(list) => list,
        }
    }
}

/// The outcome of taking a path.
pub(crate) enum Next<'p, S> {
    /// A file.
    Item(Item<'p, S>),
    /// An entry that could not be listed.
    Failed(FileError),
    /// No path is available yet.
    Empty,
    /// There are no more paths.
    Ended,
}

/// Claims the next positions of a list. Threads seldom contend here: once per stripe.
fn claim_more(next: &AtomicUsize, max: usize, take: Take) -> Option<Range<usize>> {
    let size = |at: usize| take.size(max.saturating_sub(at));
    let claimed = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| {
        (at < max).then(|| (at + size(at)).min(max))
    });
    let at = claimed.ok()?;
    Some(at..(at + size(at)).min(max))
}

/// The path of one file.
#[derive(Debug, Clone)]
pub(crate) enum ItemPath<'p> {
    Listed(&'p Path),
    Shared(Arc<PathList>, usize),
    Owned(PathBuf),
}

impl ItemPath<'_> {
    #[inline]
    pub(crate) fn as_path(&self) -> &Path {
        match self {
            Self::Listed(path) => path,
            Self::Shared(list, at) => list.path(*at),
            Self::Owned(path) => path,
        }
    }
}

/// One file of a run, with the function's state for it in chunk form.
#[derive(Debug)]
pub(crate) struct Item<'p, S> {
    pub(crate) index: usize,
    pub(crate) path: ItemPath<'p>,
    /// Whether a walk found it to be regular. Such a file is opened without a `stat`.
    pub(crate) known_regular: bool,
    /// When it was opened.
    pub(crate) began: Began,
    /// Kept between the pieces of a file, in a box: most files have one piece, and never need it.
    pub(crate) state: Option<Box<S>>,
}

impl<'s> Source<'s> {
    /// Takes the first `max` paths of a list. A file keeps its position in the list whatever order
    /// it is read in.
    /// If the run is cancelled meanwhile, the rest is not queried.
    pub(crate) fn list(
        list: Listed<'s>,
        order: impl Into<TakeOrder>,
        max: Option<u64>,
        cancel: &Cancel,
    ) -> Self {
        let max = max.map_or(list.len(), |m| (m as usize).min(list.len()));
        let order = order.into();
        let order = (order != TakeOrder::Input).then(|| {
            let inode = |index| match order {
                TakeOrder::Inode if !cancel.is_cancelled() => inode_of(&list, index),
                _ => list.inode(index).unwrap_or(0),
            };
            let inodes: Vec<u64> = (0..max).map(inode).collect();
            order_of(&inodes)
        });
        Self::of(From::List {
            list,
            order,
            next: AtomicUsize::new(0),
            max,
            returned: Returned::default(),
        })
    }

    /// Takes the entries of an iterator as they come. `one_by_one`: a thread never claims an entry that
    /// another could process, because its results may have to wait for that entry.
    pub(crate) fn stream(entries: Entries, order: impl Into<TakeOrder>, one_by_one: bool) -> Self {
        let bell = Arc::new(Bell::default());
        let feed = Arc::new(Feed::new(order.into(), bell.clone()));
        let paths = From::Stream { feed, entries: Mutex::new(Some(entries)), one_by_one };
        Self { paths, ended_ns: AtomicU64::new(0), bell }
    }

    fn of(paths: From<'s>) -> Self {
        Self { paths, ended_ns: AtomicU64::new(0), bell: Arc::default() }
    }

    /// Starts to pull the iterator, if there is one.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        let From::Stream { feed, entries, .. } = &self.paths else { return Ok(()) };
        let entries = entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        entries.map_or(Ok(()), |entries| feed.start(entries))
    }

    /// Returns the bell that rings when a path arrives and when the list ends.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Reports whether a thread that looks now would find a path or the end of the list.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        match &self.paths {
            From::List { .. } => true,
            From::Stream { feed, .. } => feed.is_settled(),
        }
    }

    /// Reports the same to a thread that is about to rest on the bell.
    pub(crate) fn is_settled_surely(&self) -> bool {
        match &self.paths {
            From::List { .. } => true,
            From::Stream { feed, .. } => feed.is_settled_surely(),
        }
    }

    /// Reports whether all paths were taken.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.paths {
            From::List { .. } => self.ended_ns().is_some(),
            From::Stream { feed, .. } => feed.has_ended(),
        }
    }

    /// Returns how many paths wait to be taken, as far as is known now.
    pub(crate) fn waiting(&self) -> usize {
        match &self.paths {
            From::List { next, max, returned, .. } => {
                let unclaimed = max.saturating_sub(next.load(Ordering::Relaxed));
                unclaimed + returned.positions.load(Ordering::Relaxed)
            }
            From::Stream { feed, .. } => feed.waiting(),
        }
    }

    /// Returns the panic of the iterator, once.
    pub(crate) fn panic(&self) -> Option<Box<dyn Any + Send>> {
        match &self.paths {
            From::List { .. } => None,
            From::Stream { feed, .. } => feed.panic(),
        }
    }

    /// Returns when the last path was taken, on the monotonic clock, or `None` before that.
    pub(crate) fn ended_ns(&self) -> Option<u64> {
        Some(self.ended_ns.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// Records that there are no more paths. The first call counts.
    #[cold]
    fn ends(&self) {
        let now = monotonic_ns();
        let _ = self.ended_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns what is left of a claim, for other threads. Returns false if they have seen the end and
    /// may be gone: the claim then stays.
    #[cold]
    pub(crate) fn give_back(&self, claim: &mut Claim) -> bool {
        if self.has_ended() {
            return false;
        }
        let given = match &self.paths {
            From::List { returned, .. } => returned.add(claim.next..claim.end, || self.has_ended()),
            From::Stream { feed, .. } => feed.give_back(&mut claim.entries),
        };
        if given {
            claim.was_given_back();
            self.bell.ring_all();
        }
        given
    }

    /// Returns the number of paths that have arrived, and whether there will be no more.
    pub(crate) fn arrived(&self) -> (usize, bool) {
        match &self.paths {
            From::List { max, .. } => (*max, true),
            From::Stream { feed, .. } => feed.arrived(),
        }
    }

    /// Returns the number of paths, if it is known before the end.
    pub(crate) fn len(&self) -> Option<usize> {
        match &self.paths {
            From::List { max, .. } => Some(*max),
            From::Stream { .. } => None,
        }
    }

    /// Returns the first path of a list.
    pub(crate) fn first(&self) -> Option<&Path> {
        match &self.paths {
            From::List { list, max, .. } => (*max > 0).then(|| list.path(0)),
            From::Stream { .. } => None,
        }
    }

    /// Takes the next path for the thread that owns `claim`.
    #[inline(always)]
    pub(crate) fn next<S>(&self, claim: &mut Claim, take: Take) -> Next<'_, S> {
        let From::List { list, order, next, max, returned } = &self.paths else {
            return self.next_of_stream(claim, take);
        };
        let single =
            claim.is_empty() && take.stripe <= 1 && returned.positions.load(Ordering::Relaxed) == 0;
        // One position is taken without a claim.
        let taken = if single { next.fetch_add(1, Ordering::Relaxed) } else { usize::MAX };
        let at = if taken < *max {
            taken
        } else {
            if claim.is_empty() && !self.claim_positions(claim, take) {
                return Next::Ended;
            }
            debug_assert!(claim.next < claim.end, "a claim is used by one thread, in order");
            claim.next += 1;
            claim.next - 1
        };
        let index = order.as_ref().map_or(at, |order| order[at]);
        Next::Item(Item {
            index,
            path: ItemPath::Listed(list.path(index)),
            known_regular: list.known_regular(index),
            began: Began::default(),
            state: None,
        })
    }

    /// Claims the next positions of a list. Returns false if it has ended.
    #[inline(never)]
    fn claim_positions(&self, claim: &mut Claim, take: Take) -> bool {
        let From::List { next, max, returned, .. } = &self.paths else { return false };
        let take = claim.paced(take);
        let back = match returned.positions.load(Ordering::Relaxed) {
            0 => None,
            _ => returned.claim(take, || ()),
        };
        let more = back.or_else(|| claim_more(next, *max, take));
        let Some(more) = more.or_else(|| returned.claim(take, || self.ends())) else {
            return false;
        };
        claim.got(more.len());
        (claim.next, claim.end) = (more.start, more.end);
        true
    }

    #[inline(never)]
    fn next_of_stream<S>(&self, claim: &mut Claim, take: Take) -> Next<'_, S> {
        let (index, entry) = match claim.entries.pop_front() {
            Some(claimed) => {
                claim.next += 1;
                claimed
            }
            None => match self.claim_entries(claim, take) {
                Taken::Entry(index, entry) => (index, entry),
                Taken::Empty => return Next::Empty,
                Taken::Ended => {
                    self.ends();
                    return Next::Ended;
                }
            },
        };
        let (path, known_regular) = match entry {
            Entry::Listed(list, at) => {
                let known_regular = list.known_regular(at);
                (ItemPath::Shared(list, at), known_regular)
            }
            Entry::Path(path) => (ItemPath::Owned(path), false),
            Entry::Failed(error) => return Next::Failed(FileError { index, ..*error }),
        };
        Next::Item(Item { index, path, known_regular, began: Began::default(), state: None })
    }

    /// Takes the next entry of a stream, and claims those that follow.
    #[inline(never)]
    fn claim_entries(&self, claim: &mut Claim, take: Take) -> Taken {
        let From::Stream { feed, one_by_one, .. } = &self.paths else { return Taken::Ended };
        let take = claim.paced(take).of_stream(*one_by_one);
        let taken = feed.take(take, &mut claim.entries);
        claim.got(match taken {
            Taken::Entry(..) => 1 + claim.entries.len(),
            Taken::Empty | Taken::Ended => 0,
        });
        (claim.next, claim.end) = (0, claim.entries.len());
        taken
    }
}

impl Drop for Source<'_> {
    fn drop(&mut self) {
        if let From::Stream { feed, .. } = &self.paths {
            feed.close();
        }
    }
}

/// Returns the inode of a listed path, with a `stat` if no walk recorded it. A path whose `stat`
/// fails sorts first and fails later with its own error.
fn inode_of(list: &PathList, index: usize) -> u64 {
    list.inode(index).unwrap_or_else(|| file::stat(list.path(index)).map_or(0, |facts| facts.inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::ReadOrder;

    const ALONE: Take = Take { stripe: 1, threads: 1, paced: false };

    fn entries(paths: impl IntoIterator<Item = PathBuf, IntoIter: Send + 'static>) -> Entries {
        crate::feed::one_by_one(paths.into_iter().map(Entry::Path))
    }

    /// Waits until `source` holds `files` paths.
    fn await_paths(source: &Source<'_>, files: usize) {
        for _ in 0..60_000 {
            if source.waiting() == files {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("only {} of {files} paths arrived", source.waiting());
    }

    #[test]
    fn a_thread_claims_a_fair_share_of_what_waits() {
        let paths: Vec<PathBuf> = (0..64).map(|n| PathBuf::from(n.to_string())).collect();
        for (one_by_one, claimed) in [(false, 4), (true, 1)] {
            let source = Source::stream(entries(paths.clone()), ReadOrder::List, one_by_one);
            source.start().unwrap();
            await_paths(&source, 64);
            let take = Take { stripe: 1, threads: 2, paced: false };
            let (mut first, mut second) = (Claim::default(), Claim::default());
            let index = |claim: &mut Claim| match source.next::<()>(claim, take) {
                Next::Item(item) => item.index,
                _ => panic!("paths wait"),
            };
            assert_eq!((index(&mut first), index(&mut second)), (0, claimed));
            assert_eq!(first.is_empty(), one_by_one);
            let mut rest: Vec<usize> = Vec::new();
            for _ in 0..31 {
                rest.extend([index(&mut first), index(&mut second)]);
            }
            assert!(first.is_empty() && second.is_empty(), "near the end they take single paths");
            rest.sort_unstable();
            let all: Vec<usize> = (1..64).filter(|index| *index != claimed).collect();
            assert_eq!(rest, all);
        }
    }

    #[test]
    fn a_stream_in_inode_order_keeps_every_path_and_its_index() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..50)
            .map(|i| {
                let path = dir.path().join(format!("{}", (i * 7) % 50));
                std::fs::write(&path, b"x").unwrap();
                path
            })
            .collect();
        let reversed: Vec<PathBuf> = paths.iter().rev().cloned().collect();
        let source = Source::stream(entries(reversed), ReadOrder::Inode, false);
        source.start().unwrap();
        await_paths(&source, 50);
        let mut claim = Claim::default();
        let mut last = 0;
        let mut seen = 0;
        loop {
            match source.next::<()>(&mut claim, ALONE) {
                Next::Item(item) => {
                    assert_eq!(item.path.as_path(), paths[49 - item.index]);
                    let inode = file::stat(item.path.as_path()).unwrap().inode;
                    assert!(inode > last);
                    last = inode;
                    seen += 1;
                }
                Next::Empty => std::thread::yield_now(),
                Next::Failed(error) => panic!("{error}"),
                Next::Ended => break,
            }
        }
        assert_eq!(seen, 50);
        assert!(source.ended_ns().is_some(), "the end was recorded");
        assert!(source.has_ended());
    }

    #[test]
    fn a_path_can_be_taken_before_the_next_one_exists() {
        let (send, paths) = std::sync::mpsc::channel::<PathBuf>();
        let source = Source::stream(entries(paths), ReadOrder::List, false);
        source.start().unwrap();
        let mut claim = Claim::default();
        for index in 0..3 {
            assert!(matches!(source.next::<()>(&mut claim, ALONE), Next::Empty));
            send.send(PathBuf::from(index.to_string())).unwrap();
            await_paths(&source, 1);
            let Next::Item(item) = source.next::<()>(&mut claim, ALONE) else { panic!() };
            assert_eq!(item.index, index);
        }
        drop(send);
        source.bell().rest(|_| source.is_settled_surely().then_some(()));
        assert!(matches!(source.next::<()>(&mut claim, ALONE), Next::Ended));
    }

    #[test]
    fn a_dropped_source_ends_a_feeder_that_waits_for_room() {
        let (ended, feeder_ended) = std::sync::mpsc::channel::<()>();
        let endless = std::iter::repeat_with(move || {
            let _held_until_the_feeder_ends = &ended;
            PathBuf::from("x")
        });
        let source = Source::stream(entries(endless), ReadOrder::List, false);
        source.start().unwrap();
        await_paths(&source, 4096);
        drop(source);
        let guard = std::time::Duration::from_secs(60);
        assert_eq!(
            feeder_ended.recv_timeout(guard),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
        );
    }

    #[test]
    fn a_claim_that_was_given_back_is_taken_before_the_end() {
        let paths: Vec<PathBuf> = (0..400).map(|n| PathBuf::from(n.to_string())).collect();
        let mut list = PathList::default();
        paths.iter().for_each(|path| list.push(path.as_os_str().as_encoded_bytes()));
        let of_list = Source::list(Listed::Borrowed(&list), ReadOrder::List, None, &Cancel::new());
        let [of_stream, by_inode] = [ReadOrder::List, ReadOrder::Inode].map(|order| {
            let source = Source::stream(entries(paths.clone()), order, false);
            source.start().unwrap();
            await_paths(&source, 400);
            source
        });
        let take = Take { stripe: 16, threads: 2, paced: true };
        for source in [of_list, of_stream, by_inode] {
            let mut seen = Vec::new();
            let mut next = |claim: &mut Claim| match source.next::<()>(claim, take) {
                Next::Item(item) => {
                    assert_eq!(item.path.as_path(), paths[item.index]);
                    seen.push(item.index);
                    true
                }
                _ => false,
            };
            let mut claims = [Claim::default(), Claim::default(), Claim::default()];
            let mut given = 0;
            while next(&mut claims[0]) {
                if !claims[0].is_empty() {
                    let left = claims[0].end - claims[0].next;
                    assert!(source.give_back(&mut claims[0]) && claims[0].is_empty());
                    given += left;
                }
                // Two threads take what it gives back, and what it has never claimed.
                assert!(claims[1..].iter_mut().all(|claim| !next(claim) || claim.next <= 400));
            }
            assert!(given > 0);
            while claims.iter_mut().any(&mut next) {}
            // The feeder may find the end of its iterator later.
            for _ in 0..60_000 {
                if source.has_ended() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let mut late = Claim::default();
            (late.next, late.end) = (3, 5);
            assert!(!source.give_back(&mut late) && !late.is_empty(), "no thread would take it");
            seen.sort_unstable();
            assert_eq!(seen, (0..400).collect::<Vec<_>>());
        }
    }

    #[test]
    fn claims_cover_the_list_once_and_shrink_at_the_end() {
        let next = AtomicUsize::new(0);
        let take = Take { stripe: 16, threads: 4, paced: false };
        let mut seen = Vec::new();
        let mut sizes = Vec::new();
        while let Some(claim) = claim_more(&next, 1000, take) {
            sizes.push(claim.len());
            seen.extend(claim);
        }
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        assert_eq!((sizes[0], sizes[sizes.len() - 1]), (16, 1));
    }
}
