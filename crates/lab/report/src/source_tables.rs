//! Recreates the two tables of the source studies from this machine's records: medium × threads
//! (source 001), and roles with the end of calls, the waiting share and the elapsed time (source
//! 000).

use crate::estimate::Estimate;
use crate::group::{ArmRuns, Group};
use crate::input::Input;
use crate::quantity::{Unit, bracketed, percent};
use crate::table::{Cell, Table};
use ioloom_model::Schedule;

/// Returns tables with a row per thread count and a column per medium, as in source 001: one table
/// for each experiment, file set, condition and compute with a plain thread ladder. Cells are
/// medians with ends and count.
pub fn medium_by_threads(groups: &[Group<'_>]) -> Vec<Table> {
    let mut out: Vec<Table> = Vec::new();
    let mut done: Vec<(&str, &str, String)> = Vec::new();
    for g in groups {
        let rest = format!("{} {}", g.condition, g.compute);
        let key = (g.experiment.name.as_str(), g.set.as_str(), rest);
        if done.contains(&key) {
            continue;
        }
        let media: Vec<&Group<'_>> = groups
            .iter()
            .filter(|o| {
                o.experiment.name == g.experiment.name
                    && o.set == g.set
                    && o.condition == g.condition
                    && o.compute == g.compute
            })
            .collect();
        done.push(key);
        let mut methods: Vec<_> = media
            .iter()
            .flat_map(|m| &m.arms)
            .filter(|a| threads(a).is_some())
            .map(|a| a.plan.method())
            .collect();
        methods.sort_unstable();
        methods.dedup();
        for method in methods {
            let cells = |m: &Group<'_>, n: u32| {
                m.arms
                    .iter()
                    .find(|a| a.plan.method() == method && threads(a) == Some(n))
                    .map(|a| cell(a, g.unit()))
                    .unwrap_or_default()
            };
            let mut counts: Vec<u32> = media
                .iter()
                .flat_map(|m| &m.arms)
                .filter(|a| a.plan.method() == method)
                .filter_map(threads)
                .collect();
            counts.sort_unstable();
            counts.dedup();
            if counts.len() < 2 {
                continue;
            }
            let columns = std::iter::once("threads".to_owned())
                .chain(media.iter().map(|m| m.medium.to_owned()));
            let row = |n: u32| -> Vec<Cell> {
                let cells = media.iter().map(|m| cells(m, n));
                std::iter::once((n.to_string(), None)).chain(cells).collect()
            };
            out.push(Table::of_cells(
                format!("{}: {method} on {}", g.experiment.name, g.work_place()),
                columns.collect(),
                counts.into_iter().map(row).collect(),
            ));
        }
    }
    out
}

fn threads(arm: &ArmRuns<'_>) -> Option<u32> {
    arm.plan.plain_threads()
}

fn cell(arm: &ArmRuns<'_>, unit: Unit) -> Cell {
    let why = || arm.unusable.first().map_or(String::new(), |(why, _, _)| why.name().to_owned());
    arm.estimate.as_ref().map_or_else(|| (why(), None), |e| (with_ends(unit, e), Some(e.median)))
}

fn with_ends(unit: Unit, e: &Estimate) -> String {
    let ends = e.ends.map_or_else(|| "no interval".to_owned(), |ends| unit.format_ends(ends));
    format!("{} {ends} n={}", unit.format(e.median), e.values.len())
}

/// Returns one table per comparison with role arms, as in source 000: readers, hybrids, compute
/// threads, the end of the read calls, the share of time waiting for input, and the elapsed time.
pub fn roles(groups: &[Group<'_>], input: &Input) -> Vec<Table> {
    let mut out = Vec::new();
    for g in groups {
        let mut arms: Vec<_> = g
            .arms
            .iter()
            .filter(|a| roles_of(a).is_some())
            .filter(|a| a.metric("elapsed_ns", input.seed).is_some())
            .collect();
        arms.sort_by_key(|a| roles_of(a));
        if arms.is_empty() {
            continue;
        }
        let rows = arms.into_iter().map(|a| role_row(a, input.seed)).collect();
        let columns =
            ["readers", "hybrids", "compute threads", "calls end", "waiting", "elapsed", "n"];
        out.push(Table::of_cells(
            format!("{}: roles on {}", g.experiment.name, g.place()),
            columns.map(str::to_owned).to_vec(),
            rows,
        ));
    }
    out
}

/// Returns the numbers of readers, hybrids and compute threads of a plan with roles.
fn roles_of(arm: &ArmRuns<'_>) -> Option<(u32, u32, u32)> {
    match arm.plan.files()?.schedule {
        Schedule::Roles { readers, hybrids, computers, .. } => Some((readers, hybrids, computers)),
        _ => None,
    }
}

fn role_row(arm: &ArmRuns<'_>, seed: u64) -> Vec<Cell> {
    let Some((readers, hybrids, computers)) = roles_of(arm) else {
        return Vec::new();
    };
    let show = |metric: &str, format: &dyn Fn(f64) -> String| {
        let Some(e) = arm.metric(metric, seed) else { return ("not measured".to_owned(), None) };
        let ends = match e.ends {
            Some(ends) => bracketed(ends, format),
            None => "no interval".to_owned(),
        };
        (format!("{} {ends}", format(e.median)), Some(e.median))
    };
    let time = |v: f64| Unit::Time.format(v);
    let plain = |text: String| (text, None);
    vec![
        plain(readers.to_string()),
        plain(hybrids.to_string()),
        plain(computers.to_string()),
        show("calls_end_ns", &time),
        show("share.io", &percent),
        show("elapsed_ns", &time),
        plain(arm.runs.len().to_string()),
    ]
}
