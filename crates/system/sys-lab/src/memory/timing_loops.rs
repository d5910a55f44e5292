//! Work whose time depends on the processor alone: the clock rate, the width, and the way between
//! two processors.

use std::sync::atomic::{AtomicU64, Ordering};

/// Additions in one turn of the loop.
const ADDS: u64 = 64;

/// Does at least `n` additions that wait for each other, one cycle each on every processor that is
/// known to us, and returns how many it did; 0 where the architecture has no such loop here. Time
/// over this number is the length of a cycle.
#[inline(never)]
pub fn dependent_adds(n: u64) -> u64 {
    let turns = n.div_ceil(ADDS).max(1);
    let mut sum = 1u64;
    // Not a constant: additions of constants are done without time by some processors.
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

/// `n` turns of eight multiplications and eight additions that do not wait for each other: enough
/// to keep all units of a core busy, so that two threads of one core share them.
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

/// One side of a game of two threads: waits until `ball` is `mine + 2k` and throws it on, `rounds`
/// times. The sides are 0 and 1. Gives up and returns `false` when `deadline_spins` looks in a row
/// bring nothing: the other side has stopped.
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
    fn work_is_done_as_often_as_told() {
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
        assert!(!spin_pair(&ball, 1, 1, 10), "nobody throws it");
    }
}
