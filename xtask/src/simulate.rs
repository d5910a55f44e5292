//! Controllers on the simulated machine of `predict`: their loss against the best fixed window.
//!
//! All times are simulated, so the figures depend on neither this computer nor its load, and the
//! same commit gives the same CSV to the byte.

use anyhow::{Context, bail};
use ioloom_control::{Auto, AutoLimits};
use ioloom_predict::machine::rivals::{NAMES, WINDOW_MAX, create};
use ioloom_predict::machine::score::{Summary, Sweep, WINDOWS, outcome};
use ioloom_predict::machine::{Scenario, grid};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One controller in one scenario.
struct Run {
    regret: f64,
    ns: u64,
    in_flight: f64,
    window_end: u32,
}

struct Row {
    name: String,
    requests: usize,
    sweep: Sweep,
    runs: Vec<Run>,
}

/// Runs `simulate [design|test|build|traps|seed=N] [--csv FILE] [--auto]`.
pub(crate) fn run(words: &[&str]) -> anyhow::Result<bool> {
    let (words, names) = match words {
        [words @ .., "--auto"] => (words, &NAMES[..1]),
        words => (words, &NAMES[..]),
    };
    let (set, csv) = match words {
        [] => ("design", None),
        ["--csv", file] => ("design", Some(PathBuf::from(file))),
        [set] => (*set, None),
        [set, "--csv", file] => (*set, Some(PathBuf::from(file))),
        _ => bail!("usage: simulate [design|test|build|traps|seed=N] [--csv FILE] [--auto]"),
    };
    let text = match set {
        "design" => scores(&grid::design(), names)?,
        "test" => scores(&grid::test(), names)?,
        "build" => scores(&grid::build(), names)?,
        "traps" => timelines(&grid::traps()),
        _ => match set.strip_prefix("seed=").and_then(|seed| seed.parse().ok()) {
            Some(seed) => scores(&grid::of_seed(seed), names)?,
            None => {
                bail!("'{set}' is not a set of scenarios; use design, test, build, traps or seed=N")
            }
        },
    };
    if let Some(file) = csv {
        std::fs::write(&file, text)
            .with_context(|| format!("cannot write '{}'", file.display()))?;
    }
    Ok(true)
}

/// Runs all controllers in all scenarios, prints the table and returns the rows as CSV.
fn scores(scenarios: &[Scenario], names: &[&str]) -> anyhow::Result<String> {
    let rows = rows(scenarios, names);
    println!(
        "{} scenarios, loss against the best of {} fixed windows, %",
        rows.len(),
        WINDOWS.len()
    );
    for (least_s, title) in [(0.0, "all jobs"), (2.0, "jobs over 2 s")] {
        let long: Vec<&Row> =
            rows.iter().filter(|row| row.sweep.best_ns() as f64 > least_s * 1e9).collect();
        println!("\n{title} ({})", long.len());
        println!(
            "{:14} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8} {:>9}",
            "controller", "mean", "median", "p90", "p95", "max", "≤ 5 %", "in flight"
        );
        for (i, name) in names.iter().enumerate() {
            let losses: Vec<f64> = long.iter().map(|row| row.runs[i].regret).collect();
            let Some(s) = Summary::new(&losses) else { continue };
            let mut flying: Vec<f64> = long.iter().map(|row| row.runs[i].in_flight).collect();
            flying.sort_by(f64::total_cmp);
            println!(
                "{name:14} {:7.2} {:7.2} {:7.2} {:7.2} {:8.1} {:8.1} {:9.1}",
                100.0 * s.mean,
                100.0 * s.median,
                100.0 * s.p90,
                100.0 * s.p95,
                100.0 * s.max,
                100.0 * s.within,
                flying[flying.len() / 2],
            );
        }
    }
    println!("\nin flight: the median over the scenarios of the mean number of requests in flight");
    csv(&rows, names)
}

