//! Where paths come from: a packed list, or an iterator that streams.

use ioloom_model::ReadOrder;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file;
use ioloom_walk::PathList;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Paths that are sorted by inode at once when a stream is read in inode order.
const SORT_BATCH: usize = 65_536;

/// The next paths of a run; threads take from it.
pub(crate) struct Source<'s> {
    paths: From<'s>,
    /// When a thread first found no more path, on the monotonic clock; 0 before.
    ended_ns: AtomicU64,
}

enum From<'s> {
    /// All paths in memory.
    List {
        list: Cow<'s, PathList>,
        /// Positions in the order of reading; `None`: as given.
        order: Option<Vec<usize>>,
        next: AtomicUsize,
        max: usize,
    },
    /// Paths as they come.
    Stream(Box<dyn Paths + 's>),
}

/// Takes the next positions of a list. Few threads ever meet here: once per stripe.
fn claim_more(next: &AtomicUsize, max: usize, take: Take) -> Option<Claim> {
    let size = |at: usize| {
        let fair = (max.saturating_sub(at)) / (4 * take.threads.max(1));
        take.stripe.min(fair).max(1)
    };
    let claimed = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| {
        (at < max).then(|| (at + size(at)).min(max))
    });
    let at = claimed.ok()?;
    Some(Claim { next: at, end: (at + size(at)).min(max) })
}

/// An iterator of paths behind its lock.
pub(crate) trait Paths: Send + Sync {
    /// The next path and its position.
    fn next(&self) -> Option<(usize, PathBuf)>;
}

impl<I: Iterator<Item = PathBuf> + Send> Paths for Mutex<Stream<I>> {
    fn next(&self) -> Option<(usize, PathBuf)> {
        self.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next()
    }
}

/// An iterator of paths and a batch that was read ahead for sorting.
pub(crate) struct Stream<I> {
    paths: I,
    order: ReadOrder,
    batch: std::vec::IntoIter<(usize, PathBuf)>,
    read: usize,
}

/// One path to work on.
#[derive(Debug, Clone)]
pub(crate) enum ItemPath<'p> {
    Listed(&'p Path),
    Owned(PathBuf),
}

impl ItemPath<'_> {
    pub(crate) fn as_path(&self) -> &Path {
        match self {
            Self::Listed(path) => path,
            Self::Owned(path) => path,
        }
    }
}

/// One file of a run, with the state that the function keeps for it in chunk form.
#[derive(Debug)]
pub(crate) struct Item<'p, S> {
    pub(crate) index: usize,
    pub(crate) path: ItemPath<'p>,
    /// A walk saw that it is regular: it may be opened without asking first.
    pub(crate) known_regular: bool,
    pub(crate) state: Option<S>,
}

/// Neighbouring positions of a list that one thread has taken and not yet read.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    next: usize,
    end: usize,
}

/// How a thread takes paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Take {
    /// Positions that are claimed at once.
    pub(crate) stripe: usize,
    /// Threads that take; near the end claims shrink so that all of them end together.
    pub(crate) threads: usize,
}

impl<'s> Source<'s> {
    /// The first `max` paths of a list. A file keeps its position in the list, in whatever order
    /// it is read.
    pub(crate) fn list(list: Cow<'s, PathList>, order: ReadOrder, max: Option<u64>) -> Self {
        let max = max.map_or(list.len(), |m| (m as usize).min(list.len()));
        let order = (order == ReadOrder::Inode).then(|| {
            let mut keyed: Vec<(u64, usize)> =
                (0..max).map(|index| (inode_of(&list, index), index)).collect();
            keyed.sort_unstable();
            keyed.into_iter().map(|(_, index)| index).collect()
        });
        Self::of(From::List { list, order, next: AtomicUsize::new(0), max })
    }

    pub(crate) fn stream(
        paths: impl Iterator<Item = PathBuf> + Send + 's,
        order: ReadOrder,
    ) -> Self {
        let batch = Vec::new().into_iter();
        Self::of(From::Stream(Box::new(Mutex::new(Stream { paths, order, batch, read: 0 }))))
    }

