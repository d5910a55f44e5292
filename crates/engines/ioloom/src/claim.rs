//! The paths that a thread has claimed, and how many it claims next.
//!
//! Claims keep threads apart: they open files of different directories. But no other thread can take what
//! one holds, so those of the workers of a window are sized by time. They begin with one path, double only
//! while a thread needs less than [`QUICK_NS`] for one, and are halved when it needs more than [`SLOW_NS`].
//! What is left then it gives back, and halves the next one, too. Costs a reading of the clock per claim, and
//! one per look at completions while something is claimed. From a stream up to four entries are
//! claimed in any case.

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
    /// Most positions of the last claim; zero if it was not sized by time.
    most: usize,
    /// Positions of the last claim; zero if it says nothing about time.
    got: usize,
    /// When it was made.
    began_ns: u64,
}

impl Claim {
    /// Reports whether no claimed position is left.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// Returns `take` with at most as many positions as this thread processes in a short time.
    #[inline]
    pub(crate) fn paced(&mut self, take: Take) -> Take {
        if take.stripe <= 1 || !take.paced {
            self.most = 0;
            return take;
        }
        Take { stripe: self.pace(monotonic_ns(), take.stripe), ..take }
    }

    #[inline(never)]
    fn pace(&mut self, now_ns: u64, stripe: usize) -> usize {
        self.most = match now_ns.saturating_sub(self.began_ns) {
            _ if self.most == 0 => 1,
            _ if self.got == 0 => self.most,
            SLOW_NS.. => self.most / 2,
            ..QUICK_NS if self.got >= self.most => self.most * 2,
            _ => self.most,
        };
        self.most = self.most.clamp(1, stripe);
        self.began_ns = now_ns;
        self.most
    }

    /// Records how many positions the thread has got.
    #[inline]
    pub(crate) fn got(&mut self, positions: usize) {
        self.got = positions;
    }

    /// Reports whether a claim that was sized by time is not empty and has lasted long.
    pub(crate) fn is_slow(&self) -> bool {
        self.most > 0 && !self.is_empty() && monotonic_ns().saturating_sub(self.began_ns) > SLOW_NS
    }

    /// Empties the claim after its positions were given back.
    pub(crate) fn was_given_back(&mut self) {
        debug_assert!(self.entries.is_empty(), "what was given back belongs to other threads");
        (self.next, self.end, self.got) = (0, 0, 0);
        self.most /= 2;
    }

    /// The thread rests, which is not time for its claim.
    pub(crate) fn rests(&mut self) {
        self.got = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(claim: &mut Claim, now_ns: &mut u64, each_ns: u64, claims: usize) -> Vec<usize> {
        let one = |_| {
            let size = claim.pace(*now_ns, 64);
            claim.got(size);
            *now_ns += each_ns * size as u64;
            size
        };
        (0..claims).map(one).collect()
    }

    #[test]
    fn claims_are_sized_by_time() {
        let (mut claim, mut now_ns) = (Claim::default(), 0);
        let mut after = |each_ns, claims| sizes(&mut claim, &mut now_ns, each_ns, claims);
        assert_eq!(after(100_000, 9), [1, 2, 4, 8, 16, 32, 64, 64, 64], "cold files");
        assert_eq!(after(10_000_000, 6), [64, 32, 16, 8, 8, 8], "files behind a server");
        assert_eq!(after(1_000_000_000, 5), [8, 4, 2, 1, 1], "long functions");
    }

    #[test]
    fn rests_and_small_claims_change_no_size_and_what_was_given_back_halves_it() {
        let (mut claim, mut now_ns) = (Claim::default(), 0);
        assert_eq!(sizes(&mut claim, &mut now_ns, 1000, 5), [1, 2, 4, 8, 16]);
        claim.rests();
        assert_eq!(claim.pace(1 << 50, 64), 16);
        claim.got(3);
        assert_eq!(claim.pace((1 << 50) + 1000, 64), 16, "no more paths were left");
        claim.was_given_back();
        assert_eq!(claim.pace((1 << 50) + 2000, 64), 8);
    }

    #[test]
    fn a_claim_that_is_not_sized_by_time_is_never_slow() {
        let plain = Take { stripe: 1, threads: 1, paced: true };
        let mut claim = Claim { next: 0, end: 3, ..Claim::default() };
        claim.paced(plain);
        assert!(!claim.is_slow());
        claim.paced(Take { stripe: 2, ..plain });
        claim.began_ns = 0;
        assert!(claim.is_slow());
    }
}
