//! Counters and histograms, in the text format of Prometheus.
//!
//! Threads add to shared atomics once per turn, so a busy loop pays for a whole batch at once. All
//! durations of a turn come from at most two additional readings of the clock.

use ioloom_exchange::{Answer, Fault, Local, Refused, Stop};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Upper bounds of the histogram buckets, in nanoseconds.
const BOUNDS_NS: [u64; 20] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Durations by power of ten and its parts.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// Adds a duration `count` times.
    pub(crate) fn observe(&self, ns: u64, count: usize) {
        let (at, count) = (BOUNDS_NS.partition_point(|bound| *bound < ns), count as u64);
        self.buckets[at].fetch_add(count, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns.saturating_mul(count), Ordering::Relaxed);
    }
}

/// Why a connection was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// The limit of open connections is reached.
    Limit,
    /// The queue of the pool is full.
    Queue,
    /// No thread could be started for it.
    Thread,
    /// No file descriptor was free.
    Descriptors,
    /// Its client has too many connections.
    Client,
}

impl Rejected {
    const ALL: [Self; 5] =
        [Self::Limit, Self::Queue, Self::Thread, Self::Descriptors, Self::Client];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Queue => "queue",
            Self::Thread => "thread",
            Self::Descriptors => "descriptors",
            Self::Client => "client",
        }
    }
}

/// Why a connection was closed by the server although its client could have continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// A request, a handshake or a token took too long.
    Request,
    /// The client did not accept its answers in time.
    Drain,
    /// The connection was idle for too long.
    Idle,
    /// It was idle while others waited for its thread.
    Waiting,
    /// The client did not close its side after the last answer.
    Linger,
}

impl Cut {
    const ALL: [Self; 5] = [Self::Request, Self::Drain, Self::Idle, Self::Waiting, Self::Linger];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Request => "request-time",
            Self::Drain => "drain-time",
            Self::Idle => "idle",
            Self::Waiting => "others-waiting",
            Self::Linger => "linger",
        }
    }
}

/// Counters since the server started.
#[derive(Debug, Default)]
pub struct Counts {
    /// Number of open connections.
    pub open: AtomicUsize,
    /// Number of accepted connections.
    pub accepted: AtomicU64,
    /// Number of connections closed because they did not use TLS or could not be decrypted.
    pub not_opened: AtomicU64,
    /// Number of failed attempts to write the stock file.
    pub stock_file_failures: AtomicU64,
    /// Number of orders answered as executed, including repetitions.
    pub done: AtomicU64,
    /// Number of lists of all stocks.
    pub shown: AtomicU64,
    rejected: [AtomicU64; Rejected::ALL.len()],
    cut: [AtomicU64; Cut::ALL.len()],
    refused: [AtomicU64; Refused::ALL.len()],
    stopped: [AtomicU64; Stop::ALL.len()],
    faults: [AtomicU64; Fault::ALL.len()],
}

fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
    pub(crate) fn reject(&self, why: Rejected) {
        add_one(&self.rejected[why as usize]);
    }

    pub(crate) fn cut(&self, why: Cut) {
        add_one(&self.cut[why as usize]);
    }

    /// Counts answers. Returns the number of requests without a valid token.
    pub(crate) fn answers<'a>(&self, answers: impl Iterator<Item = &'a Answer>) -> usize {
        let (mut done, mut shown, mut unauthorized) = (0, 0, 0);
        for answer in answers {
            match answer {
                Answer::Done { .. } => done += 1,
                Answer::Shown(_) => shown += 1,
                Answer::Refused(why) => add_one(&self.refused[*why as usize]),
                Answer::Stopped(why) => add_one(&self.stopped[*why as usize]),
                Answer::Local(Local::Fault(fault)) => {
                    unauthorized += usize::from(*fault == Fault::Token);
                    add_one(&self.faults[*fault as usize]);
                }
                _ => {}
            }
        }
        for (count, n) in [(&self.done, done), (&self.shown, shown)] {
            if n > 0 {
                count.fetch_add(n, Ordering::Relaxed);
            }
        }
        unauthorized
    }
}

/// Durations since the server started.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// From receiving a request until its answer may be sent.
    pub(crate) request: Histogram,
    /// From receiving a request until its execution starts.
    pub(crate) queue: Histogram,
    /// From the end of the execution until the store contains the orders.
    pub(crate) commit: Histogram,
    /// From accepting a connection until a thread of the pool serves it.
    pub(crate) pool: Histogram,
}

