//! A packed list of paths: a million paths in a few blocks of memory.
//!
//! The bytes of all paths are stored back to back with one offset each, so that a path costs its
//! bytes plus 8 (16 with an inode number) instead of an allocation. Sorting builds a second copy
//! and then frees the first, so memory doubles in the meantime. Several lists are sorted into one with
//! a single copy, because new memory costs a page fault per 4 KiB.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bits for the position in a key of [`PathList::sort`].
const KEY_INDEX_BITS: usize = 32;
/// Bytes of a path in such a key.
const KEY_BYTES: usize = 12;
/// Places per key up to which [`placed`] does not sort keys.
const PLACES_PER_KEY: u64 = 4;
/// Number of paths for which sorting uses another thread.
const SORT_PART_MIN: usize = 16_384;

/// A packed list of paths.
#[derive(Debug, Clone, Default)]
pub struct PathList {
    bytes: Vec<u8>,
    /// End of each path in `bytes`.
    ends: Vec<u64>,
    /// Inode numbers: as long as `ends`, or empty if no path has one; 0 if unknown.
    inodes: Vec<u64>,
    /// One bit per path: known to be a regular file. May be shorter than `ends`.
    regular: Vec<u64>,
}

impl PathList {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a path about which nothing is known.
    pub fn push(&mut self, path: &[u8]) {
        self.push_parts(&[path], 0, false);
    }

    /// Adds a path, given in parts, that a walk found to be a regular file with this inode.
    pub fn push_found(&mut self, parts: &[&[u8]], inode: u64) {
        self.push_parts(parts, inode, true);
    }

    #[inline]
    fn push_parts(&mut self, parts: &[&[u8]], inode: u64, regular: bool) {
        let index = self.len();
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.ends.push(self.bytes.len() as u64);
        if inode != 0 || !self.inodes.is_empty() {
            // Seldom: only before the first path with a number.
            if self.inodes.len() < index {
                self.inodes.resize(index, 0);
            }
            self.inodes.push(inode);
        }
        if regular {
            self.mark_regular(index);
        }
    }

    #[inline]
    fn mark_regular(&mut self, index: usize) {
        let word = index / 64;
        if self.regular.len() <= word {
            self.regular.resize(word + 1, 0);
        }
        self.regular[word] |= 1 << (index % 64);
    }

