//! Where the files of a run come from: a list, an iterator, or trees that are walked before the run or
//! during it. It decides in which order files of a tree are read.

use crate::cancel::Cancel;
use crate::feed::{self, Before, Entries, Entry, Feeding, TakeOrder};
use crate::iter::Horizon;
use crate::source::{Listed, Source};
use crate::tree::{Found, Tally, TreeOptions, Walking};
use ioloom_model::ReadOrder;
use ioloom_walk::PathList;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

fn entries_of(list: Arc<PathList>) -> impl Iterator<Item = Entry> + Send {
    (0..list.len()).map(move |at| Entry::Listed(list.clone(), at))
}

/// Where files come from.
pub(crate) enum Input {
    List(Arc<PathList>),
    Stream(Entries),
    Tree(TreeOptions),
    /// A tree whose walk has begun, and its first root.
    Begun(Opened, Arc<Tally>, PathBuf),
}

impl Input {
    /// Makes the threads of a walk that has not begun lower their I/O priority.
    pub(crate) fn lower_priority(&mut self) {
        if let Self::Tree(options) = self {
            options.polite = true;
        }
    }

    /// Returns the number of files of a list, at most `max`, if all of them are known.
    pub(crate) fn len_until(&self, max: Option<u64>) -> Option<u64> {
        let Self::List(list) = self else { return None };
        let files = list.len() as u64;
        Some(max.map_or(files, |max| max.min(files)))
    }

    /// Starts a walk, if there is one. Returns the paths, and what will be known of the walk. What is
    /// found before the run is sorted if results will be in that order.
    pub(crate) fn open(
        self,
        sorted_results: bool,
        cancel: &Cancel,
    ) -> (Opened, Option<Arc<Tally>>) {
        let options = match self {
            Self::List(list) => return (Opened::List(list), None),
            Self::Stream(entries) => return (Opened::Stream(entries), None),
            Self::Tree(options) => options,
            Self::Begun(opened, tally, _) => return (opened, Some(tally)),
        };
        let (sorted, ahead) = (options.sorted, options.ahead);
        let (mut walking, tally) = Walking::new(options);
        let opened = if sorted {
            Opened::of(walking.sorted(cancel), None)
        } else if ahead.is_zero() {
            Opened::Walking(Box::new(walking))
        } else {
            // A time that is too long for the clock has no end.
            let until = Instant::now().checked_add(ahead);
            let found = walking.ahead(until, sorted_results, cancel);
            match Opened::of(found, Some(walking)) {
                Opened::List(list) => Opened::Found(list),
                opened => opened,
            }
        };
        (opened, Some(tally))
    }

    /// Returns the source of a run. `sorted`: results are wanted in the order of the input; with a horizon,
    /// they are also returned in that order during the run. `before` is called before each entry is taken.
    pub(crate) fn source<'s>(
        self,
        (order, sorted): (ReadOrder, bool),
        (max, before): (Option<u64>, Option<Before>),
        horizon: Option<Arc<Horizon>>,
        cancel: &Cancel,
    ) -> (Source<'s>, Option<Arc<Tally>>) {
        let (opened, tally) = self.open(sorted, cancel);
        let in_order = horizon.is_some() || before.is_some();
        let order = match (&opened, order) {
            // A disk reads forwards, and in memory neighbours probably lie together, too.
            (Opened::Walking(_) | Opened::Partly(_) | Opened::Found(_), _) if !in_order => {
                TakeOrder::KnownInode
            }
            // A `stat` of each link, on one thread, would take longer than the order saves.
            (_, ReadOrder::Inode) if tally.is_some() => TakeOrder::KnownInode,
            (_, order) => order.into(),
        };
        let entries = match (opened, in_order) {
            (Opened::List(list) | Opened::Found(list), false) => {
                return (Source::list(Listed::Shared(list), order, max, cancel), tally);
            }
            (opened, _) => opened.entries(),
        };
        let entries: Entries = match max {
            Some(max) => feed::one_by_one(first_files(entries, max)),
            None => entries,
        };
        let entries = match horizon {
            Some(horizon) => horizon.bound(entries),
            None => entries,
        };
        let entries = match before {
            Some(before) => feed::after(before, entries),
            None => entries,
        };
        (Source::stream(entries, order, in_order), tally)
    }
}

/// Takes the first `max` files, and the failures before the last one.
fn first_files(mut entries: Entries, max: u64) -> impl Iterator<Item = Entry> + Send {
    let mut left = max;
    std::iter::from_fn(move || {
        let entry = if left > 0 { entries.next()? } else { return None };
        left -= u64::from(!matches!(entry, Entry::Failed(_)));
        Some(entry)
    })
}

