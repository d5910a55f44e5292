//! A queue that is emptied in ascending order of keys, also while it is filled.
//!
//! The next element is the one with the smallest key above the last one taken, or the smallest of all
//! if there is none above: as an elevator serves the floors on its way before it turns round. A device
//! then reads forwards, although the files of a tree become known in another order.
//!
//! Elements arrive in sorted runs, such as the files of a directory, so the queue merges runs and does
//! not sort elements. Taking one costs a comparison for each doubling of the number of runs, and mostly
//! two, because neighbours in a run are often neighbours in the whole.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::vec::IntoIter;

/// Elements by key.
#[derive(Debug)]
pub(crate) struct Elevator<K, T> {
    /// Runs of keys above `last`.
    ahead: BinaryHeap<Run<K, T>>,
    /// Runs of keys up to `last`, for the next turn.
    behind: BinaryHeap<Run<K, T>>,
    last: Option<K>,
    len: usize,
}

impl<K: Ord + Copy, T> Elevator<K, T> {
    pub(crate) fn new() -> Self {
        Self { ahead: BinaryHeap::new(), behind: BinaryHeap::new(), last: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds elements in any order.
    pub(crate) fn extend(&mut self, mut run: Vec<(K, T)>) {
        self.len += run.len();
        if !run.is_sorted_by_key(|(key, _)| *key) {
            run.sort_unstable_by_key(|(key, _)| *key);
        }
        let split = self.last.map_or(0, |last| run.partition_point(|(key, _)| *key <= last));
        let ahead = run.split_off(split);
        self.behind.extend(Run::of(run));
        self.ahead.extend(Run::of(ahead));
    }

    /// Takes the next element.
    pub(crate) fn pop(&mut self) -> Option<(K, T)> {
        if self.ahead.is_empty() {
            std::mem::swap(&mut self.ahead, &mut self.behind);
        }
        let mut run = self.ahead.peek_mut()?;
        let following = run.rest.next();
        let taken = match following {
            Some(following) => std::mem::replace(&mut run.first, following),
            None => PeekMut::pop(run).first,
        };
        self.last = Some(taken.0);
        self.len -= 1;
        Some(taken)
    }
}

/// Elements in ascending order, at least one.
#[derive(Debug)]
struct Run<K, T> {
    first: (K, T),
    rest: IntoIter<(K, T)>,
}

impl<K, T> Run<K, T> {
    fn of(elements: Vec<(K, T)>) -> Option<Self> {
        let mut rest = elements.into_iter();
        Some(Self { first: rest.next()?, rest })
    }
}

/// The run with the smallest key is the greatest, because a heap yields the greatest.
impl<K: Ord, T> Ord for Run<K, T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.first.0.cmp(&self.first.0)
    }
}

impl<K: Ord, T> PartialOrd for Run<K, T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord, T> PartialEq for Run<K, T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K: Ord, T> Eq for Run<K, T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::ops::Bound;

    /// The rule itself, on a sorted map.
    fn next_of(map: &mut BTreeMap<(u8, usize), usize>, last: &mut (u8, usize)) -> Option<usize> {
        let above = map.range((Bound::Excluded(*last), Bound::Unbounded)).next();
        let key = *above.or_else(|| map.first_key_value())?.0;
        *last = key;
        map.remove(&key)
    }

    proptest! {
        #[test]
        fn elements_come_in_the_order_of_an_elevator(
            steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..9), 0..9_usize), 0..20),
        ) {
            let (mut elevator, mut number) = (Elevator::new(), 0);
            let (mut map, mut last) = (BTreeMap::new(), (0, 0));
            for (keys, pops) in steps {
                let run: Vec<_> = keys.into_iter().map(|key| { number += 1; ((key, number), number) }).collect();
                map.extend(run.iter().copied());
                elevator.extend(run);
                prop_assert_eq!(elevator.len(), map.len());
                for _ in 0..pops {
                    let expected = next_of(&mut map, &mut last);
                    prop_assert_eq!(elevator.pop().map(|(_, value)| value), expected);
                }
            }
            while let Some(expected) = next_of(&mut map, &mut last) {
                prop_assert_eq!(elevator.pop().map(|(_, value)| value), Some(expected));
            }
            prop_assert!(elevator.pop().is_none());
        }
    }
}
