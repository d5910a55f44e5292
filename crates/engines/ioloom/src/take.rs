//! How many paths a thread claims at most.
//!
//! A claim saves trips to the list, or to the lock of a stream, but no other thread can take what it holds.
//! So it is never more than a quarter of a fair share of the paths that are known.

/// How a thread takes paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Take {
    /// Most positions to claim at once.
    pub(crate) stripe: usize,
    /// Threads that take paths. Near the end claims shrink, so that all threads end together.
    pub(crate) threads: usize,
    /// Whether claims are also sized by time ([`Claim::paced`](crate::claim::Claim::paced)).
    pub(crate) paced: bool,
}

/// Entries of a stream that are claimed at once, if many wait: the lock is then taken seldom.
const STREAM_STRIPE: usize = 4;

impl Take {
    /// For a thread that has claimed paths already.
    pub(crate) const NONE: Self = Self { stripe: 0, threads: 1, paced: false };

    /// Returns how many of `left` paths to claim.
    pub(crate) fn size(self, left: usize) -> usize {
        if self.stripe <= 1 {
            return 1;
        }
        let fair = left / (4 * self.threads.max(1));
        self.stripe.min(fair).max(1)
    }

    /// Returns how a thread takes entries of a stream.
    pub(crate) fn of_stream(self, one_by_one: bool) -> Self {
        let stripe = if one_by_one { 1 } else { self.stripe.max(STREAM_STRIPE) };
        Self { stripe, ..self }
    }
}