    /// Appends all paths of `other`.
    pub fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else {
            self.append_range(&other, 0..other.len());
        }
    }

    /// Appends the paths in `range` of `other`.
    pub fn append_range(&mut self, other: &Self, range: Range<usize>) {
        let (before, base) = (self.len(), self.bytes.len() as u64);
        let (start, end) = (other.start(range.start), other.start(range.end));
        self.bytes.extend_from_slice(&other.bytes[start as usize..end as usize]);
        self.ends.extend(other.ends[range.clone()].iter().map(|end| end - start + base));
        if !self.inodes.is_empty() || !other.inodes.is_empty() {
            self.inodes.resize(before, 0);
            match other.inodes.get(range.clone()) {
                Some(inodes) => self.inodes.extend_from_slice(inodes),
                None => self.inodes.resize(before + range.len(), 0),
            }
        }
        self.regular.resize(self.len().div_ceil(64), 0);
        for (_, at) in range.zip(before..).filter(|(index, _)| other.known_regular(*index)) {
            self.regular[at / 64] |= 1 << (at % 64);
        }
    }

    /// Reserves memory for as many paths more, of as many bytes in all.
    pub fn reserve(&mut self, paths: usize, bytes: usize) {
        self.bytes.reserve(bytes);
        self.ends.reserve(paths);
        self.inodes.reserve(paths);
        self.regular.reserve(paths.div_ceil(64));
    }

    /// Returns the start of path `index` in `bytes`; for the length of the list, the end of
    /// `bytes`.
    #[inline]
    fn start(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Creates an empty list with capacity for the paths of `others`.
    pub(crate) fn with_room_for<'a>(others: impl Iterator<Item = &'a Self>) -> Self {
        let mut room = Self::new();
        let (mut bytes, mut paths) = (0, 0);
        for other in others {
            bytes += other.bytes.len();
            paths += other.len();
        }
        room.bytes.reserve_exact(bytes);
        room.ends.reserve_exact(paths);
        room.inodes.reserve_exact(paths);
        room.regular.reserve_exact(paths.div_ceil(64));
        room
    }

    /// Returns the number of paths.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Reports whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the bytes of path `index`.
    ///
    /// # Panics
    /// Panics if `index` is not below [`Self::len`].
    #[inline]
    pub fn get(&self, index: usize) -> &[u8] {
        // The end comes first: its check of the position covers that of the start.
        let end = self.ends[index] as usize;
        &self.bytes[self.start(index) as usize..end]
    }

    /// Returns path `index`.
    ///
    /// # Panics
    /// Panics if `index` is not below [`Self::len`].
    #[inline]
    pub fn path(&self, index: usize) -> &Path {
        Path::new(OsStr::from_bytes(self.get(index)))
    }

    /// Returns the inode number of path `index`, if a walk recorded it.
    #[inline]
    pub fn inode(&self, index: usize) -> Option<u64> {
        self.inodes.get(index).copied().filter(|inode| *inode != 0)
    }

    /// Reports whether path `index` was a regular file when it was found. Such a file can be opened
    /// without a `stat`.
    #[inline]
    pub fn known_regular(&self, index: usize) -> bool {
        self.regular.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// Iterates over the paths in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Returns the memory that the list holds, bytes.
    pub fn heap_bytes(&self) -> usize {
        let words = self.ends.capacity() + self.inodes.capacity() + self.regular.capacity();
        self.bytes.capacity() + 8 * words
    }

    /// Sorts the paths by their bytes.
    ///
    /// A key holds the bytes that follow the prefix shared by all paths, and the position, so that
    /// most comparisons touch no path. A long list is sorted in parts on several threads, and the
    /// runs are merged.
    pub fn sort(&mut self) {
        *self = Self::sorted(std::slice::from_ref(self));
    }

    /// Returns the paths of all lists, one list after the other.
    pub fn joined(lists: &[Self]) -> Self {
        let mut all = Self::with_room_for(lists.iter());
        lists.iter().for_each(|list| all.append_range(list, 0..list.len()));
        all
    }

    /// Returns the paths of all lists, sorted as by [`Self::sort`].
    pub fn sorted(lists: &[Self]) -> Self {
        let parts = Parts::new(lists);
        if u32::try_from(parts.len()).is_err() {
            let mut all = Self::joined(lists);
            all.sort_by(|list, a, b| list.get(a).cmp(list.get(b)));
            return all;
        }
        let shared = parts.shared_bytes();
        let mut keys = Vec::with_capacity(parts.len());
        for (list, start) in lists.iter().zip(&parts.starts) {
            keys.extend((0..list.len()).map(|at| key(&list.get(at)[shared..], start + at)));
        }
        sort_keys(&mut keys);
        parts.sort_alike(&mut keys, shared);
        let mut sorted = Self::with_room_for(lists.iter());
        for key in keys {
            let (list, at) = parts.place(key as u32 as usize);
            sorted.push_parts(&[list.get(at)], list.inode(at).unwrap_or(0), list.known_regular(at));
        }
        sorted
    }

    /// Takes all paths, and keeps the memory for the next ones. They are sorted by inode number: paths
    /// without a number come first, equal ones keep their order.
    pub fn take_by_inode(&mut self) -> Self {
        let sorted = if self.inodes.is_sorted() {
            self.clone()
        } else {
            self.arranged(&order_of(&self.inodes))
        };
        self.clear();
        sorted
    }

    /// Sorts the paths as [`Self::take_by_inode`] does.
    pub fn sort_by_inode(&mut self) {
        if !self.inodes.is_sorted() {
            *self = self.arranged(&order_of(&self.inodes));
        }
    }

    /// Takes all paths, and keeps the memory for the next ones.
    pub fn take(&mut self) -> Self {
        let all = self.clone();
        self.clear();
        all
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.inodes.clear();
        self.regular.clear();
    }

    fn sort_by(&mut self, compare: impl Fn(&Self, usize, usize) -> Ordering) {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_unstable_by(|a, b| compare(self, *a, *b));
        *self = self.arranged(&order);
    }

    /// Returns the paths in this order, which contains each position once.
    fn arranged(&self, order: &[usize]) -> Self {
        let mut sorted = Self {
            bytes: Vec::with_capacity(self.bytes.len()),
            ends: Vec::with_capacity(self.len()),
            inodes: Vec::new(),
            regular: Vec::with_capacity(self.regular.len()),
        };
        for at in order {
            sorted.bytes.extend_from_slice(self.get(*at));
            sorted.ends.push(sorted.bytes.len() as u64);
        }
        if !self.inodes.is_empty() {
            sorted.inodes = order.iter().map(|at| self.inodes[*at]).collect();
        }
        if self.is_all_regular() {
            sorted.regular.extend_from_slice(&self.regular);
        } else {
            let regular = order.iter().enumerate().filter(|(_, at)| self.known_regular(**at));
            regular.for_each(|(index, _)| sorted.mark_regular(index));
        }
        sorted
    }

    /// Reports whether all paths are known to be regular files, as after most walks.
    fn is_all_regular(&self) -> bool {
        self.regular.iter().map(|word| word.count_ones() as usize).sum::<usize>() == self.len()
    }
}

