//! Work whose duration depends only on the processor: its clock rate, its width, and the distance
//! between two processors.

use std::sync::atomic::{AtomicU64, Ordering};

/// Additions in one iteration.
const ADDS: u64 = 64;

/// Performs at least `n` dependent additions and returns the number performed; 0 on architectures
/// without this loop. Each addition takes one cycle on every known processor, so the time divided
/// by the returned number is the duration of a cycle.
#[inline(never)]
pub fn dependent_adds(n: u64) -> u64 {
    let turns = n.div_ceil(ADDS).max(1);
    let mut sum = 1u64;
    // Not a constant: some processors add constants in zero cycles.
    let term = std::hint::black_box(3u64);
    for _ in 0..turns {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: arithmetic on two registers.
        unsafe {
            core::arch::asm!(
                ".rept 64", "add {0}, {1}", ".endr",
                inout(reg) sum, in(reg) term, options(nomem, nostack));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: arithmetic on two registers.
        unsafe {
            core::arch::asm!(
                ".rept 64", "add {0}, {0}, {1}", ".endr",
                inout(reg) sum, in(reg) term, options(nomem, nostack));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            let _ = (&mut sum, term);
            return 0;
        }
    }
    std::hint::black_box(sum);
    turns * ADDS
}

/// Runs `n` iterations of eight multiplications and eight additions that do not depend on each
/// other. They keep all execution units of a core busy, so two threads on one core have to share
/// them.
#[inline(never)]
pub fn independent_work(n: u64) -> u64 {
    let mut a = std::hint::black_box([1u64, 2, 3, 4, 5, 6, 7, 8]);
    let mut b = std::hint::black_box([9u64, 10, 11, 12, 13, 14, 15, 16]);
    for i in 0..n {
        for x in &mut a {
            *x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        for x in &mut b {
            *x = x.wrapping_add(i).rotate_left(7);
        }
    }
    std::hint::black_box((a, b));
    n
}

/// Plays one side of a ping-pong between two threads: waits until `ball` is `mine + 2k` and
/// increments it, `rounds` times. The sides are 0 and 1. Returns `false` after `deadline_spins`
/// consecutive reads without a change, which means that the other side has stopped.
pub fn spin_pair(ball: &AtomicU64, mine: u64, rounds: u64, deadline_spins: u64) -> bool {
    for round in 0..rounds {
        let wanted = mine + 2 * round;
        let mut looks = 0u64;
        while ball
            .compare_exchange(wanted, wanted + 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            std::hint::spin_loop();
            looks += 1;
            if looks > deadline_spins {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_returned_count_covers_the_request() {
        let adds = dependent_adds(1000);
        assert!(adds == 0 || adds == 1024);
        assert_eq!(independent_work(10), 10);
    }

    #[test]
    fn the_ball_goes_both_ways() {
        let ball = AtomicU64::new(0);
        std::thread::scope(|s| {
            let other = s.spawn(|| spin_pair(&ball, 1, 100, u64::MAX));
            assert!(spin_pair(&ball, 0, 100, u64::MAX));
            assert!(other.join().unwrap());
        });
        assert_eq!(ball.load(Ordering::Relaxed), 200);
        assert!(!spin_pair(&ball, 1, 1, 10), "there is no other side");
    }
}
