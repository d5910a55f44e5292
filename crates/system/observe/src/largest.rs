//! The largest file of a run, and how long it took.
//!
//! One thread reads and computes each file, so a file that takes almost the whole run limits it. The
//! start of each file is known as of the last lap, and only large files cost a clock reading at their end.

/// A file from this size on is timed from its start to its end.
const LARGE_BYTES: u64 = 1 << 20;

/// The start of a file is kept in steps of 2^17 ns, about 131 µs: a shift is cheaper than a division, and
/// each file pays for it.
const STEP_BITS: u32 = 17;

/// When a file began, in steps of the monotonic clock. It repeats after six days.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Began(u32);

impl Began {
    /// Returns the start of a file that began at this time of the monotonic clock.
    #[inline]
    pub(crate) fn at(now_ns: u64) -> Self {
        Self((now_ns >> STEP_BITS) as u32)
    }

    /// Returns the time from the start of the file to `end_ns`; less if the file took more than six days.
    pub(crate) fn ns_until(self, end_ns: u64) -> u64 {
        u64::from(Self::at(end_ns).0.wrapping_sub(self.0)) << STEP_BITS
    }
}

/// A large file; zero if there was none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Largest {
    /// Its bytes.
    pub bytes: u64,
    /// Time from its start to its end.
    pub ns: u64,
}

impl Largest {
    /// Reports whether a file is large enough to be timed.
    #[inline]
    pub(crate) fn counts(bytes: u64) -> bool {
        bytes >= LARGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_file_is_kept_in_steps() {
        let step = 1 << STEP_BITS;
        let wrapped = u64::from(u32::MAX) << STEP_BITS;
        for (start_ns, end_ns, ns) in [
            (0, 0, 0),
            (5, step - 1, 0),
            (3 * step, 10 * step + 9, 7 * step),
            (wrapped, wrapped + 2 * step, 2 * step),
        ] {
            assert_eq!(Began::at(start_ns).ns_until(end_ns), ns, "{start_ns} {end_ns}");
        }
    }

    #[test]
    fn the_largest_file_is_that_with_the_most_bytes() {
        let of = |bytes, ns| Largest { bytes, ns };
        assert_eq!([of(1, 9), of(2, 3), of(2, 4)].into_iter().max(), Some(of(2, 4)));
        assert!(!Largest::counts((1 << 20) - 1) && Largest::counts(1 << 20));
    }
}