/// The paths of a run that is about to start.
pub(crate) enum Opened {
    List(Arc<PathList>),
    /// What a walk found before the run.
    Found(Arc<PathList>),
    Stream(Entries),
    /// What a walk finds while files are read.
    Walking(Entries),
    /// What a walk found before the run, and what it finds while files are read. The walk may have ended,
    /// with failures.
    Partly(Box<Begun>),
}

impl Opened {
    /// Takes what a walk has found. `walking` finds the rest; `None` for a tree that is sorted.
    fn of(found: Found, walking: Option<Walking>) -> Self {
        let Found { list, failed, ended } = found;
        if ended && failed.is_empty() {
            return Self::List(Arc::new(list));
        }
        let by_inode = walking.is_some();
        let rest = walking.filter(|_| !ended);
        let failed = failed.into_iter().map(|error| Entry::Failed(Box::new(error)));
        let found = failed.chain(entries_of(Arc::new(list)));
        let begun = Box::new(Begun { found: Some(Box::new(found)), rest });
        if by_inode { Self::Partly(begun) } else { Self::Stream(begun) }
    }

    /// Waits for the end of the walk, or until it is cancelled, and sorts what it finds.
    pub(crate) fn found(self, cancel: &Cancel) -> Found {
        let (entries, rest): (Box<dyn Iterator<Item = Entry> + Send>, _) = match self {
            Self::Partly(begun) => (Box::new(begun.found.into_iter().flatten()), begun.rest),
            other => (Box::new(other.entries()), None),
        };
        let (mut list, mut failed) = (PathList::default(), Vec::new());
        for entry in entries {
            match entry {
                Entry::Path(path) => list.push(path.as_os_str().as_bytes()),
                Entry::Listed(from, at) => list.append_range(&from, at..at + 1),
                Entry::Failed(error) => failed.push(*error),
            }
        }
        let rest = rest.map(|walking| walking.sorted(cancel)).unwrap_or_default();
        failed.extend(rest.failed);
        Found { list: PathList::sorted(&[list, rest.list]), failed, ended: true }
    }

    fn entries(self) -> Entries {
        match self {
            Self::List(list) | Self::Found(list) => feed::one_by_one(entries_of(list)),
            Self::Stream(entries) | Self::Walking(entries) => entries,
            Self::Partly(begun) => begun,
        }
    }
}

/// What a walk found before the run, and then what it finds.
pub(crate) struct Begun {
    /// `None` after its end.
    found: Option<Box<dyn Iterator<Item = Entry> + Send>>,
    rest: Option<Walking>,
}

impl Begun {
    /// Returns the next entry that was found before the run.
    #[inline]
    fn next_found(&mut self) -> Option<Entry> {
        let entry = self.found.as_mut()?.next();
        if entry.is_none() {
            self.found = None;
        }
        entry
    }
}

impl Iterator for Begun {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.next_found().or_else(|| self.rest.as_mut()?.next())
    }
}

impl Feeding for Begun {
    fn ready(&mut self) -> Option<Entry> {
        self.next_found().or_else(|| self.rest.as_mut()?.ready())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Claim;
    use crate::source::Next;
    use crate::take::Take;
    use ioloom_sys::file;
    use std::time::Duration;

    /// Names are created in an order that is neither that of paths nor, with hashed directories, that
    /// of the walk.
    #[test]
    fn a_tree_in_memory_is_read_by_inode_number() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..200 {
            std::fs::write(dir.path().join((n * 77 % 200).to_string()), "x").unwrap();
        }
        let roots = vec![dir.path().to_owned()];
        let ahead = Duration::from_secs(600);
        let input = Input::Tree(TreeOptions { roots, ahead, ..TreeOptions::default() });
        let (source, _) =
            input.source((ReadOrder::List, false), (None, None), None, &Cancel::new());
        let (mut claim, mut inodes) = (Claim::default(), Vec::new());
        while let Next::Item(item) =
            source.next::<()>(&mut claim, Take { stripe: 1, threads: 1, paced: false })
        {
            inodes.push(file::stat(item.path.as_path()).unwrap().inode);
        }
        assert_eq!(inodes.len(), 200);
        assert!(inodes.is_sorted(), "{inodes:?}");
    }

    #[test]
    fn a_walk_that_ended_with_failures_is_read_by_inode_number() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "x").unwrap();
        let roots = vec![dir.path().to_owned(), dir.path().join("missing")];
        for (sorted, by_inode) in [(false, true), (true, false)] {
            let (roots, ahead) = (roots.clone(), Duration::from_secs(600));
            let input = Input::Tree(TreeOptions { roots, ahead, sorted, ..TreeOptions::default() });
            let (opened, _) = input.open(false, &Cancel::new());
            assert_eq!(matches!(opened, Opened::Partly(_)), by_inode);
            let found = opened.found(&Cancel::new());
            assert_eq!((found.list.len(), found.failed.len()), (1, 1));
        }
    }
}