/// Returns the positions of keys in ascending order of keys, and of positions if keys are equal. A key and
/// its position are packed into one word if they fit, because no file is read before the sort ends.
pub fn order_of(keys: &[u64]) -> Vec<usize> {
    let bits = usize::BITS - keys.len().leading_zeros();
    let least = keys.iter().min().copied().unwrap_or(0);
    let greatest = keys.iter().max().copied().unwrap_or(0);
    if let Some(order) = placed(keys, least, greatest) {
        return order;
    }
    let positions = keys.iter().copied().zip(0_u64..);
    if greatest - least > u64::MAX >> bits {
        let mut pairs: Vec<_> = positions.collect();
        pairs.sort_unstable();
        return pairs.into_iter().map(|(_, at)| at as usize).collect();
    }
    let mut packed: Vec<u64> = positions.map(|(key, at)| (key - least) << bits | at).collect();
    // The stable sort merges what is in order already, as batches of a walk are.
    packed.sort();
    packed.into_iter().map(|word| (word & !(u64::MAX << bits)) as usize).collect()
}

/// Returns the positions of keys in ascending order of keys if these differ and are close together, as the
/// inode numbers of files that were created one after the other. Each key then has a place, and none is
/// compared.
fn placed(keys: &[u64], least: u64, greatest: u64) -> Option<Vec<usize>> {
    let span = greatest - least;
    if span >= PLACES_PER_KEY * keys.len() as u64 || keys.len() >= u32::MAX as usize {
        return None;
    }
    // Positions from 1 on; 0 is an empty place.
    let mut places = vec![0_u32; span as usize + 1];
    for (key, number) in keys.iter().zip(1_u32..) {
        let place = &mut places[(key - least) as usize];
        if *place != 0 {
            return None;
        }
        *place = number;
    }
    let mut order = Vec::with_capacity(keys.len());
    let taken = places.into_iter().filter(|number| *number != 0);
    order.extend(taken.map(|number| number as usize - 1));
    Some(order)
}

/// Several lists, whose paths are numbered one list after the other.
struct Parts<'a> {
    lists: &'a [PathList],
    /// The number of the first path of each list.
    starts: Vec<usize>,
}

impl<'a> Parts<'a> {
    fn new(lists: &'a [PathList]) -> Self {
        let mut next = 0;
        let start = |list: &PathList| {
            let start = next;
            next += list.len();
            start
        };
        Self { lists, starts: lists.iter().map(start).collect() }
    }

    fn len(&self) -> usize {
        self.lists.iter().map(PathList::len).sum()
    }

    /// Returns the list that holds path `number`, and the position in it.
    fn place(&self, number: usize) -> (&'a PathList, usize) {
        // Of lists with equal starts, the last one is not empty.
        let list = self.starts.partition_point(|start| *start <= number) - 1;
        (&self.lists[list], number - self.starts[list])
    }

