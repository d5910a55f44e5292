//! Seeded random orders and samples.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A stream of random choices.
pub struct Draws(Xoshiro256PlusPlus);

impl Draws {
    /// Returns an independent stream of a seed for each purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed ^ purpose.rotate_left(32)))
    }

    /// Returns a uniform value below `n` from the high half of a product, with a bias below `n /
    /// 2^64`.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// Returns `count` different indices below `n` in random order (all of them if there are
    /// fewer).
    pub fn sample(&mut self, n: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        let count = count.min(n);
        for i in 0..count {
            let j = i + self.below(n - i);
            all.swap(i, j);
        }
        all.truncate(count);
        all
    }
}

/// Returns the order of `arms` arms in each of `blocks` blocks.
pub fn blocks(seed: u64, blocks: u32, arms: usize) -> Vec<Vec<usize>> {
    let mut draws = Draws::new(seed, 1);
    (0..blocks).map(|_| draws.sample(arms, arms)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_holds_each_arm_once_and_the_seed_decides() {
        let orders = blocks(7, 200, 5);
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
        }
        assert_eq!(orders, blocks(7, 200, 5));
        assert_ne!(orders, blocks(8, 200, 5));
        // Each arm is first in a fair share of the blocks: 40 expected, sd 5.7.
        for arm in 0..5 {
            let first = orders.iter().filter(|o| o[0] == arm).count();
            assert!((15..=65).contains(&first), "arm {arm} is first {first} times");
        }
    }

    #[test]
    fn a_sample_has_no_index_twice() {
        let mut sample = Draws::new(3, 2).sample(100, 30);
        sample.sort_unstable();
        sample.dedup();
        assert_eq!(sample.len(), 30);
        assert_eq!(Draws::new(3, 2).sample(4, 30).len(), 4);
    }
}
