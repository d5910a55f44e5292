//! The report of a run: the document of `--json`.

use crate::latency::Latency;
use crate::stall::Stall;
use crate::tally::{Outcomes, Pair, Tally};
use serde::Serialize;
use std::collections::BTreeMap;

/// Latencies, measured from the due time and from the send time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// From the due time.
    pub corrected: Latency,
    /// From the send time.
    pub raw: Latency,
}

impl From<&Pair> for Latencies {
    fn from(pair: &Pair) -> Self {
        Self { corrected: (&pair.corrected).into(), raw: (&pair.raw).into() }
    }
}

/// One second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Second {
    /// Seconds since the start.
    pub second: usize,
    /// Number of answered requests that were due in this second.
    pub answered: u64,
    /// Median of the corrected latency.
    pub p50_ns: u64,
    /// 99th percentile of the corrected latency.
    pub p99_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

/// Whether the final stocks match the initial stocks and the answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conservation {
    /// Whether this check was made.
    pub checked: bool,
    /// The reason if it was not made.
    pub reason: Option<String>,
    /// Number of compared stocks.
    pub stocks: usize,
    /// Descriptions of stocks that do not match; at most 20.
    pub differences: Vec<String>,
}

/// How the load generator measured itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generator {
    /// Number of threads.
    pub threads: usize,
    /// Send delay after the due time although a connection was free.
    pub late: Latency,
    /// Minimum time that received answers waited for their thread.
    pub pickup: Latency,
    /// Fraction of time that the busiest thread spent on a CPU; null if the system does not report
    /// it for all threads.
    pub cpu_share: Option<f64>,
    /// Fraction of time that it spent on a CPU or waiting for one, excluding unsuccessful polling;
    /// null if `cpu_share` is null.
    pub busy_share: Option<f64>,
    /// Whether, as far as is known, the load generator kept up, so the result describes the server.
    pub kept_up: bool,
    /// The reason if it did not keep up.
    pub reason: Option<String>,
    /// What is unknown about this, and what was used instead.
    pub unknown: Option<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// `closed`, `open`, `partly-open` or `multiclient`.
    pub pace: String,
    /// Number of connections; in a partly open loop, the maximum.
    pub connections: usize,
    /// Requested arrivals per second; in a partly open loop, of sessions.
    pub asked_per_s: Option<f64>,
    /// Due arrivals per second in the counted time: fewer than requested during a ramp, and about
    /// as many as requested without one.
    pub offered_per_s: Option<f64>,
    /// Number of due arrivals; null in a closed loop or if the run was interrupted.
    pub due: Option<u64>,
    /// Answers per second until the end of the run.
    pub answered_per_s: f64,
    /// Time over which this rate is computed, in nanoseconds.
    pub elapsed_ns: u64,
    /// Outcomes of requests.
    pub outcomes: Outcomes,
    /// Latencies of all commands. Requests that were never sent or answered count with their
    /// waiting time.
    pub latency: Latencies,
    /// A stall that a closed loop hides; null if there was none or the loop is not closed.
    pub stall: Option<Stall>,
    /// Latencies by command: `show`, `buy`, `sell`.
    pub commands: BTreeMap<&'static str, Latencies>,
    /// Latencies by second, for the first hour.
    pub seconds: Vec<Second>,
    /// Wrong answers, at most 10.
    pub wrong_samples: Vec<String>,
    /// Whether shares were lost or invented.
    pub conservation: Conservation,
    /// How the load generator measured itself.
    pub generator: Generator,
    /// Whether the run was interrupted.
    pub interrupted: bool,
    /// Why the run ended early, if the server stopped accepting or answering connections.
    pub lost: Option<String>,
}

impl Run {
    /// Returns true if there was at least one answer, every answer was correct, and no shares were
    /// lost or invented.
    pub fn is_right(&self) -> bool {
        self.outcomes.answered > 0 && !self.is_wrong()
    }

    /// Returns true if an answer was wrong, or shares were lost or invented.
    pub fn is_wrong(&self) -> bool {
        self.outcomes.wrong > 0 || !self.conservation.differences.is_empty()
    }

    /// Returns true if the run ended before a request was due after the warm-up, so nothing was
    /// measured. Wrong answers in the warm-up count nevertheless.
    pub fn ended_in_warm_up(&self) -> bool {
        let of = &self.outcomes;
        of.sent > 0 && of.answered + of.failed + of.unsent == 0 && !self.is_wrong()
    }

