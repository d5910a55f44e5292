//! What is told of a run: the document behind `--json`, with every number and what it rests on.

use crate::tally::{Outcomes, Pair, Table, Tally};
use serde::Serialize;
use std::collections::BTreeMap;

/// Latencies in nanoseconds. All zero without any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Their mean.
    pub mean_ns: f64,
    /// Half are at most this.
    pub p50_ns: u64,
    /// Nine of ten are at most this.
    pub p90_ns: u64,
    /// 99 of a hundred.
    pub p99_ns: u64,
    /// 999 of a thousand.
    pub p999_ns: u64,
    /// 9999 of ten thousand.
    pub p9999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl From<&Table> for Latency {
    fn from(table: &Table) -> Self {
        if table.is_empty() {
            return Self::default();
        }
        let quantile = |q| table.value_at_quantile(q);
        Self {
            count: table.len(),
            min_ns: table.min(),
            mean_ns: table.mean(),
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            p9999_ns: quantile(0.9999),
            max_ns: table.max(),
        }
    }
}

/// Latencies from when requests were due, and from when they were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// From when they were due.
    pub corrected: Latency,
    /// From when they were sent.
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
    /// Counted from the start.
    pub second: usize,
    /// Requests that were due in it and answered.
    pub answered: u64,
    /// Median of their latencies from when they were due.
    pub p50_ns: u64,
    /// 99 of a hundred are at most this.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Whether the stocks at the end are those of the beginning and the answers between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conservation {
    /// Whether it was looked at.
    pub checked: bool,
    /// Why not.
    pub reason: Option<String>,
    /// Stocks that were compared.
    pub stocks: usize,
    /// Stocks that differ, in words; at most 20.
    pub differences: Vec<String>,
}

/// What the load says of itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generator {
    /// Threads that drove the connections.
    pub threads: usize,
    /// How much later than due requests were sent although a connection was free for them.
    pub late: Latency,
    /// How long answers that had arrived waited for their thread, at least.
    pub pickup: Latency,
    /// Share of the time that the busiest thread was on a processor; null where the system does not tell
    /// it of all threads.
    pub cpu_share: Option<f64>,
    /// Share of the time that it was on a processor or waited for one, without looking in vain for
    /// answers; null with `cpu_share`.
    pub busy_share: Option<f64>,
    /// Whether the load kept up by all that is known of it, so that the result is one of the server.
    pub kept_up: bool,
    /// If not, why.
    pub reason: Option<String>,
    /// What of it is not known, and what it was judged by instead.
    pub unknown: Option<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// `closed`, `open`, `partly-open` or `multiclient`.
    pub pace: String,
    /// Connections; in a partly open loop the most at once.
    pub connections: usize,
    /// Arrivals per second that were asked for; of sessions in a partly open loop.
    pub asked_per_s: Option<f64>,
    /// Arrivals that were due in the time that counts, over that time: fewer than asked for while a
    /// ramp lasts, and about as many without one.
    pub offered_per_s: Option<f64>,
    /// Those arrivals; null in a closed loop, and if the run ended before its time.
    pub due: Option<u64>,
    /// Answers per second until the end of the run.
    pub answered_per_s: f64,
    /// The time that this rate is taken over, ns.
    pub elapsed_ns: u64,
    /// What came of requests.
    pub outcomes: Outcomes,
    /// All commands together. Requests that were never sent or never answered count from when they were
    /// due, with the time that they waited in vain.
    pub latency: Latencies,
    /// By command: `show`, `buy`, `sell`.
    pub commands: BTreeMap<&'static str, Latencies>,
    /// Second by second, the first hour at most.
    pub seconds: Vec<Second>,
    /// Answers that cannot be right, at most 10.
    pub wrong_samples: Vec<String>,
    /// Whether nothing was lost or invented.
    pub conservation: Conservation,
    /// How the load itself did.
    pub generator: Generator,
    /// Whether somebody ended it early.
    pub interrupted: bool,
}

impl Run {
    /// Whether every answer was right, nothing was lost or invented, and there was an answer.
    pub fn is_right(&self) -> bool {
        let some = self.outcomes.answered > 0;
        some && self.outcomes.wrong == 0 && self.conservation.differences.is_empty()
    }
}

