//! Files that can be found more than once: a compact set of inodes and the locations of their
//! links.
//!
//! Threads record links in the order they find them and do not add them to any total. When a root
//! is complete, [`LinkSet::settle`] returns every inode with all its links, so the choice of the
//! charged node depends only on the paths, not on which thread came first. Inodes of earlier roots
//! remain in the set and are not charged again.
//!
//! Cost: one of 64 locks and one lookup per link; about 90 bytes per inode, and in the root that is walked 16
//! more and 12 per link. The end of a root visits only the inodes that were found in it.

use crate::{Newest, Tally};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of locks; exceeds the number of threads that find hard links at the same time.
const SHARDS: usize = 64;
/// Marks the end of a chain of links.
const END: u32 = u32::MAX;

/// An inode on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Device number, with the major number in the upper half.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

impl FileId {
    /// Combines a device number and an inode number.
    #[inline]
    pub fn new(device: (u32, u32), inode: u64) -> Self {
        Self { device: u64::from(device.0) << 32 | u64::from(device.1), inode }
    }
}

/// An inode with its links.
#[derive(Debug, Clone, Copy)]
struct Known {
    apparent_bytes: u64,
    disk_bytes: u64,
    /// Link count of the inode.
    links: u32,
    /// First link in the current root.
    counts: u32,
    /// Whether it was charged in an earlier root.
    charged: bool,
}

/// The links of one inode in one directory.
#[derive(Debug, Clone, Copy)]
struct LinkCount {
    node: u32,
    count: u32,
    next: u32,
}

#[derive(Debug, Default)]
struct Shard {
    files: HashMap<FileId, Known>,
    counts: Vec<LinkCount>,
    /// The inodes with links in the current root.
    noted: Vec<FileId>,
    /// The times of the inodes; empty unless times were requested.
    times: HashMap<FileId, Newest>,
}

/// The inodes that can be found more than once.
#[derive(Debug)]
pub struct LinkSet {
    shards: Vec<Mutex<Shard>>,
    hash: RandomState,
}

impl Default for LinkSet {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, hash: RandomState::new() }
    }
}

/// An inode as returned at the end of a root.
#[derive(Debug)]
pub struct Settled<'a> {
    /// The inode.
    pub id: FileId,
    /// Its size when first found.
    pub size: Tally,
    /// Link count of the inode.
    pub links: u32,
    /// Whether it was charged in an earlier root.
    pub charged_before: bool,
    /// The nodes that contain its links, and the number of links in each; unordered.
    pub counts: &'a [(u32, u32)],
}

impl LinkSet {
    fn shard(&self, id: FileId) -> MutexGuard<'_, Shard> {
        let at = self.hash.hash_one(id) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a link to `id` in `node`.
    pub fn note(&self, id: FileId, size: Tally, links: u32, node: u32) {
        let mut shard = self.shard(id);
        let Shard { files, counts, noted, times } = &mut *shard;
        if size.newest != Newest::default() {
            times.entry(id).or_insert(size.newest);
        }
        let known = files.entry(id).or_insert(Known {
            apparent_bytes: size.apparent_bytes,
            disk_bytes: size.disk_bytes,
            links,
            counts: END,
            charged: false,
        });
        if known.counts == END {
            noted.push(id);
        }
        if let Some(entry) = counts.get_mut(known.counts as usize).filter(|p| p.node == node) {
            entry.count = entry.count.saturating_add(1);
            return;
        }
        // Four billion links in one of 64 shards would need more memory than any machine has.
        let at = u32::try_from(counts.len()).unwrap_or(END - 1);
        counts.push(LinkCount { node, count: 1, next: known.counts });
        known.counts = at;
    }

