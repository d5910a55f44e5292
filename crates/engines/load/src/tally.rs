//! What one thread counts while it runs: latencies, outcomes, its own lateness.
//!
//! Every latency is taken twice. *Corrected* counts from the moment at which the request was due, so
//! that a server that stands still for a second is not asked only once in that second and then
//! forgotten; *raw* counts from the moment at which it was sent. Both are kept to three digits.
//!
//! Cost: about 0.4 MB for each table, twelve tables for each thread, all made before the start.

use crate::draw::Op;
use crate::history::Event;
use crate::judge::Holdings;
use hdrhistogram::Histogram;
use ioloom_exchange::Side;
use serde::Serialize;

/// The longest latency that is told apart, nanoseconds.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
/// Samples of wrong answers that are kept.
const SAMPLES_MAX: usize = 10;
/// Seconds of which each has counts of its own.
const SECONDS_MAX: usize = 3600;

/// A table of latencies.
pub(crate) type Table = Histogram<u64>;

pub(crate) fn table() -> Table {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are in order")
}

/// Latencies of one command, from when it was due and from when it was sent.
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
        // Equal bounds always add.
        let _ = self.corrected.add(&other.corrected);
        let _ = self.raw.add(&other.raw);
    }
}

/// Counts of what came of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Requests that were sent.
    pub sent: u64,
    /// Answers that arrived, to requests that count (after the warm-up).
    pub answered: u64,
    /// Those of them that arrived before the end of the run: what the rate is made of.
    pub answered_in_time: u64,
    /// Orders that were carried out.
    pub traded: u64,
    /// Orders that were refused for a good reason.
    pub refused: u64,
    /// Lists.
    pub listed: u64,
    /// Requests or connections for which the server had no room.
    pub turned_away: u64,
    /// Answers that cannot be right.
    pub wrong: u64,
    /// Connections that ended or failed before all their answers had come.
    pub lost: u64,
    /// Connections that were given up because an answer took too long.
    pub timed_out: u64,
    /// Requests whose answer never came, or that the server itself does not know the end of.
    pub unanswered: u64,
    /// Requests that were due and never sent, because no connection was free.
    pub unsent: u64,
    /// Sessions that began, in a partly open loop.
    pub sessions: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Bytes that arrived.
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
        self.timed_out += other.timed_out;
        self.unanswered += other.unanswered;
        self.unsent += other.unsent;
        self.sessions += other.sessions;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
    }
}

/// Everything that a thread counts.
pub(crate) struct Tally {
    /// Lists, purchases, sales.
    pub(crate) commands: [Pair; 3],
    /// How much later than due requests were sent although a connection was free.
    pub(crate) late: Table,
    /// How long answers that had arrived waited for this thread, at least.
    pub(crate) pickup: Table,
    /// Latencies of each second, from when requests were due.
    pub(crate) seconds: Vec<ioloom_stats::Histogram>,
    pub(crate) outcomes: Outcomes,
    pub(crate) samples: Vec<String>,
    pub(crate) holdings: Holdings,
    pub(crate) history: Vec<Event>,
    /// When the latest answer that counts arrived.
    pub(crate) last_ns: u64,
    /// Time on a processor and waiting for one, and the time that passed, nanoseconds.
    pub(crate) busy: Busy,
    /// Threads of which that could not be read.
    pub(crate) unaccounted: usize,
}

/// How busy a thread was; nothing of it is known where all is zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Busy {
    pub(crate) on_cpu_ns: u64,
    pub(crate) ready_ns: u64,
    /// Of both, what passed with looking for answers in vain.
    pub(crate) rest_ns: u64,
    pub(crate) elapsed_ns: u64,
}

impl Busy {
    /// Whether the system told it: some tell nothing, and some tell zero.
    pub(crate) fn is_known(&self) -> bool {
        self.on_cpu_ns > 0 && self.elapsed_ns > 0
    }

    /// Share of the time on a processor.
    pub(crate) fn cpu_share(&self) -> f64 {
        self.on_cpu_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// Share of the time on a processor or ready for one, without what was rest.
    pub(crate) fn share(&self) -> f64 {
        let busy_ns = (self.on_cpu_ns + self.ready_ns).saturating_sub(self.rest_ns);
        busy_ns as f64 / self.elapsed_ns.max(1) as f64
    }
}

/// A latency in its parts.
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

    /// Counts the latency of a request; `second` is that in which it was due.
    pub(crate) fn latency(&mut self, op: Op, times: Times, second: usize) {
        let pair = &mut self.commands[place(op)];
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

    /// Counts a request that was due and never sent, with the time that it had waited.
    pub(crate) fn unsent(&mut self, op: Op, waited_ns: u64) {
        self.outcomes.unsent += 1;
        self.waited(op, waited_ns);
    }

    /// Counts the time that a request has waited in vain: its latency would have been more.
    pub(crate) fn waited(&mut self, op: Op, waited_ns: u64) {
        self.commands[place(op)].corrected.saturating_record(waited_ns.max(1));
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

fn place(op: Op) -> usize {
    match op {
        Op::Show => 0,
        Op::Trade(order) if order.side() == Side::Buy => 1,
        Op::Trade(_) => 2,
    }
}
