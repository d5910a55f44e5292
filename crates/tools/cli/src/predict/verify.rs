//! `ioloom predict --verify`: the errors of all laws, from data and code alone.

use super::ladders::{self, Ladder};
use super::show::WIDTH;
use crate::directories::StoreArg;
use crate::exit::{Ended, Exit, Failure};
use crate::out;
use ioloom_predict::machine::grid;
use ioloom_predict::machine::policies::statement;
use ioloom_predict::verify::simulated::{self, Scale};
use ioloom_predict::verify::{self, Group, Section};
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Version of the `--json` document.
const SCHEMA: u32 = 1;
/// Columns of the names in the tables, with their indentation.
const NAME_WIDTH: usize = 57;
/// Files of the comparison of a sample with the whole job.
const SCALE_FILES: u32 = 1_000_000;

#[derive(Serialize)]
struct Document {
    schema: u32,
    command: &'static str,
    sections: Vec<Section>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<Simulated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<Vec<Ladder>>,
}

#[derive(Serialize)]
struct Simulated {
    scale: Vec<Scale>,
    policies: Vec<Score>,
}

/// The loss of one controller against the best fixed window.
#[derive(Serialize)]
struct Score {
    name: &'static str,
    statement: &'static str,
    scenarios: usize,
    mean: f64,
    median: f64,
    p95: f64,
    max: f64,
    within_5_percent: f64,
}

pub(super) fn run(simulate: bool, runs: Option<&str>, store: &StoreArg, json: bool) -> Ended {
    let runs = runs.map(|word| ladders::all(store, word)).transpose()?;
    let sections = verify::published().map_err(Failure::failed)?;
    let simulated = simulate.then(simulations);
    if json {
        let document = Document { schema: SCHEMA, command: "predict", sections, simulated, runs };
        out::print_json(&document)?;
        return Ok(Exit::Ok);
    }
    let mut all = String::new();
    for section in &sections {
        all.push_str(&text(section));
        all.push('\n');
    }
    let none =
        "Errors are relative; a prediction within the rounding of a published number has none.";
    all.push_str(&out::wrap(none, WIDTH, 0));
    if let Some(runs) = runs {
        all.push('\n');
        all.push_str(&ladders::text(&runs));
    }
    if let Some(simulated) = simulated {
        all.push('\n');
        all.push_str(&simulated_text(&simulated));
    }
    out::print(&all)?;
    Ok(Exit::Ok)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Formats whether a goal is reached; nothing without one.
fn goal_line(what: &str, goal: Option<f64>, reached: Option<bool>) -> String {
    let Some(goal) = goal else { return String::new() };
    let reached = if reached == Some(true) { "reached" } else { "MISSED" };
    format!("    {what}: at most {}: {reached}\n", percent(goal))
}

/// Formats a row of a table. A long name takes several lines.
fn table_row(name: &str, cells: &str, mean: &str, worst: &str) -> String {
    let name = out::wrap(&format!("  {name}"), NAME_WIDTH, 4);
    let mut all = name.trim_end().to_owned();
    let used = all.lines().last().map_or(0, |line| line.chars().count());
    let pad = NAME_WIDTH.saturating_sub(used);
    let _ = write!(all, "{:pad$} {cells:>5} {mean:>7} {worst:>8}", "");
    all.trim_end().to_owned() + "\n"
}

fn text(section: &Section) -> String {
    let mut all = format!("{}\n", section.title);
    all.push_str(&out::wrap(&format!("  {}", section.law), WIDTH, 2));
    if section.parameters.is_empty() {
        all.push_str("\n  no parameters\n");
    } else {
        let _ = writeln!(all, "\n  {} fitted parameters", section.parameters.len());
    }
    for one in &section.parameters {
        let line = format!("    {:<48} {:>10.4} {}", one.name, one.value, one.unit);
        let _ = writeln!(all, "{}", line.trim_end());
    }
    all.push('\n');
    all.push_str(&table_row("", "cells", "mean", "worst"));
    for group in &section.groups {
        all.push_str(&group_lines(group));
    }
    for figure in &section.figures {
        all.push_str(&table_row(&figure.name, "", &percent(figure.value), ""));
        all.push_str(&goal_line("goal", figure.goal, figure.reached()));
    }
    for note in &section.notes {
        all.push_str(&out::wrap(&format!("  note: {note}"), WIDTH, 4));
    }
    all
}

fn group_lines(group: &Group) -> String {
    let worst = group.worst().map_or(0.0, |row| row.error);
    let row = table_row(
        &format!("{}: {}", group.usage.name(), group.name),
        &group.rows.len().to_string(),
        &percent(group.mean()),
        &format!("{:+.2} %", 100.0 * worst),
    );
    row + &goal_line("goal for the mean", group.goal, group.reached())
}

fn simulations() -> Simulated {
    let scale =
        simulated::scales().into_iter().map(|case| simulated::scale(case, SCALE_FILES)).collect();
    let scenarios = grid::test();
    let by_scenario = parallel(scenarios.len(), |i| simulated::losses(&scenarios[i]));
    let score = |(name, s): (&'static str, ioloom_predict::machine::score::Summary)| Score {
        name,
        statement: statement(name),
        scenarios: by_scenario.len(),
        mean: s.mean,
        median: s.median,
        p95: s.p95,
        max: s.max,
        within_5_percent: s.within,
    };
    Simulated {
        scale,
        policies: simulated::summaries(&by_scenario).into_iter().map(score).collect(),
    }
}

/// Runs `count` independent jobs on all cores and returns their results in order.
fn parallel<T: Send>(count: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    let result = job(i);
                    results.lock().unwrap_or_else(|e| e.into_inner()).push((i, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}

fn simulated_text(simulated: &Simulated) -> String {
    let mut all = format!(
        "Simulated: {SCALE_FILES} files on 64 disks, all of them and a sample of {}\n",
        ioloom_predict::machine::sample::SAMPLE
    );
    let _ = writeln!(all, "  {:<22} {:>10} {:>10} {:>9}", "", "all, s", "sample, s", "error");
    for one in &simulated.scale {
        let error = format!("{:+.2} %", 100.0 * one.error());
        let _ = writeln!(
            all,
            "  {:<22} {:>10.3} {:>10.3} {error:>9}",
            one.name, one.whole_s, one.sampled_s
        );
    }
    let count = simulated.policies.first().map_or(0, |score| score.scenarios);
    let title = format!(
        "Simulated: loss against the best of 11 fixed windows in {count} held-out scenarios, %"
    );
    all.push('\n');
    all.push_str(&out::wrap(&title, WIDTH, 0));
    let head = ["mean", "median", "p95", "max", "≤ 5 %"];
    let _ = writeln!(
        all,
        "  {:<6} {:>7} {:>7} {:>7} {:>8} {:>7}",
        "", head[0], head[1], head[2], head[3], head[4]
    );
    for s in &simulated.policies {
        let p = |share: f64| format!("{:.1}", 100.0 * share);
        let line = format!(
            "  {:<6} {:>7} {:>7} {:>7} {:>8} {:>7}",
            s.name,
            p(s.mean),
            p(s.median),
            p(s.p95),
            p(s.max),
            p(s.within_5_percent)
        );
        let _ = writeln!(all, "{line}");
    }
    for s in simulated.policies.iter().filter(|score| !score.statement.is_empty()) {
        all.push_str(&out::wrap(&format!("  {}: {}", s.name, s.statement), WIDTH, 4));
    }
    all.push_str("  S1 and S6 count with their threads only: the machine does not map files.\n");
    all
}
