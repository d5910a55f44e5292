//! The paths that a thread has claimed, and how many it claims next.
//!
//! Claims keep threads apart: they open files of different directories. But no other thread can take what
//! one holds, so those of the workers of a window are sized by time. They begin with one path, double only while a thread needs less
//! than [`QUICK_NS`] for one, and are halved when it needs more than [`SLOW_NS`]. What is left then a thread
//! gives back when it waits. Costs one reading of the clock per claim.

use crate::feed::Entry;
use crate::take::Take;
use ioloom_sys::clock::monotonic_ns;
use std::collections::VecDeque;

/// Time for a claim up to which the next one is twice as long, and from which it is half as long.
const QUICK_NS: u64 = 50_000_000;
const SLOW_NS: u64 = 100_000_000;

/// Neighbouring positions of a list, or entries of a stream, that a thread has claimed and not yet
/// processed.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    pub(crate) next: usize,
    pub(crate) end: usize,
    /// Of a stream: as many as the positions.
    pub(crate) entries: VecDeque<(usize, Entry)>,
    /// Most positions of the last claim, and when it was made.
    pub(crate) most: usize,
    pub(crate) began_ns: u64,
}

impl Claim {
    /// Reports whether no claimed position is left.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// Returns `take` with at most as many positions as this thread processes in a short time.
    pub(crate) fn paced(&mut self, take: Take) -> Take {
        if take.stripe <= 1 || !take.paced {
            return take;
        }
        Take { stripe: self.pace(monotonic_ns(), take.stripe), ..take }
    }

    fn pace(&mut self, now_ns: u64, stripe: usize) -> usize {
        let took_ns = now_ns.saturating_sub(self.began_ns);
        self.most = match took_ns {
            _ if self.most == 0 => 1,
            // A thread that has waited for a path has processed nothing.
            _ if self.end == 0 => self.most,
            ..QUICK_NS => self.most * 2,
            SLOW_NS.. => self.most / 2,
            _ => self.most,
        };
        self.most = self.most.clamp(1, stripe);
        self.began_ns = now_ns;
        self.most
    }

    /// Reports whether a claim that is not empty has lasted long.
    pub(crate) fn is_slow(&self) -> bool {
        !self.is_empty() && monotonic_ns().saturating_sub(self.began_ns) > SLOW_NS
    }

    /// Empties the claim after its positions were given back.
    pub(crate) fn was_given_back(&mut self) {
        debug_assert!(self.entries.is_empty(), "what was given back belongs to other threads");
        (self.next, self.end) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_sized_by_time() {
        let mut claim = Claim { next: 1, end: 1, ..Claim::default() };
        let mut now_ns = 0;
        let mut sizes = |each_ns: u64, claims: usize| -> Vec<usize> {
            let one = |_| {
                let size = claim.pace(now_ns, 64);
                now_ns += each_ns * size as u64;
                size
            };
            (0..claims).map(one).collect()
        };
        assert_eq!(sizes(100_000, 9), [1, 2, 4, 8, 16, 32, 64, 64, 64], "cold files");
        assert_eq!(sizes(10_000_000, 6), [64, 32, 16, 8, 8, 8], "files behind a server");
        assert_eq!(sizes(1_000_000_000, 5), [8, 4, 2, 1, 1], "long functions");
    }
}
