//! A queue that is emptied in ascending order of keys, also while it is filled.
//!
//! The next element is the one with the smallest key above the last one taken, or the smallest of all
//! if there is none above: as an elevator serves the floors on its way before it turns round. A device
//! then reads forwards, although the files of a tree become known in another order.
//!
//! Elements arrive in sorted runs, such as the files of a directory, so the queue merges runs and does
//! not sort elements. Neighbours in a run are mostly neighbours in the whole, so taking one mostly costs
//! one comparison: with the smallest key of the other runs. Elements stay where they are until they are
//! taken.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::vec::IntoIter;

/// Elements by key.
#[derive(Debug)]
pub(crate) struct Elevator<K, T> {
    /// The run with the smallest key above `last`. `None` if there is no such run, or if `ahead` holds it.
    current: Option<Run<K, T>>,
    /// The other runs of keys above `last`.
    ahead: BinaryHeap<Run<K, T>>,
    /// Runs of keys up to `last`, for the next turn.
    behind: BinaryHeap<Run<K, T>>,
    last: Option<K>,
    len: usize,
}

impl<K: Ord + Copy, T> Elevator<K, T> {
    pub(crate) fn new() -> Self {
        let (ahead, behind) = (BinaryHeap::new(), BinaryHeap::new());
        Self { current: None, ahead, behind, last: None, len: 0 }
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
        if split == 0 {
            self.ahead.extend(Run::of(run));
        } else {
            self.ahead.extend(Run::of(run.split_off(split)));
            self.behind.extend(Run::of(run));
        }
        self.update_current();
    }

    /// Takes the next element.
    pub(crate) fn pop(&mut self) -> Option<(K, T)> {
        if self.current.is_none() {
            if self.ahead.is_empty() {
                std::mem::swap(&mut self.ahead, &mut self.behind);
            }
            self.current = self.ahead.pop();
        }
        let current = self.current.as_mut()?;
        let taken = current.elements.next()?;
        self.last = Some(taken.0);
        self.len -= 1;
        match current.elements.as_slice().first() {
            Some((key, _)) => {
                current.next = *key;
                self.update_current();
            }
            None => self.current = None,
        }
        Some(taken)
    }

    /// Replaces the current run if another one has a smaller key.
    #[inline]
    fn update_current(&mut self) {
        if let Some(current) = &mut self.current
            && self.ahead.peek().is_some_and(|other| other.next < current.next)
            && let Some(mut other) = self.ahead.peek_mut()
        {
            std::mem::swap(&mut *other, current);
        }
    }
}

/// Elements in ascending order, at least one.
#[derive(Debug)]
struct Run<K, T> {
    /// The key of the next element.
    next: K,
    elements: IntoIter<(K, T)>,
}

impl<K: Copy, T> Run<K, T> {
    fn of(elements: Vec<(K, T)>) -> Option<Self> {
        let (next, _) = elements.first()?;
        Some(Self { next: *next, elements: elements.into_iter() })
    }
}

/// The run with the smallest key is the greatest, because a heap yields the greatest.
impl<K: Ord, T> Ord for Run<K, T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.next.cmp(&self.next)
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
