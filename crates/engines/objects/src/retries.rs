//! How often and when failed requests are repeated.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Most attempts of one request.
pub(crate) const ATTEMPTS_MAX: u32 = 8;
/// Pause after the first failed attempt, if the caller sets no other.
pub(crate) const PAUSE: Duration = Duration::from_millis(40);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Retries of a run in thousandths: some at first, and a share of the successful requests.
const FIRST: i64 = 500_000;
const PER_SUCCESS: i64 = 200;
const MOST: i64 = 2_000_000;

/// The retries that all requests of a run share. Where a server fails most requests, the run ends soon
/// instead of repeating every request to the end.
#[derive(Debug)]
pub(crate) struct Retries {
    left: AtomicI64,
    taken: AtomicU64,
    random: AtomicU64,
    pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self::with_pause(PAUSE)
    }
}

impl Retries {
    /// Returns the retries of a run with a pause after the first failed attempt. Each further pause is
    /// twice as long.
    pub(crate) fn with_pause(pause: Duration) -> Self {
        Self {
            pause,
            left: AtomicI64::new(FIRST),
            taken: AtomicU64::new(0),
            random: AtomicU64::new(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// Notes a successful request.
    pub(crate) fn earn(&self) {
        if self.left.load(Ordering::Relaxed) < MOST {
            self.left.fetch_add(PER_SUCCESS, Ordering::Relaxed);
        }
    }

    /// Takes a retry after `attempts` failed ones. Returns the pause before it, or `None` if there are
    /// none left.
    pub(crate) fn take(&self, attempts: u32) -> Option<Duration> {
        if attempts >= ATTEMPTS_MAX {
            return None;
        }
        let left = self.left.fetch_sub(1000, Ordering::Relaxed);
        if left < 1000 {
            self.left.fetch_add(1000, Ordering::Relaxed);
            return None;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        let pause = self.pause.saturating_mul(1 << (attempts - 1).min(10)).min(PAUSE_MAX);
        // Half of it is random, so that requests that failed together are not repeated together.
        let random = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let random = (random ^ (random >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
        Some(pause.mul_f64(0.5 + 0.5 * random as f64 / (1u64 << 24) as f64))
    }

    /// Returns how many retries were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_attempts_end() {
        let retries = Retries::default();
        let mut total = Duration::ZERO;
        for attempts in 1..ATTEMPTS_MAX {
            let pause = retries.take(attempts).unwrap();
            let most = PAUSE * (1 << (attempts - 1));
            assert!(pause >= most / 2 && pause <= most, "{attempts}: {pause:?}");
            total += pause;
        }
        assert!(total < Duration::from_secs(6));
        assert_eq!((retries.take(ATTEMPTS_MAX), retries.taken()), (None, 7));
    }

    #[test]
    fn the_budget_ends_and_successes_earn_more() {
        let retries = Retries::default();
        let taken = (0..10_000).filter(|_| retries.take(1).is_some()).count();
        assert_eq!(taken, 500);
        (0..10).for_each(|_| retries.earn());
        assert_eq!((0..10).filter(|_| retries.take(1).is_some()).count(), 2);
    }
}
