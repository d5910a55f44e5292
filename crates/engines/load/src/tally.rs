//! Counters of one thread: latencies, outcomes and its own lateness.
//!
//! Every latency is recorded twice. The *corrected* latency is measured from the time the request
//! was due, so if a server stalls for a second, all requests of that second show it, not just one.
//! The *raw* latency is measured from the time the request was sent. Both have three significant
//! digits.
//!
//! Cost: about 0.3 MB per histogram and eight histograms per thread, all allocated before the
//! start.

use crate::draw::Op;
use crate::history::Event;
use crate::judge::Holdings;
use crate::plan::DURATION_MAX;
use hdrhistogram::Histogram;
use ioloom_exchange::Side;
use serde::Serialize;

/// Maximum latency in histograms, in nanoseconds: a request due at the start of the longest run may
/// wait for the longest timeout after its end.
const LATENCY_MAX_NS: u64 = 2 * DURATION_MAX.as_secs() * 1_000_000_000;
/// Number of wrong answers to keep as samples.
const SAMPLES_MAX: usize = 10;
/// Number of seconds that have their own histograms.
const SECONDS_MAX: usize = 3600;

/// Histogram of latencies.
pub(crate) type Table = Histogram<u64>;

pub(crate) fn table() -> Table {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds must be in order")
}

/// Latencies of one command, from the due time and from the send time.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) corrected: Table,
    pub(crate) raw: Table,
}

impl Pair {
    fn new() -> Self {
        Self { corrected: table(), raw: table() }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        // Histograms with equal bounds can always be merged.
        let _ = self.corrected.add(&other.corrected);
        let _ = self.raw.add(&other.raw);
    }
}

/// Outcomes of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Requests sent.
    pub sent: u64,
    /// Correct answers to requests after the warm-up.
    pub answered: u64,
    /// Those that arrived before the end of the run; they determine the throughput.
    pub answered_in_time: u64,
    /// Executed orders.
    pub traded: u64,
    /// Orders refused for a valid reason.
    pub refused: u64,
    /// Lists.
    pub listed: u64,
    /// Requests or connections rejected as busy.
    pub turned_away: u64,
    /// Wrong answers.
    pub wrong: u64,
    /// Connections that closed or failed before all answers had arrived.
    pub lost: u64,
    /// Those that ended during the TLS handshake, as on a server at its connection limit.
    pub lost_in_handshake: u64,
    /// Connections closed because an answer timed out.
    pub timed_out: u64,
    /// Requests without an answer, or with an outcome unknown to the server.
    pub unanswered: u64,
    /// Those after the warm-up.
    pub unanswered_counted: u64,
    /// Requests after the warm-up that were rejected as busy, answered wrongly, or not answered.
    pub failed: u64,
    /// Requests that were due but never sent because no connection was free.
    pub unsent: u64,
    /// Sessions started, in a partly open loop.
    pub sessions: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

impl Outcomes {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.answered_in_time += other.answered_in_time;
        self.traded += other.traded;
        self.refused += other.refused;
        self.listed += other.listed;
        self.turned_away += other.turned_away;
        self.wrong += other.wrong;
        self.lost += other.lost;
        self.lost_in_handshake += other.lost_in_handshake;
        self.timed_out += other.timed_out;
        self.unanswered += other.unanswered;
        self.unanswered_counted += other.unanswered_counted;
        self.failed += other.failed;
        self.unsent += other.unsent;
        self.sessions += other.sessions;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
    }
}

/// All counters of a thread.
pub(crate) struct Tally {
    /// Lists, purchases and sales.
    pub(crate) commands: [Pair; 3],
    /// Send delay after the due time although a connection was free.
    pub(crate) late: Table,
    /// Minimum time that received answers waited for this thread.
    pub(crate) pickup: Table,
    /// Corrected latencies for each second.
    pub(crate) seconds: Vec<ioloom_stats::Histogram>,
    pub(crate) outcomes: Outcomes,
    pub(crate) samples: Vec<String>,
    pub(crate) holdings: Holdings,
    pub(crate) history: Vec<Event>,
    /// Time of the latest counted answer.
    pub(crate) last_ns: u64,
    /// CPU time, time spent waiting for a CPU, and elapsed time.
    pub(crate) busy: Busy,
    /// Number of threads for which those times could not be read.
    pub(crate) unaccounted: usize,
}

/// CPU use of a thread; all zero if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Busy {
    pub(crate) on_cpu_ns: u64,
    pub(crate) ready_ns: u64,
    /// Part of both times that was spent on unsuccessful polling.
    pub(crate) rest_ns: u64,
    pub(crate) elapsed_ns: u64,
}

