//! The largest file of a run, and how long it took.
//!
//! One thread reads and computes each file, so a file that takes almost the whole run limits it. The
//! start of each file is known as of the last lap, and only large files cost a clock reading at their end.

/// A file from this size on is timed from its start to its end.
const LARGE_BYTES: u64 = 1 << 20;

/// Steps in which the start of a file is kept.
const STEP_NS: u64 = 100_000;

/// When a file began: steps of 100 µs after the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Began(u32);

impl Began {
    /// Returns the start of a file that began so long after the start of the run.
    pub(crate) fn at(ns: u64) -> Self {
        Self(u32::try_from(ns / STEP_NS).unwrap_or(u32::MAX))
    }

    /// Returns the time from the start of the run to that of the file; `None` if it is too long to be kept.
    pub(crate) fn ns(self) -> Option<u64> {
        match self.0 {
            u32::MAX => None,
            steps => Some(u64::from(steps) * STEP_NS),
        }
    }
}

/// A large file; zero if there was none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Largest {
    /// Its bytes.
    pub bytes: u64,
    /// Time from its start to its end; zero if its start is not known.
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
        for (ns, kept) in [(0, 0), (99_999, 0), (250_000, 200_000), (1 << 40, 1_099_511_600_000)] {
            assert_eq!(Began::at(ns).ns(), Some(kept));
        }
        assert_eq!(Began::at(u64::MAX).ns(), None, "a start after five days is not known");
    }

    #[test]
    fn the_largest_file_is_that_with_the_most_bytes() {
        let of = |bytes, ns| Largest { bytes, ns };
        assert_eq!([of(1, 9), of(2, 3), of(2, 4)].into_iter().max(), Some(of(2, 4)));
        assert!(!Largest::counts((1 << 20) - 1) && Largest::counts(1 << 20));
    }
}