/// A generator that is busier than this is the bottleneck itself.
const BUSY_MAX: f64 = 0.95;
/// Lateness below this, ns, is noise of timers.
const LATE_NS: u64 = 250_000;
/// Fewer requests than this say nothing of one in a hundred.
const LATE_COUNT: u64 = 500;
/// Share of the latencies that may be the generator's own.
const LATE_SHARE: f64 = 0.25;

/// Judges whether the generator kept up.
pub(crate) fn generator(threads: usize, tally: &Tally, all: &Pair) -> Generator {
    let (late, pickup) = (Latency::from(&tally.late), Latency::from(&tally.pickup));
    let p99_ns = all.corrected.value_at_quantile(0.99);
    // One thread of which it is not known may have been the busiest; one that is known was too busy.
    let share = tally.busy.share();
    let is_known = tally.busy.is_known() && tally.unaccounted == 0;
    let too_late = |own: &Latency| {
        own.count >= LATE_COUNT
            && own.p99_ns > LATE_NS
            && own.p99_ns as f64 > LATE_SHARE * p99_ns as f64
    };
    let reason = if share > BUSY_MAX {
        Some(format!(
            "the busiest thread of the load was on a processor or waited for one {:.0} % of the \
             time; use more --threads, fewer --connections or a lower rate, or give it a processor \
             of its own",
            share * 100.0
        ))
    } else if too_late(&late) {
        Some(format!(
            "one request in a hundred was sent {} µs late or more though a connection was free, \
             and its latency was {} µs; use more --threads or a lower rate",
            late.p99_ns / 1000,
            p99_ns / 1000
        ))
    } else if too_late(&pickup) {
        Some(format!(
            "one answer in a hundred waited {} µs or more for the load, and its latency was {} µs; \
             use more --threads or fewer --connections",
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

/// What is not known of the generator, and what it was judged by instead.
fn unknown(is_busy_known: bool, is_late_known: bool) -> Option<String> {
    let busy = "how busy its threads were is unknown: the system does not tell it \
                (/proc/thread-self/schedstat)";
    let late = format!("fewer than {LATE_COUNT} requests do not tell whether it was late");
    match (is_busy_known, is_late_known) {
        (true, true) => None,
        (false, true) => {
            Some(format!("{busy}; whether it outcome up is judged by its lateness alone"))
        }
        (true, false) => {
            Some(format!("{late}; whether it outcome up is judged by how busy it was"))
        }
        (false, false) => Some(format!("{busy}, and {late}; nothing tells whether it outcome up")),
    }
}

/// The seconds of a run that have answers.
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
    fn a_generator_that_was_the_bottleneck_says_so() {
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
        // Beside a slow server the same lateness is no matter.
        let slow_server = judged(|tally| {
            (0..20).for_each(|_| tally.late.record(400_000).unwrap());
            (0..20).for_each(|_| tally.commands[0].corrected.record(9_000_000).unwrap());
        });
        assert!(slow_server.kept_up);
    }

    #[test]
    fn what_the_system_does_not_tell_is_unknown_and_not_zero() {
        let silent = |change: fn(&mut Tally)| {
            judged(|tally| {
                // Some systems have no account of a thread, and some one that stays at zero.
                tally.busy = Busy { elapsed_ns: 100, ..Busy::default() };
                change(tally);
            })
        };
        let unknown = silent(|_| {});
        assert_eq!((unknown.cpu_share, unknown.busy_share), (None, None));
        assert!(unknown.kept_up && unknown.unknown.unwrap().contains("lateness alone"));
        let late = silent(|tally| (0..20).for_each(|_| tally.late.record(400_000).unwrap()));
        assert!(!late.kept_up && late.reason.unwrap().contains("late"));
        let few = silent(|tally| (tally.late, tally.pickup) = (table(), table()));
        assert!(few.unknown.unwrap().contains("nothing tells"));
        let few = judged(|tally| (tally.late, tally.pickup) = (table(), table()));
        assert!(few.kept_up && few.unknown.unwrap().contains("fewer than 500"));
    }

    #[test]
    fn one_thread_without_an_account_may_have_been_the_busiest() {
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
        // What is known of the other one is enough here.
        assert!(both(98).reason.unwrap().contains("98 %"));
        let mut all = Tally::new(1);
        let mut one = Tally::new(1);
        one.busy = Busy { on_cpu_ns: 40, elapsed_ns: 100, ..Busy::default() };
        all.merge(one);
        assert_eq!(generator(1, &all, &all.commands[0]).cpu_share, Some(0.4));
    }
}
