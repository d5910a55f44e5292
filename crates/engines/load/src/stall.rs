//! What a closed loop hides.
//!
//! A closed loop sends nothing while it waits for an answer. If the server stalls, one request per
//! connection sees it, whereas clients that do not wait would have sent many; their waiting time is
//! omitted ("coordinated omission", Tene). If a run saw a stall, the report therefore adds the
//! percentiles with the omitted requests: a request that took longer than the usual interval counts
//! for all those that would have been sent in the meantime, each of which waits less than the one
//! before it.

use crate::latency::Latency;
use crate::plan::{Pace, Think};
use crate::tally::Table;
use serde::Serialize;

/// A stall takes at least this many usual intervals.
const INTERVALS_MIN: u64 = 20;
/// Shorter waits are not stalls, in nanoseconds.
const STALL_NS: u64 = 10_000_000;
/// The correction must change a percentile by at least this factor.
const FACTOR_MIN: u64 = 2;

/// A stall that a closed loop hides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stall {
    /// The longest wait for an answer.
    pub max_ns: u64,
    /// Usual time between two requests of a connection: the median latency plus the think time.
    pub interval_ns: u64,
    /// Latencies with the requests that were not sent during the wait.
    pub corrected: Latency,
}

/// Returns the stall that the latencies of a run hide, if any. `waits` includes requests that timed
/// out.
pub(crate) fn hidden(pace: &Pace, waits: &Table) -> Option<Stall> {
    let Pace::Closed { think } = pace else { return None };
    let think_ns = match think {
        Think::None => 0,
        Think::Constant(time) | Think::Exponential(time) => time.as_nanos() as u64,
    };
    let interval_ns = waits.value_at_quantile(0.5).saturating_add(think_ns).max(1);
    let max_ns = waits.max();
    if waits.is_empty() || max_ns < STALL_NS || max_ns / INTERVALS_MIN < interval_ns {
        return None;
    }
    let corrected = waits.clone_correct(interval_ns);
    let changes = |quantile| {
        corrected.value_at_quantile(quantile) >= FACTOR_MIN * waits.value_at_quantile(quantile)
    };
    (changes(0.99) || changes(0.999)).then(|| Stall {
        max_ns,
        interval_ns,
        corrected: (&corrected).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Arrival;
    use crate::tally::table;
    use std::time::Duration;

    const CLOSED: Pace = Pace::Closed { think: Think::None };

    fn latencies(parts: &[(u64, u64)]) -> Table {
        let mut table = table();
        for (ns, count) in parts {
            table.record_n(*ns, *count).unwrap();
        }
        table
    }

    #[test]
    fn a_stall_of_a_tenth_of_the_run_dominates_the_corrected_percentiles() {
        // 9 s of requests that take 1 ms, and a second without answers.
        let stall = hidden(&CLOSED, &latencies(&[(1_000_000, 9000), (1_000_000_000, 1)])).unwrap();
        let near = |ns: u64, expected: u64| ns.abs_diff(expected) < expected / 50;
        assert!(near(stall.interval_ns, 1_000_000) && near(stall.max_ns, 1_000_000_000));
        // Of 10,000 requests the slowest hundred waited 0.9 s or longer.
        assert!(near(stall.corrected.p99_ns, 900_000_000), "{stall:?}");
        assert!(near(stall.corrected.count, 10_000), "{stall:?}");
    }

    #[test]
    fn usual_tails_open_loops_and_long_thinking_are_not_stalls() {
        let tail = latencies(&[(1_000_000, 9900), (5_000_000, 100)]);
        assert_eq!(hidden(&CLOSED, &tail), None);
        let stall = latencies(&[(1_000_000, 9000), (1_000_000_000, 1)]);
        let open = Pace::Open { rate_per_s: 1.0, arrival: Arrival::Constant };
        assert_eq!(hidden(&open, &stall), None);
        let thinking = Pace::Closed { think: Think::Constant(Duration::from_secs(1)) };
        assert_eq!(hidden(&thinking, &stall), None);
        assert_eq!(hidden(&CLOSED, &table()), None);
    }
}