fn rows(scenarios: &[Scenario], names: &[&str]) -> Vec<Row> {
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(i) else { return };
                    let row = row(scenario, names);
                    rows.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((i, row));
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    rows.sort_by_key(|(i, _)| *i);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn row(scenario: &Scenario, names: &[&str]) -> Row {
    let prepared = scenario.prepare();
    let sweep = Sweep::new(&prepared);
    let (cores, files) = (scenario.machine.cores, u64::from(scenario.job.files));
    let runs = names
        .iter()
        .filter_map(|name| create(name, cores, files))
        .map(|tuner| {
            let outcome = outcome(&prepared, tuner);
            Run {
                regret: sweep.regret(&outcome),
                ns: outcome.ns,
                in_flight: outcome.in_flight,
                window_end: outcome.timeline.last().map_or(0, |moment| moment.window),
            }
        })
        .collect();
    Row { name: scenario.name.clone(), requests: prepared.requests(), sweep, runs }
}

/// Returns one line per scenario and controller, the sweep included.
fn csv(rows: &[Row], names: &[&str]) -> anyhow::Result<String> {
    let mut text =
        "scenario,requests,controller,elapsed_ns,loss,in_flight_mean,window_end\n".to_owned();
    for row in rows {
        let start = format!("\"{}\",{}", row.name, row.requests);
        let best = row.sweep.best_ns().max(1) as f64;
        for (window, ns) in WINDOWS.iter().zip(&row.sweep.ns) {
            let loss = *ns as f64 / best - 1.0;
            writeln!(text, "{start},sweep {window},{ns},{loss:.4},,{window}")?;
        }
        for (name, run) in names.iter().zip(&row.runs) {
            let Run { regret, ns, in_flight, window_end } = run;
            writeln!(text, "{start},{name},{ns},{regret:.4},{in_flight:.1},{window_end}")?;
        }
    }
    Ok(text)
}

/// Width of the picture of a timeline in characters.
const COLUMNS: usize = 72;

/// Prints decisions and a picture of each run, and returns all batches as CSV.
fn timelines(scenarios: &[Scenario]) -> String {
    let mut text = "scenario,at_ns,window,in_flight,requests,bytes,idle\n".to_owned();
    for scenario in scenarios {
        let mut auto = Auto::new(AutoLimits {
            window_max: WINDOW_MAX,
            permits: scenario.machine.cores,
            remaining: Some(u64::from(scenario.job.files)),
            ..AutoLimits::default()
        });
        let outcome = scenario.prepare().run(&mut auto, WINDOW_MAX);
        let changed = outcome.changed_ns.unwrap_or(0) as f64 / 1e9;
        println!("\n{}: {:.2} s, half at {changed:.2} s", scenario.name, outcome.ns as f64 / 1e9);
        for decision in auto.log().decisions() {
            println!("  {decision}");
        }
        let parts: Vec<_> =
            outcome.timeline.chunks(outcome.timeline.len().div_ceil(COLUMNS).max(1)).collect();
        let line = |title: &str, of: &dyn Fn(usize) -> f64| {
            let most = (0..parts.len()).map(of).fold(f64::MIN_POSITIVE, f64::max);
            let bar: String = (0..parts.len())
                .map(|i| ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][(of(i) / most * 7.0) as usize])
                .collect();
            println!("  {title:12} {bar} most: {most:.0}");
        };
        let mean = |i: usize, of: &dyn Fn(usize) -> f64| {
            (0..parts[i].len()).map(of).sum::<f64>() / parts[i].len() as f64
        };
        line("window, log2", &|i| mean(i, &|k| f64::from(parts[i][k].window).log2()));
        line("requests/s", &|i| mean(i, &|k| parts[i][k].requests as f64 * 200.0));
        line("idle, %", &|i| mean(i, &|k| parts[i][k].idle * 100.0));
        for m in &outcome.timeline {
            text += &format!(
                "\"{}\",{},{},{},{},{},{:.3}\n",
                scenario.name, m.at_ns, m.window, m.in_flight, m.requests, m.bytes, m.idle
            );
        }
    }
    text
}
