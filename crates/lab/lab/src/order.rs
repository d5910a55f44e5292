//! Draws the ordered list of runs from the seed.
//!
//! The study runs block by block to spread machine drift evenly over all arms. Within a block, the
//! comparisons are in random order, and so are the arms of each comparison. The arms of one
//! comparison are adjacent, so they are compared at nearly the same time and a warm set is read
//! once for all of them. The list depends only on the comparisons and the seed.

use crate::expand::Comparison;
use ioloom_model::distribution::stream;
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// A run in the list: indices of the comparison and the arm, and the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot(
    /// Index of the comparison.
    pub u32,
    /// Index of the arm within the comparison.
    pub u32,
    /// Block number, from 0.
    pub u32,
);

/// Draws the list of runs.
pub fn draw(comparisons: &[Comparison], seed: u64) -> Vec<Slot> {
    let blocks = comparisons.iter().map(|c| c.blocks).max().unwrap_or(0);
    let mut list = Vec::new();
    for block in 0..blocks {
        let mut rng = stream(seed, u64::from(block));
        let mut shuffle = |items: &mut Vec<u32>| {
            for i in (1..items.len()).rev() {
                items.swap(i, rng.random_range(0..=i));
            }
        };
        let mut order: Vec<u32> = (0..comparisons.len() as u32).collect();
        shuffle(&mut order);
        for comparison in order {
            let of = &comparisons[comparison as usize];
            let mut arms: Vec<u32> = (0..of.arms.len() as u32).collect();
            shuffle(&mut arms);
            if block < of.blocks {
                list.extend(arms.into_iter().map(|arm| Slot(comparison, arm, block)));
            }
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::{Mode, Overrides, expand};
    use std::collections::BTreeSet;

    fn comparisons() -> Vec<Comparison> {
        let spec = crate::spec::load("pipeline", None).unwrap();
        expand(&spec, Mode::Full, &Overrides::default(), 2).unwrap()
    }

    #[test]
    fn every_arm_runs_once_in_each_block_and_blocks_follow_each_other() {
        let all = comparisons();
        let list = draw(&all, 1);
        let wanted: usize = all.iter().map(|c| c.arms.len() * c.blocks as usize).sum();
        assert_eq!(list.len(), wanted);
        assert_eq!(list.iter().collect::<BTreeSet<_>>().len(), wanted);
        assert!(list.is_sorted_by_key(|slot| slot.2));
    }

    #[test]
    fn arms_of_a_comparison_stand_together() {
        let list = draw(&comparisons(), 1);
        let mut seen = BTreeSet::new();
        for pair in list.windows(2) {
            if (pair[0].0, pair[0].2) != (pair[1].0, pair[1].2) {
                assert!(seen.insert((pair[0].0, pair[0].2)), "comparison {} is split", pair[0].0);
            }
        }
    }

    #[test]
    fn the_seed_decides_and_nothing_else() {
        let all = comparisons();
        assert_eq!(draw(&all, 7), draw(&all, 7));
        assert_ne!(draw(&all, 7), draw(&all, 8));
    }

    #[test]
    fn no_arm_has_a_fixed_place() {
        let mut all = comparisons();
        all.truncate(1);
        all[0].blocks = 400;
        let arms = all[0].arms.len();
        let list = draw(&all, 3);
        let mut firsts = vec![0u32; arms];
        for block in list.chunks(arms) {
            firsts[block[0].1 as usize] += 1;
        }
        // The expected count is 400 / arms. An arm that is never or mostly first would indicate a
        // broken shuffle.
        assert!(firsts.iter().all(|&n| n > 0 && n < 400 / 4), "{firsts:?}");
    }
}