/// The text of a page of metrics.
#[derive(Default)]
pub(crate) struct Page(pub(crate) String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP ioloom_{name} {help}\n# TYPE ioloom_{name} {kind}");
    }

    pub(crate) fn value(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "ioloom_{name} {value}");
    }

    fn by_reason<'a>(
        &mut self,
        name: &str,
        help: &str,
        counts: impl Iterator<Item = (&'a str, &'a AtomicU64)>,
    ) {
        self.head(name, "counter", help);
        for (reason, count) in counts {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(self.0, "ioloom_{name}{{reason=\"{reason}\"}} {count}");
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut below = 0;
        for (at, bucket) in histogram.buckets.iter().enumerate() {
            below += bucket.load(Ordering::Relaxed);
            let bound = BOUNDS_NS.get(at).map(|bound| (*bound as f64 / 1e9).to_string());
            let bound = bound.as_deref().unwrap_or("+Inf");
            let _ = writeln!(self.0, "ioloom_{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let sum_s = histogram.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
        let _ = writeln!(self.0, "ioloom_{name}_sum {sum_s}\nioloom_{name}_count {below}");
    }

    pub(crate) fn counts(&mut self, counts: &Counts) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let open = counts.open.load(Ordering::Relaxed) as u64;
        self.value("connections", "gauge", "Open connections.", open);
        let accepted = of(&counts.accepted);
        self.value("connections_total", "counter", "Accepted connections.", accepted);
        let rejected = Rejected::ALL.map(Rejected::name).into_iter().zip(&counts.rejected);
        self.by_reason("connections_rejected_total", "Rejected connections.", rejected);
        let cut = Cut::ALL.map(Cut::name).into_iter().zip(&counts.cut);
        self.by_reason("connections_cut_total", "Connections closed by a timeout.", cut);
        self.value(
            "connections_not_tls_total",
            "counter",
            "Connections closed after a TLS error.",
            of(&counts.not_opened),
        );
        self.value(
            "stock_file_failures_total",
            "counter",
            "Failed attempts to write the stock file.",
            of(&counts.stock_file_failures),
        );
        let done = of(&counts.done);
        self.value("orders_done_total", "counter", "Orders answered as executed.", done);
        let refused = Refused::ALL.map(Refused::code).into_iter().zip(&counts.refused);
        self.by_reason("orders_refused_total", "Refused orders.", refused);
        let stopped = Stop::ALL.map(Stop::code).into_iter().zip(&counts.stopped);
        let help = "Requests that were not executed, or whose outcome is unknown.";
        self.by_reason("requests_stopped_total", help, stopped);
        self.value("lists_total", "counter", "Lists of all stocks.", of(&counts.shown));
        let faults = Fault::ALL.map(Fault::code).into_iter().zip(&counts.faults);
        self.by_reason("faults_total", "Malformed or unauthorized requests.", faults);
    }

    pub(crate) fn times(&mut self, times: &Times, synced: &Histogram) {
        for (name, help, histogram) in [
            (
                "request_duration_seconds",
                "Time from receiving a request until its answer may be sent.",
                &times.request,
            ),
            (
                "request_queue_seconds",
                "Time from receiving a request until its execution starts.",
                &times.queue,
            ),
            (
                "commit_wait_seconds",
                "Time from executing requests until the store contains their orders.",
                &times.commit,
            ),
            (
                "store_sync_seconds",
                "Time of a commit that the store writes and syncs, once per commit.",
                synced,
            ),
            (
                "connection_queue_seconds",
                "Time from accepting a connection until a thread of the pool serves it.",
                &times.pool,
            ),
        ] {
            self.histogram(name, help, histogram);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_include_their_bound() {
        let histogram = Histogram::default();
        for (ns, count) in [(0, 1), (5_000, 2), (5_001, 3), (10_000_000_001, 4)] {
            histogram.observe(ns, count);
        }
        let mut page = Page::default();
        page.histogram("x_seconds", "Help.", &histogram);
        let lines: Vec<&str> = page.0.lines().collect();
        assert_eq!(
            lines[..2],
            ["# HELP ioloom_x_seconds Help.", "# TYPE ioloom_x_seconds histogram"]
        );
        assert_eq!(lines[2], "ioloom_x_seconds_bucket{le=\"0.000005\"} 3");
        assert_eq!(lines[3], "ioloom_x_seconds_bucket{le=\"0.00001\"} 6");
        let end = &lines[lines.len() - 4..];
        assert_eq!(end[0], "ioloom_x_seconds_bucket{le=\"10\"} 6");
        assert_eq!(end[1], "ioloom_x_seconds_bucket{le=\"+Inf\"} 10");
        assert_eq!(end[2], "ioloom_x_seconds_sum 40.000025007");
        assert_eq!(end[3], "ioloom_x_seconds_count 10");
    }

    #[test]
    fn answers_are_counted_by_reason() {
        let counts = Counts::default();
        let answers = [
            Answer::Done { left: 1, seq: 1 },
            Answer::Refused(Refused::TooMany),
            Answer::Stopped(Stop::Late),
            Answer::Local(Local::Fault(Fault::Token)),
            Answer::Local(Local::Pong),
        ];
        assert_eq!(counts.answers(answers.iter()), 1);
        counts.cut(Cut::Idle);
        let mut page = Page::default();
        page.counts(&counts);
        for line in [
            "ioloom_orders_done_total 1",
            "ioloom_orders_refused_total{reason=\"too-many\"} 1",
            "ioloom_orders_refused_total{reason=\"not-enough\"} 0",
            "ioloom_requests_stopped_total{reason=\"late\"} 1",
            "ioloom_faults_total{reason=\"no-token\"} 1",
            "ioloom_connections_cut_total{reason=\"idle\"} 1",
        ] {
            assert!(page.0.lines().any(|found| found == line), "{line}: {}", page.0);
        }
    }
}
