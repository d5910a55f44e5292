//! Derives thread states, and the evidence for them, from meter totals.
//!
//! A [`Meter`](crate::Meter) records totals by call and no spans, so this is level 0: its cost does
//! not depend on the length of a run, and it measures every run of a study. The states of a thread
//! add up exactly to its elapsed time.

use crate::collect::calibrate_own;
use crate::meter::{Reads, ThreadReport};
use crate::split::stated_ns;
use ioloom_model::evidence::{Checks, SourceReport};
use ioloom_model::{CallKind, CallStats, Evidence, Level, State, StateTable};
use ioloom_stats::Histogram;
use ioloom_trace::classify::Sums;
use std::collections::BTreeMap;

/// Share of the elapsed time in percent above which a note reports the measurement cost.
const OVERHEAD_WARN_PCT: f64 = 1.0;

/// Returns the state table of one thread. `function_waits` is the state of a wait within the user's
/// function, if the caller knows it.
pub fn states(report: &ThreadReport, function_waits: Option<State>) -> StateTable {
    let time = &report.time;
    let sums = Sums {
        on_cpu_ns: time.on_cpu_ns,
        ready_ns: time.ready_ns,
        io_ns: time.io_ns.saturating_sub(report.async_io_ns),
        async_io_ns: report.async_io_ns,
        sync_ns: time.sync_ns,
        input_ns: time.input_ns,
        function_ns: time.compute_blocked_ns,
        unknown_ns: time.unknown_ns,
    };
    sums.table(function_waits)
}

/// Returns the evidence for the tables in `reports`. Measures the cost of reading each clock, which
/// takes a millisecond.
pub fn evidence(reports: &[ThreadReport]) -> Evidence {
    let costs = calibrate_own();
    let mut reads = Reads::default();
    for report in reports {
        reads.laps += report.reads.laps;
        reads.clock += report.reads.clock;
        reads.delay += report.reads.delay;
    }
    let source = |name: &str, records, ns| SourceReport {
        name: name.to_owned(),
        records,
        lost: 0,
        ns_per_event: ns,
        privilege: "none".to_owned(),
    };
    let sources = vec![
        source("calls", reads.laps, costs.span_ns),
        source("thread-clock", reads.clock, costs.clock_ns),
        source("schedstat", reads.delay, costs.delay_ns),
    ];
    let elapsed_ns: u64 = reports.iter().map(|r| r.time.elapsed_ns).sum();
    let stated_ns: u64 = reports.iter().map(|r| stated_ns(&r.time)).sum();
    let of_elapsed = |ns: f64| 100.0 * ns / elapsed_ns.max(1) as f64;
    let cost_ns: f64 =
        sources.iter().filter_map(|s| Some(s.records as f64 * s.ns_per_event?)).sum();
    let overhead_pct = of_elapsed(cost_ns);
    let mut notes = Vec::new();
    if overhead_pct > OVERHEAD_WARN_PCT {
        notes.push(format!("reading the clocks took about {overhead_pct:.1} % of the run"));
    }
    let tiling_pct = if elapsed_ns == 0 { 100.0 } else { of_elapsed(stated_ns as f64) };
    let checks = Checks { tiling_pct, ..Checks::default() };
    Evidence { level: Level::Account, sources, checks, overhead_pct, notes, ..Evidence::default() }
}

/// Merges the tables of all threads into one row per kind of call.
pub fn merge_calls(reports: &[ThreadReport]) -> BTreeMap<CallKind, CallStats> {
    let mut merged: BTreeMap<CallKind, (u64, u64, Histogram)> = BTreeMap::new();
    for report in reports {
        for (kind, count, table) in &report.tables {
            let all = merged.entry(*kind).or_default();
            all.0 += count;
            all.1 += report.time.calls_ns.get(kind).copied().unwrap_or(0);
            all.2.merge(table);
        }
    }
    merged
        .into_iter()
        .map(|(kind, (count, total_ns, table))| {
            let stats = CallStats {
                count,
                timed: table.count(),
                total_ns,
                min_ns: table.min_ns(),
                p50_ns: table.quantile_ns(0.5),
                p90_ns: table.quantile_ns(0.9),
                p99_ns: table.quantile_ns(0.99),
                max_ns: table.max_ns(),
            };
            (kind, stats)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::{Measured, ThreadTime};

    #[test]
    fn tables_cover_the_elapsed_time_and_name_merged_states() {
        let time = ThreadTime {
            elapsed_ns: 100,
            on_cpu_ns: 40,
            ready_ns: Some(10),
            io_ns: 30,
            sync_ns: 5,
            compute_blocked_ns: 12,
            unknown_ns: 3,
            ..ThreadTime::default()
        };
        let report = ThreadReport { time, async_io_ns: 20, ..ThreadReport::default() };
        for (waits, sleep, unknown) in [(None, None, 15), (Some(State::Sleep), Some(12), 3)] {
            let table = states(&report, waits);
            let sum: u64 = table.values().filter_map(|t| t.ns).sum();
            assert_eq!(sum, 100);
            let ns = |state| table[&state].ns;
            assert_eq!((ns(State::Io), ns(State::AsyncIo)), (Some(10), Some(20)));
            assert_eq!((ns(State::Sleep), ns(State::Unknown)), (sleep, Some(unknown)));
            for (state, time) in table.iter().filter(|(_, t)| t.ns.is_none()) {
                assert!(time.why.is_some(), "{state:?}");
                let held = |t: &ioloom_model::StateTime| t.includes.contains(state);
                assert!(table.values().any(held), "{state:?} is missing");
            }
        }
        let none = ThreadTime { ready_ns: None, io_ns: 40, ..report.time.clone() };
        let table = states(&ThreadReport { time: none, ..ThreadReport::default() }, None);
        assert_eq!(table[&State::Ready].ns, None);
        assert!(table[&State::Io].includes.contains(&State::Preempted));
        let evidence = evidence(&[report]);
        assert!((evidence.checks.tiling_pct - 100.0).abs() < 1e-9);
        assert!(evidence.sources.iter().all(|s| s.ns_per_event.is_some_and(|ns| ns > 0.0)));
    }

    #[test]
    fn calls_that_were_only_counted_have_a_count_and_no_times() {
        let tables = vec![(CallKind::Close, 3, Histogram::default())];
        let report = ThreadReport { tables, ..ThreadReport::default() };
        let measured = Measured { calls: merge_calls(&[report]), ..Measured::default() };
        assert_eq!(measured.metric("calls.close.count"), Some(3.0));
        assert_eq!(measured.metric("calls.close.p50_ns"), None);
    }
}
