//! The paths of a run, from a packed list or from an iterator.

use ioloom_model::ReadOrder;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file;
use ioloom_walk::PathList;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Paths per batch when a stream is sorted by inode.
const SORT_BATCH: usize = 65_536;

/// The paths of a run, which threads take from.
pub(crate) struct Source<'s> {
    paths: From<'s>,
    /// When a thread first found no more paths, on the monotonic clock; 0 before.
    ended_ns: AtomicU64,
}

enum From<'s> {
    /// All paths in memory.
    List {
        list: Cow<'s, PathList>,
        /// Positions in the order of reading; `None` for the order of the list.
        order: Option<Vec<usize>>,
        next: AtomicUsize,
        max: usize,
    },
    /// Paths from an iterator.
    Stream(Box<dyn Paths + 's>),
}

/// Claims the next positions of a list. Threads seldom contend here: once per stripe.
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

/// An iterator of paths behind a lock.
pub(crate) trait Paths: Send + Sync {
    /// Returns the next path and its position.
    fn next(&self) -> Option<(usize, PathBuf)>;
}

impl<I: Iterator<Item = PathBuf> + Send> Paths for Mutex<Stream<I>> {
    fn next(&self) -> Option<(usize, PathBuf)> {
        self.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next()
    }
}

/// An iterator of paths, and a batch read ahead for sorting.
pub(crate) struct Stream<I> {
    paths: I,
    order: ReadOrder,
    batch: std::vec::IntoIter<(usize, PathBuf)>,
    read: usize,
}

/// The path of one file.
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

/// One file of a run, with the function's state for it in chunk form.
#[derive(Debug)]
pub(crate) struct Item<'p, S> {
    pub(crate) index: usize,
    pub(crate) path: ItemPath<'p>,
    /// Whether a walk found it to be regular. Such a file is opened without a `stat`.
    pub(crate) known_regular: bool,
    pub(crate) state: Option<S>,
}

/// Neighbouring positions of a list that a thread has claimed and not yet processed.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    next: usize,
    end: usize,
}

/// How a thread takes paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Take {
    /// Positions to claim at once.
    pub(crate) stripe: usize,
    /// Threads that take paths. Near the end claims shrink, so that all threads end together.
    pub(crate) threads: usize,
}

impl<'s> Source<'s> {
    /// Takes the first `max` paths of a list. A file keeps its position in the list whatever order
    /// it is read in.
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

    /// Returns the number of paths, if it is known before the end.
    pub(crate) fn len(&self) -> Option<usize> {
        match &self.paths {
            From::List { max, .. } => Some(*max),
            From::Stream(_) => None,
        }
    }

    /// Returns the next path for the thread that owns `claim`, or `None` at the end.
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
                debug_assert!(claim.next < claim.end, "a claim is used by one thread, in order");
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

/// Returns the inode of a listed path, with a `stat` if no walk recorded it. A path whose `stat`
/// fails sorts first and fails later with its own error.
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
            // A path whose `stat` fails sorts first and fails later with its own error.
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
        assert!(source.ended_ns().is_some(), "the end was recorded");
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