    fn of(paths: From<'s>) -> Self {
        Self { paths, ended_ns: AtomicU64::new(0) }
    }

    /// When all paths were taken, on the monotonic clock; `None` before.
    pub(crate) fn ended_ns(&self) -> Option<u64> {
        Some(self.ended_ns.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// There is no more path. Said by each thread; the first one counts.
    #[cold]
    fn ends(&self) {
        let now = monotonic_ns();
        let _ = self.ended_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// How many paths there are, if that is known before the end.
    pub(crate) fn len(&self) -> Option<usize> {
        match &self.paths {
            From::List { max, .. } => Some(*max),
            From::Stream(_) => None,
        }
    }

    /// The next path for the thread that owns `claim`, or `None` at the end.
    #[inline]
    pub(crate) fn next<S>(&self, claim: &mut Claim, take: Take) -> Option<Item<'_, S>> {
        match &self.paths {
            From::List { list, order, next, max } => {
                if claim.next == claim.end {
                    let Some(more) = claim_more(next, *max, take) else {
                        self.ends();
                        return None;
                    };
                    *claim = more;
                }
                let at = claim.next;
                claim.next += 1;
                let index = order.as_ref().map_or(at, |order| order[at]);
                Some(Item {
                    index,
                    path: ItemPath::Listed(list.path(index)),
                    known_regular: list.known_regular(index),
                    state: None,
                })
            }
            From::Stream(stream) => {
                let Some((index, path)) = stream.next() else {
                    self.ends();
                    return None;
                };
                Some(Item { index, path: ItemPath::Owned(path), known_regular: false, state: None })
            }
        }
    }
}

/// The inode of a listed path, asked for if no walk told it. A path that cannot be asked sorts first
/// and fails later, with its own error.
fn inode_of(list: &PathList, index: usize) -> u64 {
    list.inode(index).unwrap_or_else(|| file::stat(list.path(index)).map_or(0, |facts| facts.inode))
}

impl<I: Iterator<Item = PathBuf>> Stream<I> {
    fn next(&mut self) -> Option<(usize, PathBuf)> {
        if self.order == ReadOrder::List {
            let path = self.paths.next()?;
            self.read += 1;
            return Some((self.read - 1, path));
        }
        if let Some(next) = self.batch.next() {
            return Some(next);
        }
        let mut batch: Vec<(u64, usize, PathBuf)> = Vec::new();
        for path in self.paths.by_ref().take(SORT_BATCH) {
            // A path that cannot be asked sorts first and fails later, with its own error.
            let inode = file::stat(&path).map_or(0, |facts| facts.inode);
            batch.push((inode, self.read, path));
            self.read += 1;
        }
        batch.sort_by_key(|(inode, index, _)| (*inode, *index));
        self.batch =
            batch.into_iter().map(|(_, index, path)| (index, path)).collect::<Vec<_>>().into_iter();
        self.batch.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let source = Source::stream(paths.clone().into_iter().rev(), ReadOrder::Inode);
        let (mut claim, take) = (Claim::default(), Take { stripe: 1, threads: 1 });
        let mut last = 0;
        let mut seen = 0;
        while let Some(item) = source.next::<()>(&mut claim, take) {
            assert_eq!(item.path.as_path(), paths[49 - item.index]);
            let inode = file::stat(item.path.as_path()).unwrap().inode;
            assert!(inode > last);
            last = inode;
            seen += 1;
        }
        assert_eq!(seen, 50);
        assert!(source.ended_ns().is_some(), "somebody has seen its end");
    }

    #[test]
    fn claims_cover_the_list_once_and_shrink_at_the_end() {
        let next = AtomicUsize::new(0);
        let take = Take { stripe: 16, threads: 4 };
        let mut seen = Vec::new();
        let mut sizes = Vec::new();
        while let Some(claim) = claim_more(&next, 1000, take) {
            sizes.push(claim.end - claim.next);
            seen.extend(claim.next..claim.end);
        }
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        assert_eq!((sizes[0], sizes[sizes.len() - 1]), (16, 1));
    }
}