    fn get(&self, number: usize) -> &'a [u8] {
        let (list, at) = self.place(number);
        list.get(at)
    }

    /// Returns the length of the prefix shared by all paths.
    fn shared_bytes(&self) -> usize {
        let mut paths = self.lists.iter().flat_map(PathList::iter);
        let Some(mut shared) = paths.next() else { return 0 };
        for path in paths {
            let same = path.iter().zip(shared).take_while(|(a, b)| a == b).count();
            shared = &shared[..same];
        }
        shared.len()
    }

    /// Sorts paths with equal keys by the bytes after the key.
    fn sort_alike(&self, keys: &mut [u128], shared: usize) {
        let begins = |key: &u128| key >> KEY_INDEX_BITS;
        let position = |key: &u128| *key as u32 as usize;
        let shared = shared + KEY_BYTES;
        for alike in keys.chunk_by_mut(|a, b| begins(a) == begins(b)).filter(|c| c.len() > 1) {
            if alike.iter().any(|key| self.get(position(key)).len() < shared) {
                alike.sort_unstable_by_key(|key| self.get(position(key)));
                continue;
            }
            for key_of in alike.iter_mut() {
                let number = position(key_of);
                *key_of = key(&self.get(number)[shared..], number);
            }
            alike.sort_unstable();
            self.sort_alike(alike, shared);
        }
    }
}

/// Returns the first bytes of `rest`, as many as fit, above the number of its path. Zeros pad a short
/// rest, which keeps it before longer ones. Equal keys decide nothing.
fn key(rest: &[u8], number: usize) -> u128 {
    let mut bytes = [0; size_of::<u128>()];
    let fits = rest.len().min(KEY_BYTES);
    bytes[..fits].copy_from_slice(&rest[..fits]);
    u128::from_be_bytes(bytes) | number as u128
}

impl<P: AsRef<Path>> Extend<P> for PathList {
    fn extend<I: IntoIterator<Item = P>>(&mut self, paths: I) {
        paths.into_iter().for_each(|path| self.push(path.as_ref().as_os_str().as_bytes()));
    }
}

impl<P: AsRef<Path>> FromIterator<P> for PathList {
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Self {
        let mut list = Self::new();
        list.extend(paths);
        list
    }
}