    /// Returns true if no request was due in a run that lasted its whole duration, so nothing was
    /// sent or measured.
    pub fn had_nothing_due(&self) -> bool {
        let of = &self.outcomes;
        let none = of.sent + of.answered + of.failed + of.unsent + of.sessions == 0;
        self.due == Some(0) && none && !self.is_wrong()
    }

    /// Returns true if nothing was measured, although nothing was wrong: the run ended in its
    /// warm-up, or no request was due.
    pub fn is_unmeasured(&self) -> bool {
        self.ended_in_warm_up() || self.had_nothing_due()
    }

    /// Returns the share of requests without an answer if it exceeds [`UNANSWERED_MAX`]: the other
    /// answers then say little about the server. Requests that were due but never sent have no
    /// answer either. Requests of the warm-up do not count.
    pub fn too_many_unanswered(&self) -> Option<f64> {
        let share = unanswered_share(&self.outcomes);
        (share > UNANSWERED_MAX).then_some(share)
    }
}

/// Returns the share of due requests without an answer, after the warm-up.
fn unanswered_share(of: &Outcomes) -> f64 {
    let due = of.answered + of.failed + of.unsent;
    (of.unanswered_counted + of.unsent) as f64 / due.max(1) as f64
}

/// Fraction of the requests that may remain without an answer.
pub const UNANSWERED_MAX: f64 = 0.01;
/// Busy fraction above which the load generator is the bottleneck.
const BUSY_MAX: f64 = 0.95;
/// Lateness below this value is timer noise, in nanoseconds.
const LATE_NS: u64 = 250_000;
/// Minimum number of requests for a 99th percentile.
const LATE_COUNT: u64 = 500;
/// Fraction of the latency that the load generator is permitted to cause.
const LATE_SHARE: f64 = 0.25;

/// Decides whether the load generator kept up.
pub(crate) fn generator(threads: usize, tally: &Tally, all: &Pair) -> Generator {
    let (late, pickup) = (Latency::from(&tally.late), Latency::from(&tally.pickup));
    let p99_ns = all.corrected.value_at_quantile(0.99);
    // A thread without known times may have been the busiest, but the known times can still prove
    // that a thread was too busy.
    let share = tally.busy.share();
    let is_known = tally.busy.is_known() && tally.unaccounted == 0;
    let too_late = |own: &Latency| {
        own.count >= LATE_COUNT
            && own.p99_ns > LATE_NS
            && own.p99_ns as f64 > LATE_SHARE * p99_ns as f64
    };
    let reason = if share > BUSY_MAX {
        Some(format!(
            "the busiest thread of the load generator was running or waiting for a processor \
             {:.0} % of the time; use more --threads, fewer --connections or a lower rate, or \
             reserve a processor for it",
            share * 100.0
        ))
    } else if too_late(&late) {
        Some(format!(
            "1 % of the requests were sent at least {} µs late although a connection was free, \
             with a 99th percentile of latency of {} µs; use more --threads or a lower rate",
            late.p99_ns / 1000,
            p99_ns / 1000
        ))
    } else if too_late(&pickup) {
        Some(format!(
            "1 % of the answers waited at least {} µs for the load generator, with a 99th \
             percentile of latency of {} µs; use more --threads or fewer --connections",
            pickup.p99_ns / 1000,
            p99_ns / 1000
        ))
    } else {
        None
    };
    Generator {
        threads,
        late,
        pickup,
        cpu_share: is_known.then(|| tally.busy.cpu_share()),
        busy_share: is_known.then_some(share),
        kept_up: reason.is_none(),
        reason,
        unknown: unknown(is_known, late.count.max(pickup.count) >= LATE_COUNT),
    }
}

/// Describes what is unknown about the load generator, and what was used instead.
fn unknown(is_busy_known: bool, is_late_known: bool) -> Option<String> {
    let busy = "the CPU use of its threads is unknown because the system does not \
                report it (/proc/thread-self/schedstat)";
    let late = format!("fewer than {LATE_COUNT} requests do not show whether it was late");
    match (is_busy_known, is_late_known) {
        (true, true) => None,
        (false, true) => Some(format!("{busy}; only its lateness shows whether it kept up")),
        (true, false) => Some(format!("{late}; only its CPU use shows whether it kept up")),
        (false, false) => Some(format!("{busy}, and {late}; whether it kept up is unknown")),
    }
}

