//! The decision from the shares.

use super::facts::Facts;
use super::kind::Limit;
use super::shares::Shares;

/// A shorter run cannot be judged: starting and ending threads takes a large part of it, and the
/// system counts processor time in steps of milliseconds.
pub const JUDGED_FROM_NS: u64 = 10_000_000;
/// A second limit within this many percentage points of the first is close.
pub const CLOSE_POINTS: u32 = 10;
/// Without a share of this many per cent there is no limit.
pub const LIMIT_MIN_PERCENT: u32 = 25;

/// What limited a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The limit.
    pub limit: Limit,
    /// A second limit that is close to it.
    pub close: Option<Limit>,
    /// The shares; `None` if the run was not judged by them.
    pub shares: Option<Shares>,
    /// Why the limit is unknown.
    pub reason: Option<NoVerdict>,
}

/// Why the limit of a run is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoVerdict {
    /// Nothing ran.
    NothingRan,
    /// No file was processed.
    NoFiles,
    /// The run was too short.
    TooShort,
    /// The evidence does not explain the largest part of the time.
    Unexplained,
    /// No part of the time is large.
    Spread,
}

/// Decides what limited a run.
pub fn decide(facts: &Facts) -> Verdict {
    let no =
        |reason| Verdict { limit: Limit::Unknown, close: None, shares: None, reason: Some(reason) };
    if facts.threads_ns == 0 || facts.elapsed_ns == 0 {
        return no(NoVerdict::NothingRan);
    }
    if facts.files == 0 {
        return no(NoVerdict::NoFiles);
    }
    if facts.elapsed_ns < JUDGED_FROM_NS {
        return no(NoVerdict::TooShort);
    }
    let shares = Shares::new(facts);
    let mut known = shares.ranked();
    known.retain(|(limit, _)| *limit != Limit::Unknown);
    let ((first, most), (second, next)) = (known[0], known[1]);
    let unknown = |reason| Verdict { shares: Some(shares), ..no(reason) };
    if shares.of(Limit::Unknown) >= most {
        return unknown(NoVerdict::Unexplained);
    }
    if most < LIMIT_MIN_PERCENT {
        return unknown(NoVerdict::Spread);
    }
    let close = (next > 0 && most - next <= CLOSE_POINTS).then_some(second);
    Verdict { limit: first, close, shares: Some(shares), reason: None }
}
