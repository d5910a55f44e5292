//! Finds responses that come byte by byte: they are never silent, and would never end.

use std::time::{Duration, Instant};

/// Longest time without a byte of a response.
pub(crate) const SILENCE: Duration = Duration::from_secs(20);

/// Least number of bytes of a response in this time. A slow line that many responses share must not
/// fall below it.
const LEAST_BYTES: usize = 1024;

/// The bytes of a response over time.
pub(crate) struct Pace {
    since: Instant,
    bytes: usize,
}

impl Pace {
    /// Describes a response that begins now.
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), bytes: 0 }
    }

    /// Returns true if too little of a response has arrived for too long. `bytes`: all that has.
    pub(crate) fn is_lost(&mut self, bytes: usize) -> bool {
        self.is_lost_at(Instant::now(), bytes)
    }

    fn is_lost_at(&mut self, now: Instant, bytes: usize) -> bool {
        if now.duration_since(self.since) < SILENCE {
            return false;
        }
        let got = bytes - self.bytes;
        *self = Self { since: now, bytes };
        got < LEAST_BYTES
    }

    /// Says why a response was given up.
    pub(crate) fn lost() -> String {
        format!("the response brought less than {LEAST_BYTES} bytes in {} s", SILENCE.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_drips_is_lost_and_a_slow_one_is_not() {
        let start = Instant::now();
        let after = |s: u64| start + Duration::from_secs(s);
        let mut drips = Pace { since: start, bytes: 0 };
        assert!(!drips.is_lost_at(after(19), 19));
        assert!(drips.is_lost_at(after(20), 20));
        let mut slow = Pace { since: start, bytes: 0 };
        for s in 1..100 {
            assert!(!slow.is_lost_at(after(s), s as usize * 60), "{s}");
        }
        // It has been fast, and drips now.
        let mut fast = Pace { since: start, bytes: 0 };
        assert!(!fast.is_lost_at(after(21), 1 << 20));
        assert!(fast.is_lost_at(after(42), (1 << 20) + 30));
    }
}