/// Returns the seconds of a run that have answers.
pub(crate) fn seconds(tally: &Tally) -> Vec<Second> {
    let second = |(second, table): (usize, &ioloom_stats::Histogram)| Second {
        second,
        answered: table.count(),
        p50_ns: table.quantile_ns(0.5),
        p99_ns: table.quantile_ns(0.99),
        max_ns: table.max_ns(),
    };
    let all = tally.seconds.iter().enumerate();
    all.filter(|(_, table)| table.count() > 0).map(second).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{Busy, table};

    fn judged(change: impl FnOnce(&mut Tally)) -> Generator {
        let mut tally = Tally::new(1);
        for _ in 0..1000 {
            tally.commands[0].corrected.record(1_000_000).unwrap();
            tally.late.record(10_000).unwrap();
            tally.pickup.record(10_000).unwrap();
        }
        tally.busy = Busy { on_cpu_ns: 30, ready_ns: 20, rest_ns: 0, elapsed_ns: 100 };
        change(&mut tally);
        generator(1, &tally, &tally.commands[0])
    }

    #[test]
    fn requests_that_were_never_sent_are_not_answered() {
        let share = |answered, failed, unanswered_counted, unsent| {
            let rest = Outcomes::default();
            let of = Outcomes { answered, failed, unanswered_counted, unsent, ..rest };
            unanswered_share(&of)
        };
        assert!((share(25, 0, 0, 75) - 0.75).abs() < 1e-9);
        assert!((share(80, 20, 10, 0) - 0.1).abs() < 1e-9);
        assert!((share(60, 20, 10, 20) - 0.3).abs() < 1e-9);
        assert!(share(0, 0, 0, 0) < 1e-9);
    }

    #[test]
    fn a_generator_that_was_the_bottleneck_reports_it() {
        let well = judged(|_| {});
        assert!(well.kept_up && (well.busy_share.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(well.unknown, None);
        let busy = judged(|tally| tally.busy.ready_ns = 68);
        assert!(busy.reason.unwrap().contains("98 %"));
        let rested = judged(|tally| (tally.busy.ready_ns, tally.busy.rest_ns) = (68, 40));
        assert!(rested.kept_up && (rested.busy_share.unwrap() - 0.58).abs() < 1e-9);
        let late = judged(|tally| (0..20).for_each(|_| tally.late.record(400_000).unwrap()));
        assert!(late.reason.unwrap().contains("late"));
        let slow = judged(|tally| (0..20).for_each(|_| tally.pickup.record(400_000).unwrap()));
        assert!(slow.reason.unwrap().contains("waited"));
        // With a slow server, the same lateness is insignificant.
        let slow_server = judged(|tally| {
            (0..20).for_each(|_| tally.late.record(400_000).unwrap());
            (0..20).for_each(|_| tally.commands[0].corrected.record(9_000_000).unwrap());
        });
        assert!(slow_server.kept_up);
    }

    #[test]
    fn missing_times_are_unknown_rather_than_zero() {
        let silent = |change: fn(&mut Tally)| {
            judged(|tally| {
                // Some systems do not provide these times for threads, and some report zero.
                tally.busy = Busy { elapsed_ns: 100, ..Busy::default() };
                change(tally);
            })
        };
        let unknown = silent(|_| {});
        assert_eq!((unknown.cpu_share, unknown.busy_share), (None, None));
        assert!(unknown.kept_up && unknown.unknown.unwrap().contains("only its lateness"));
        let late = silent(|tally| (0..20).for_each(|_| tally.late.record(400_000).unwrap()));
        assert!(!late.kept_up && late.reason.unwrap().contains("late"));
        let few = silent(|tally| (tally.late, tally.pickup) = (table(), table()));
        assert!(few.unknown.unwrap().contains("whether it kept up is unknown"));
        let few = judged(|tally| (tally.late, tally.pickup) = (table(), table()));
        assert!(few.kept_up && few.unknown.unwrap().contains("fewer than 500"));
    }

    #[test]
    fn a_thread_without_times_may_have_been_the_busiest() {
        let both = |on_cpu_ns| {
            let mut all = Tally::new(1);
            for busy in [Busy { on_cpu_ns, elapsed_ns: 100, ..Busy::default() }, Busy::default()] {
                let mut one = Tally::new(1);
                one.busy = busy;
                all.merge(one);
            }
            let pair = all.commands[0].clone();
            generator(2, &all, &pair)
        };
        assert_eq!(both(50).busy_share, None);
        // The known times of the other thread are sufficient here.
        assert!(both(98).reason.unwrap().contains("98 %"));
        let mut all = Tally::new(1);
        let mut one = Tally::new(1);
        one.busy = Busy { on_cpu_ns: 40, elapsed_ns: 100, ..Busy::default() };
        all.merge(one);
        assert_eq!(generator(1, &all, &all.commands[0]).cpu_share, Some(0.4));
    }
}
