//! A random order that visits every node once and comes back: Sattolo's shuffle.
//!
//! A prefetcher guesses the next address from the ones before; a single random cycle gives it
//! nothing to guess, and a single one, because a shuffle that falls apart into several small
//! cycles would walk a set smaller than the one that is named.

use ioloom_model::distribution::stream;
use rand::RngExt;

/// For each of `n` nodes the one that follows it, in one random cycle through all of them.
pub fn sattolo(n: u32, seed: u64) -> Vec<u32> {
    let mut next: Vec<u32> = (0..n).collect();
    let mut random = stream(seed, u64::from(n));
    for i in (1..next.len()).rev() {
        let j = random.random_range(0..i);
        next.swap(i, j);
    }
    next
}

/// Whether following `next` from node 0 meets every node once before it comes back.
pub fn is_one_cycle(next: &[u32]) -> bool {
    let mut at = 0usize;
    for step in 1..=next.len() {
        match next.get(at) {
            Some(to) => at = *to as usize,
            None => return false,
        }
        if at == 0 {
            return step == next.len();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_length_is_one_cycle(n in 2u32..3000, seed: u64) {
            prop_assert!(is_one_cycle(&sattolo(n, seed)));
        }
    }

    #[test]
    fn two_cycles_are_seen_and_seeds_differ() {
        assert!(!is_one_cycle(&[1, 0, 3, 2]));
        assert!(!is_one_cycle(&[0, 1]));
        assert!(!is_one_cycle(&[9, 0]));
        assert_eq!(sattolo(64, 5), sattolo(64, 5));
        assert_ne!(sattolo(64, 5), sattolo(64, 6));
    }

    /// Neighbours in time are no neighbours in memory: a step forward by one line, which a
    /// prefetcher would guess, is as rare as chance makes it.
    #[test]
    fn the_order_of_addresses_does_not_run_forward() {
        let next = sattolo(4096, 1);
        let forward = (0..4096u32).filter(|i| next[*i as usize] == i + 1).count();
        assert!(forward < 10, "{forward} steps to the next line");
    }
}
