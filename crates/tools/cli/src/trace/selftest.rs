//! `ioloom trace selftest`: compares each level with the known activity of threads.

use crate::exit::{Ended, Exit, Failure};
use crate::{out, stderr};
use clap::Args;
use ioloom_model::Level;
use ioloom_model::units::format_counted;
use ioloom_observe::collect::selftest::{LevelReport, SelftestOptions, selftest};
use serde::Serialize;
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Version of the `--json` document.
const SCHEMA: u32 = 1;

#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    /// Runs per level
    ///
    /// More runs give more reliable medians.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    /// Test only this level
    ///
    /// Default: all available levels.
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=2))]
    evidence: Option<u8>,

    /// Length of a run, milliseconds
    ///
    /// Longer runs record more events.
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(10..=60_000))]
    length: u64,

    /// Tasks per cost measurement
    ///
    /// 0 skips the cost measurement.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    tasks: u64,

    /// Directory for 64 MiB of files
    ///
    /// It must be on a device; reads from memory are never cold.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Print one JSON document
    ///
    /// The format is described in docs/reference/json.md.
    #[arg(long)]
    json: bool,
}

/// The document of `trace selftest --json`.
#[derive(Serialize)]
struct Document {
    schema: u32,
    command: &'static str,
    run_ms: u64,
    tasks: u64,
    levels: Vec<LevelReport>,
}

pub(crate) fn run(args: &SelftestArgs) -> Ended {
    let all = [Level::Account, Level::Switch, Level::Kernel];
    let wanted = |level: &Level| args.evidence.is_none_or(|n| n == level.number());
    let plan = SelftestOptions {
        levels: all.into_iter().filter(wanted).collect(),
        runs: args.runs,
        run_ms: args.length,
        tasks: args.tasks,
        dir: args.dir.clone(),
    };
    let shown = std::io::stderr().is_terminal();
    let tell = |text: &str| {
        if shown {
            stderr::line(text);
        }
    };
    let reports = selftest(&plan, &tell).map_err(Failure::failed)?;
    let refused = reports.iter().all(|report| report.refused.is_some());
    let printed = if args.json {
        let (run_ms, tasks) = (args.length, args.tasks);
        let command = "trace selftest";
        out::print_json(&Document { schema: SCHEMA, command, run_ms, tasks, levels: reports })
    } else {
        out::print(&text(&reports, args, out::columns()))
    };
    out::then(printed, Ok(if refused { Exit::Refused } else { Exit::Ok }))
}

fn text(reports: &[LevelReport], args: &SelftestArgs, width: usize) -> String {
    let mut all = String::new();
    let lead = "Shares of worker time in per cent, medians over all runs. `known` was recorded by the \
                workers, `level` is reported by the evidence level, and `off by` is the difference in \
                percentage points.";
    all.push_str(&out::wrap(lead, width, 0));
    for report in reports {
        let level = report.level;
        if let Some(why) = &report.refused {
            all.push_str(&out::wrap(&format!("\nLevel {level}: skipped: {why}"), width, 2));
            continue;
        }
        let runs = format_counted(report.runs.into(), "run", "runs");
        let _ = writeln!(all, "\nLevel {level}, {runs} of {} ms", args.length);
        all.push_str("state              known    level   off by  maximum\n");
        for row in &report.states {
            if row.truth_pct < 0.005 && row.level_pct.is_none_or(|pct| pct < 0.005) {
                continue;
            }
            let number = |n: Option<f64>| n.map_or("-".to_owned(), |n| format!("{n:.2}"));
            let _ = writeln!(
                all,
                "{:<15} {:>8.2} {:>8} {:>8} {:>8}",
                row.state,
                row.truth_pct,
                number(row.level_pct),
                number(row.difference_pp),
                number(row.difference_pp_max),
            );
        }
        all.push_str(&out::wrap(&costs(report), width, 2));
    }
    all
}

fn costs(report: &LevelReport) -> String {
    let (low, high) = report.tiling_pct;
    let mut text =
        format!("The shares sum to {low:.3} to {high:.3} %; {} records lost.", report.lost);
    if let Some(ns) = report.switch_ns {
        let _ = write!(text, " One context switch out and back in costs {:.2} us.", ns / 1000.0);
    }
    if let Some(pct) = report.task_overhead_pct {
        let pairs = report.task_pairs;
        let _ = write!(text, " A task of 30 us costs {pct:+.2} % ({pairs} pairs).");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_observe::collect::selftest::Compared;

    #[test]
    fn the_table_fits_a_terminal_and_shows_what_is_not_measured() {
        let row = |state: &str, level| Compared {
            state: state.to_owned(),
            truth_pct: 12.5,
            level_pct: level,
            difference_pp: level.map(|l: f64| (l - 12.5).abs()),
            difference_pp_max: level.map(|_| 1.0),
        };
        let reports = [
            LevelReport {
                level: 1,
                refused: None,
                runs: 3,
                states: vec![row("ready+preempted", Some(13.0)), row("lock", None)],
                tiling_pct: (100.0, 100.0),
                lost: 0,
                switch_ns: Some(1900.0),
                task_overhead_pct: Some(0.4),
                task_pairs: 3,
            },
            LevelReport {
                level: 2,
                refused: Some("not available here; run as root".to_owned()),
                runs: 0,
                states: Vec::new(),
                tiling_pct: (100.0, 100.0),
                lost: 0,
                switch_ns: None,
                task_overhead_pct: None,
                task_pairs: 0,
            },
        ];
        let args = SelftestArgs {
            runs: 3,
            evidence: None,
            length: 1000,
            tasks: 1,
            dir: ".".into(),
            json: false,
        };
        let text = text(&reports, &args, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("ready+preempted    12.50    13.00     0.50     1.00"), "{text}");
        assert!(text.contains("lock               12.50        -        -        -"), "{text}");
        assert!(text.contains("1.90 us") && text.contains("skipped"), "{text}");
    }
}