    /// Returns all inodes that were recorded, in order: the inode, its size and its link count.
    pub fn inodes(&self) -> Vec<(FileId, Tally, u32)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.files.iter().map(|(id, known)| {
                (*id, Tally::entry(known.apparent_bytes, known.disk_bytes), known.links)
            }));
        }
        all.sort_unstable_by_key(|(id, _, _)| *id);
        all
    }

    /// Returns the inodes found since the last call, in no particular order, and starts the next
    /// root.
    pub fn settle(&self, each: &mut dyn FnMut(Settled<'_>)) {
        let mut found: Vec<(u32, u32)> = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let Shard { files, counts, noted, times } = &mut *shard;
            for id in noted.drain(..) {
                let Some(known) = files.get_mut(&id) else { continue };
                found.clear();
                let mut at = known.counts;
                while let Some(entry) = counts.get(at as usize) {
                    found.push((entry.node, entry.count));
                    at = entry.next;
                }
                found.sort_unstable();
                found.dedup_by(|later, kept| {
                    let same = later.0 == kept.0;
                    if same {
                        kept.1 = kept.1.saturating_add(later.1);
                    }
                    same
                });
                let newest = times.get(&id).copied().unwrap_or_default();
                let size = Tally::entry(known.apparent_bytes, known.disk_bytes).at(newest.0);
                each(Settled {
                    id,
                    size,
                    links: known.links,
                    charged_before: known.charged,
                    counts: &found,
                });
                known.charged = true;
                known.counts = END;
            }
            counts.clear();
        }
    }
}

/// Directories found so far; used with `-L` and with several roots.
#[derive(Debug)]
pub struct Seen {
    shards: Vec<Mutex<std::collections::HashSet<FileId>>>,
    hash: RandomState,
}

impl Default for Seen {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, hash: RandomState::new() }
    }
}

impl Seen {
    /// Records an ID; returns true if it is new.
    pub fn first(&self, id: FileId) -> bool {
        let at = self.hash.hash_one(id) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner).insert(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(inode: u64) -> FileId {
        FileId::new((8, 1), inode)
    }

    /// Inode, whether it was charged in an earlier root, and its links.
    type Settlement = (u64, bool, Vec<(u32, u32)>);

    fn settled(set: &LinkSet) -> Vec<Settlement> {
        let mut all = Vec::new();
        set.settle(&mut |s| all.push((s.id.inode, s.charged_before, s.counts.to_vec())));
        all.sort();
        all
    }

    #[test]
    fn link_counts_do_not_depend_on_the_order() {
        let (a, b) = (LinkSet::default(), LinkSet::default());
        for node in [3, 1, 3, 2, 1] {
            a.note(id(7), Tally::entry(1, 512), 5, node);
        }
        for node in [1, 1, 2, 3, 3] {
            b.note(id(7), Tally::entry(1, 512), 5, node);
        }
        let expected = vec![(7, false, vec![(1, 2), (2, 1), (3, 2)])];
        assert_eq!((settled(&a), settled(&b)), (expected.clone(), expected));
    }

    #[test]
    fn a_later_root_is_not_charged_again() {
        let set = LinkSet::default();
        set.note(id(7), Tally::entry(1, 512), 3, 0);
        assert_eq!(settled(&set), [(7, false, vec![(0, 1)])]);
        set.note(id(7), Tally::entry(1, 512), 3, 4);
        set.note(id(8), Tally::entry(1, 512), 2, 4);
        assert_eq!(settled(&set), [(7, true, vec![(4, 1)]), (8, false, vec![(4, 1)])]);
        assert!(settled(&set).is_empty());
    }

    #[test]
    fn the_end_of_a_root_visits_only_its_inodes() {
        let noted = |set: &LinkSet| -> usize {
            set.shards.iter().map(|shard| shard.lock().unwrap().noted.len()).sum()
        };
        let set = LinkSet::default();
        for inode in 0..1000 {
            set.note(id(inode), Tally::entry(1, 512), 2, 0);
            set.note(id(inode), Tally::entry(1, 512), 2, 1);
        }
        assert_eq!((noted(&set), settled(&set).len(), noted(&set)), (1000, 1000, 0));
        set.note(id(7), Tally::entry(1, 512), 2, 4);
        assert_eq!((noted(&set), settled(&set)), (1, vec![(7, true, vec![(4, 1)])]));
    }

    #[test]
    fn devices_are_distinguished() {
        let seen = Seen::default();
        assert!(seen.first(FileId::new((0, 1), 5)) && !seen.first(FileId::new((0, 1), 5)));
        assert!(seen.first(FileId::new((1, 0), 5)));
    }
}