impl Busy {
    /// Returns true if the system provides these times: some systems do not, and some report zero.
    pub(crate) fn is_known(&self) -> bool {
        self.on_cpu_ns > 0 && self.elapsed_ns > 0
    }

    /// Returns the fraction of time on a CPU.
    pub(crate) fn cpu_share(&self) -> f64 {
        self.on_cpu_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// Returns the fraction of time on a CPU or waiting for one, excluding unsuccessful polling.
    pub(crate) fn share(&self) -> f64 {
        let busy_ns = (self.on_cpu_ns + self.ready_ns).saturating_sub(self.rest_ns);
        busy_ns as f64 / self.elapsed_ns.max(1) as f64
    }
}

/// The times of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) due_ns: u64,
    pub(crate) sent_ns: u64,
    pub(crate) now_ns: u64,
}

impl Tally {
    pub(crate) fn new(stocks: usize) -> Self {
        Self {
            commands: [Pair::new(), Pair::new(), Pair::new()],
            late: table(),
            pickup: table(),
            seconds: Vec::new(),
            outcomes: Outcomes::default(),
            samples: Vec::new(),
            holdings: Holdings::new(stocks),
            history: Vec::new(),
            last_ns: 0,
            busy: Busy::default(),
            unaccounted: 0,
        }
    }

    /// Records the latency of a request that was due in `second`.
    pub(crate) fn latency(&mut self, op: Op, times: Times, second: usize) {
        let pair = &mut self.commands[index_of(op)];
        let corrected = times.now_ns.saturating_sub(times.due_ns);
        pair.corrected.saturating_record(corrected.max(1));
        pair.raw.saturating_record(times.now_ns.saturating_sub(times.sent_ns).max(1));
        if second < SECONDS_MAX {
            if self.seconds.len() <= second {
                self.seconds.resize_with(second + 1, ioloom_stats::Histogram::new);
            }
            self.seconds[second].record(corrected);
        }
        self.last_ns = self.last_ns.max(times.now_ns);
    }

    /// Records the waiting time of a request that was due but never sent.
    pub(crate) fn unsent(&mut self, op: Op, waited_ns: u64) {
        self.unsent_times(op, waited_ns, 1);
    }

    /// Records several such requests that waited about the same time.
    pub(crate) fn unsent_times(&mut self, op: Op, waited_ns: u64, count: u64) {
        self.outcomes.unsent += count;
        let corrected = &mut self.commands[index_of(op)].corrected;
        corrected.saturating_record_n(waited_ns.max(1), count);
    }

    /// Records the waiting time of an unanswered request; its latency would have been longer.
    pub(crate) fn waited(&mut self, op: Op, waited_ns: u64) {
        self.commands[index_of(op)].corrected.saturating_record(waited_ns.max(1));
    }

    pub(crate) fn wrong(&mut self, sample: String) {
        self.outcomes.wrong += 1;
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(sample);
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.commands.iter_mut().zip(&other.commands) {
            mine.merge(theirs);
        }
        let _ = self.late.add(&other.late);
        let _ = self.pickup.add(&other.pickup);
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize_with(other.seconds.len(), ioloom_stats::Histogram::new);
        }
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            mine.merge(theirs);
        }
        self.outcomes.merge(&other.outcomes);
        let room = SAMPLES_MAX - self.samples.len().min(SAMPLES_MAX);
        self.samples.extend(other.samples.into_iter().take(room));
        self.holdings.merge(&other.holdings);
        self.history.extend(other.history);
        self.last_ns = self.last_ns.max(other.last_ns);
        if !other.busy.is_known() {
            self.unaccounted += 1;
        } else if other.busy.share() > self.busy.share() || !self.busy.is_known() {
            self.busy = other.busy;
        }
    }
}

fn index_of(op: Op) -> usize {
    match op {
        Op::Show => 0,
        Op::Trade(order) if order.side() == Side::Buy => 1,
        Op::Trade(_) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_of_the_longest_runs_are_recorded() {
        let mut tally = Tally::new(1);
        let hours = |hours: u64| hours * 3_600_000_000_000;
        tally.unsent(Op::Show, hours(1));
        tally.unsent(Op::Show, hours(47));
        let max_ns = tally.commands[0].corrected.max();
        assert!(max_ns.abs_diff(hours(47)) < hours(47) / 500, "{max_ns}");
    }
}
