//! A random order that visits every node once and returns to the start: Sattolo's shuffle.
//!
//! A prefetcher predicts the next address from previous ones; a random cycle makes this impossible.
//! There must be exactly one cycle: an ordinary shuffle splits into several smaller ones, and a
//! walk would then cover a smaller set than intended.

use ioloom_model::distribution::stream;
use rand::RngExt;

/// Returns the successor of each of `n` nodes in one random cycle through all of them.
pub fn sattolo(n: u32, seed: u64) -> Vec<u32> {
    let mut next: Vec<u32> = (0..n).collect();
    let mut random = stream(seed, u64::from(n));
    for i in (1..next.len()).rev() {
        let j = random.random_range(0..i);
        next.swap(i, j);
    }
    next
}

/// Returns true if following `next` from node 0 visits every node once before it returns.
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
    fn split_cycles_are_detected_and_seeds_differ() {
        assert!(!is_one_cycle(&[1, 0, 3, 2]));
        assert!(!is_one_cycle(&[0, 1]));
        assert!(!is_one_cycle(&[9, 0]));
        assert_eq!(sattolo(64, 5), sattolo(64, 5));
        assert_ne!(sattolo(64, 5), sattolo(64, 6));
    }

    /// Steps to the next line, which a prefetcher would predict, must not be more frequent than by
    /// chance.
    #[test]
    fn steps_to_the_next_line_are_rare() {
        let next = sattolo(4096, 1);
        let forward = (0..4096u32).filter(|i| next[*i as usize] == i + 1).count();
        assert!(forward < 10, "{forward} steps to the next line");
    }
}
