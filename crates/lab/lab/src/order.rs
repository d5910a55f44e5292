//! The ordered list of runs, drawn from the seed and stored before the first run.
//!
//! The study goes block by block, so that whatever drifts on the machine hits all arms alike. In a
//! block the comparisons stand in random order, and the arms of one comparison follow each other
//! in random order: neighbours in time are compared, and a warm set is read in once for all its
//! arms. The list depends on the comparisons and the seed alone.

use crate::expand::Comparison;
use ioloom_model::distribution::stream;
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// One place in the list: indices of the comparison and of the arm in it, and the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot(
    /// Index of the comparison.
    pub u32,
    /// Index of the arm in the comparison.
    pub u32,
    /// Number of the block, from 0.
    pub u32,
);

/// Draws the list.
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
                assert!(seen.insert((pair[0].0, pair[0].2)), "comparison {} is torn", pair[0].0);
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
        // 400 / arms expected; a place that is never or mostly first would be a broken shuffle.
        assert!(firsts.iter().all(|&n| n > 0 && n < 400 / 4), "{firsts:?}");
    }
}
