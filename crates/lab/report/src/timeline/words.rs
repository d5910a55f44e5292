//! Describes the evidence and shares of a trace in words, for the page and the terminal.

use super::share_text;
use crate::quantity::count;
use ioloom_model::units::{format_counted, format_ns};
use ioloom_model::{State, StateTable, StateTime};
use ioloom_trace::{ROLE_TOOL, Trace};

/// Returns one line of evidence: level, sources, losses, cost.
pub(super) fn evidence_line(trace: &Trace) -> String {
    let e = &trace.evidence;
    let records = e.sources.iter().map(|s| s.records).fold(0, u64::saturating_add);
    let threads = trace.threads.iter().filter(|thread| thread.role != ROLE_TOOL).count();
    format!(
        "{}, {} elapsed; evidence level {} ({}), {} records from {}, {} lost; tracing \
        overhead \
         about {:.1} % (estimated)",
        format_counted(threads as u64, "thread", "threads"),
        format_ns(trace.elapsed_ns as f64),
        e.level.number(),
        e.level.name(),
        count(records),
        match e.sources.len() {
            1 => "1 source".to_owned(),
            n => format!("{n} sources"),
        },
        count(lost(trace)),
        e.overhead_pct,
    )
}

/// Counts the roles that are not shown, given the number of threads of each; `None` if there are none.
pub(super) fn more_roles(threads: impl Iterator<Item = usize>) -> Option<String> {
    let (roles, threads) = threads.fold((0, 0), |(roles, sum), of| (roles + 1, sum + of as u64));
    let roles_text = format_counted(roles, "more role", "more roles");
    let threads_text = format_counted(threads, "thread", "threads");
    (roles > 0).then(|| format!("and {roles_text} with {threads_text}"))
}

/// Returns the number of records reported as lost by the sources.
pub(super) fn lost(trace: &Trace) -> u64 {
    trace.evidence.sources.iter().map(|s| s.lost).fold(0, u64::saturating_add)
}

/// Returns the losses by source; `None` if nothing was lost.
pub(super) fn loss_line(trace: &Trace) -> Option<String> {
    let parts: Vec<String> = trace
        .evidence
        .sources
        .iter()
        .filter(|s| s.lost > 0)
        .map(|s| {
            let all = s.records.saturating_add(s.lost);
            let share = s.lost as f64 / all as f64 * 100.0;
            format!("{} lost {} of {} records ({share:.1} %)", s.name, count(s.lost), count(all))
        })
        .collect();
    (!parts.is_empty())
        .then(|| format!("{}. Lanes and shares do not include these records.", parts.join("; ")))
}

/// Returns the self-checks with their results.
pub(super) fn checks(trace: &Trace) -> Vec<(&'static str, String)> {
    let c = &trace.evidence.checks;
    let none = || "not measured at this level".to_owned();
    let points = |v: Option<f64>| v.map_or_else(none, |v| format!("{v:.1} points"));
    vec![
        ("sum of all states / elapsed time", format!("{:.2} %", c.tiling_pct)),
        ("on-cpu by events - by thread clock", points(c.on_cpu_vs_clock_pp)),
        ("ready and preempted - run-queue delay", points(c.ready_vs_run_delay_pp)),
        ("switches without a matching successor", c.chain_breaks.map_or_else(none, count)),
        (
            "clock probe: kernel events between the surrounding readings",
            match (c.clock_inside, c.clock_total) {
                (Some(inside), Some(total)) => format!("{} of {}", count(inside), count(total)),
                _ => none(),
            },
        ),
    ]
}

/// Returns the share of a state in the whole run, or the reason why there is none.
pub(super) fn share_of(table: &StateTable, state: State, total_ns: u64) -> String {
    let none = StateTime::default();
    let time = table.get(&state).unwrap_or(&none);
    match time.ns {
        Some(ns) if total_ns > 0 => {
            let tenths =
                (u128::from(ns) * 2000 + u128::from(total_ns)) / (2 * u128::from(total_ns));
            let mut text = share_text(u64::try_from(tenths).unwrap_or(1000));
            if !time.includes.is_empty() {
                let names: Vec<_> = time.includes.iter().map(|s| s.name()).collect();
                text.push_str(&format!(" (includes {})", names.join(", ")));
            }
            text
        }
        Some(_) => "no time".to_owned(),
        None => {
            format!("not measured: {}", time.why.as_deref().unwrap_or("no source distinguishes it"))
        }
    }
}

/// Returns the nanoseconds of all measured states.
pub(super) fn total_of(table: &StateTable) -> u64 {
    table.values().filter_map(|t| t.ns).fold(0, u64::saturating_add)
}