/// Sorts numbers, in parallel parts if there are many.
fn sort_keys(keys: &mut [u128]) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = (keys.len() / SORT_PART_MIN).min(cores);
    if parts < 2 {
        return keys.sort_unstable();
    }
    let part = keys.len().div_ceil(parts);
    std::thread::scope(|scope| {
        let mut parts = keys.chunks_mut(part);
        let here = parts.next();
        for part in parts {
            // Without a thread, the merge sorts this part.
            drop(std::thread::Builder::new().spawn_scoped(scope, || part.sort_unstable()));
        }
        here.into_iter().for_each(<[u128]>::sort_unstable);
    });
    // The stable sort finds the runs and merges them.
    keys.sort();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Plain = (Vec<u8>, Option<u64>, bool);

    fn plain(list: &PathList) -> Vec<Plain> {
        (0..list.len())
            .map(|i| (list.get(i).to_vec(), list.inode(i), list.known_regular(i)))
            .collect()
    }

    fn packed(plain: &[Plain]) -> PathList {
        let mut list = PathList::new();
        for (path, inode, regular) in plain {
            list.push_parts(&[path], inode.unwrap_or(0), *regular);
        }
        list
    }

    fn entries() -> impl Strategy<Value = Vec<Plain>> {
        let path = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..12),
            proptest::collection::vec(0u8..2, 0..40),
        ];
        let inode = proptest::option::of(1u64..9);
        proptest::collection::vec((path, inode, any::<bool>()), 0..200)
    }

    #[test]
    fn a_long_list_is_sorted_in_parts_and_merged() {
        let count = 5 * SORT_PART_MIN as u64;
        let mut list = PathList::new();
        for i in 0..count {
            // Each number below the count once, shuffled, even ones first. The paths of each half
            // are equal for longer than a key.
            let mixed = i.wrapping_mul(48_271) % count;
            let half = if mixed.is_multiple_of(2) { b"a" } else { b"b" };
            list.push_found(&[b"the/same/", half, format!("{mixed:020}").as_bytes()], mixed + 1);
        }
        list.sort();
        assert!(list.iter().is_sorted());
        let numbers = (0..count).step_by(2).chain((1..count).step_by(2));
        assert!(numbers.enumerate().all(|(at, number)| list.inode(at) == Some(number + 1)));
    }

    #[test]
    fn memory_is_counted() {
        let mut list = PathList::new();
        for i in 0..1000u32 {
            list.push_found(&[b"dir/", format!("{i:08}").as_bytes()], u64::from(i) + 1);
        }
        let least = 1000 * (12 + 8 + 8);
        assert!((least..3 * least).contains(&list.heap_bytes()), "{}", list.heap_bytes());
        assert_eq!(list.path(7), Path::new("dir/00000007"));
        assert_eq!(list.iter().len(), 1000);
    }

    #[test]
    fn memory_that_was_reserved_is_enough() {
        let mut list = PathList::new();
        list.reserve(100, 700);
        let reserved = list.heap_bytes();
        assert!(reserved >= 700 + 16 * 100);
        (0..100_u64).for_each(|i| list.push_found(&[b"dir/", format!("{i:03}").as_bytes()], i + 1));
        assert_eq!(list.heap_bytes(), reserved);
    }

    #[test]
    fn positions_are_ordered_by_key_and_position() {
        let keys: Vec<u64> = (0..1000_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        let near: Vec<u64> = keys.iter().map(|key| key % 300 + u64::MAX / 2).collect();
        // A permutation, in steps with which keys have places, and with which they are sorted.
        let [dense, sparse, far] = [1_u64, 4, 5].map(|step| -> Vec<u64> {
            (0..1000_u64).map(|n| n * 389 % 1000 * step + (1 << 40)).collect()
        });
        let equal = [3_u64, 2, 2, 1];
        let small = [&[][..], &[7], &[u64::MAX, 0, u64::MAX, 0], &equal];
        for keys in small.into_iter().chain([&keys[..], &near, &dense, &sparse, &far]) {
            let mut expected: Vec<usize> = (0..keys.len()).collect();
            expected.sort_by_key(|at| keys[*at]);
            assert_eq!(order_of(keys), expected);
        }
    }

    proptest! {
        #[test]
        fn what_was_pushed_comes_back(all in entries()) {
            prop_assert_eq!(plain(&packed(&all)), all);
        }
        #[test]
        fn appending_is_pushing(a in entries(), b in entries()) {
            let mut list = packed(&a);
            list.append(packed(&b));
            prop_assert_eq!(plain(&list), [a, b].concat());
        }
        #[test]
        fn sorting_several_lists_is_appending_and_sorting(
            all in proptest::collection::vec(entries(), 0..5),
        ) {
            let lists: Vec<_> = all.iter().map(|list| packed(list)).collect();
            let mut expected = packed(&all.concat());
            expected.sort();
            let paths = |list: &PathList| -> Vec<_> {
                plain(list).into_iter().map(|entry| entry.0).collect()
            };
            let sorted = PathList::sorted(&lists);
            prop_assert_eq!(paths(&sorted), paths(&expected));
            let in_order = |list: &PathList| {
                let mut all = plain(list);
                all.sort();
                all
            };
            prop_assert_eq!(in_order(&sorted), in_order(&expected));
        }
        #[test]
        fn sorting_keeps_all_and_orders(mut all in entries()) {
            let mut list = packed(&all);
            list.sort();
            all.sort_by(|a, b| a.0.cmp(&b.0));
            let paths: Vec<_> = plain(&list).into_iter().map(|p| p.0).collect();
            let expected: Vec<_> = all.iter().map(|p| p.0.clone()).collect();
            prop_assert_eq!(paths, expected);
            let mut sorted = plain(&list);
            sorted.sort();
            all.sort();
            prop_assert_eq!(sorted, all.clone());
            let list = list.take_by_inode();
            all.sort_by_key(|p| p.1);
            let inodes = |all: Vec<Plain>| all.into_iter().map(|p| p.1).collect::<Vec<_>>();
            let mut sorted = plain(&list);
            prop_assert_eq!(inodes(sorted.clone()), inodes(all.clone()));
            sorted.sort();
            all.sort();
            prop_assert_eq!(sorted, all);
        }
        #[test]
        fn by_inode_paths_keep_what_is_known_and_equal_numbers_their_order(
            mut all in entries(),
            all_regular in any::<bool>(),
        ) {
            all.iter_mut().for_each(|entry| entry.2 |= all_regular);
            let (mut taken, mut sorted) = (packed(&all), packed(&all));
            sorted.sort_by_inode();
            all.sort_by_key(|entry| entry.1);
            prop_assert_eq!(plain(&taken.take_by_inode()), all.clone());
            prop_assert!(taken.is_empty());
            prop_assert_eq!(plain(&sorted), all);
        }
    }
}
