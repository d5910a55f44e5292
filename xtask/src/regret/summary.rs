//! The table of all cells, from the raw data alone.

use super::arms::Plan;
use super::cell::Cell;
use super::raw::{file_of, read};
use ioloom_stats::median;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Final runs of a plan in one cell.
struct Times {
    plan: String,
    /// Nanoseconds by block; `None` if all runs of a block failed.
    ns: BTreeMap<u64, Option<f64>>,
    runs: usize,
    failed: usize,
}

impl Times {
    fn median_ns(&self) -> Option<f64> {
        let ns: Vec<f64> = self.ns.values().flatten().copied().collect();
        ns.first().map(|_| median(&ns))
    }

    /// Returns true if the plan has a time in every block.
    fn is_complete(&self) -> bool {
        !self.ns.is_empty() && self.ns.values().all(Option::is_some)
    }
}

/// Prints one row per cell that has final runs. Returns the number of cells that failed.
pub(super) fn print(cells: &[&Cell], out: &Path) -> anyhow::Result<usize> {
    println!(
        "\n{:44} {:>7} {:>22} {:>11} {:>8} {:>9}  best fixed plan",
        "cell", "best, s", "auto, % (range)", "held out, %", "today, %", "p90 ratio"
    );
    let (mut regrets, mut held_out, mut missing, mut failed) = (Vec::new(), Vec::new(), 0, 0);
    for cell in cells {
        let row = match outcome(&read(&file_of(out, cell))?) {
            Outcome::Missing => {
                missing += 1;
                continue;
            }
            Outcome::Failed(reason) => {
                println!("{:44} failed: {reason}", cell.name);
                failed += 1;
                continue;
            }
            Outcome::Measured(row) => row,
        };
        println!(
            "{:44} {:7.2} {:>8.1} ({:>4.1} to {:>4.1}) {:>11} {:8.1} {:>9}  {}",
            cell.name,
            row.best_ns / 1e9,
            100.0 * row.auto.0,
            100.0 * row.auto.1,
            100.0 * row.auto.2,
            row.held_out.map_or("–".to_owned(), |regret| format!("{:.1}", 100.0 * regret)),
            100.0 * row.today,
            row.neighbour.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
            row.best
        );
        if !row.failures.is_empty() {
            println!("{:44} {}", "", row.failures);
        }
        regrets.push(row.auto.0);
        held_out.extend(row.held_out);
    }
    if let (Some(worst), count) = (regrets.iter().copied().reduce(f64::max), regrets.len()) {
        let within = regrets.iter().filter(|regret| **regret <= 0.05).count();
        println!(
            "\n{count} cells: median {:.1} %, {within} within 5 %, worst {:.1} %; {failed} failed, {missing} without final runs",
            100.0 * median(&regrets),
            100.0 * worst
        );
        print_held_out(&held_out);
    } else {
        println!("no cell has complete final runs yet; {failed} failed");
    }
    Ok(failed)
}

fn print_held_out(regrets: &[f64]) {
    let Some(worst) = regrets.iter().copied().reduce(f64::max) else { return };
    println!(
        "{} cells against the plan that the other half of the blocks prefers: median {:.1} %, {} within 5 %, worst {:.1} %",
        regrets.len(),
        100.0 * median(regrets),
        regrets.iter().filter(|regret| **regret <= 0.05).count(),
        100.0 * worst
    );
}

/// What the raw data of a cell show.
enum Outcome {
    /// No block of final runs has ended.
    Missing,
    Failed(String),
    Measured(Row),
}

fn outcome(runs: &[Value]) -> Outcome {
    let times = times(runs);
    if times.iter().all(|times| times.ns.is_empty()) {
        return Outcome::Missing;
    }
    let compared = ["auto", "default"];
    let of = |name: &str| times.iter().find(|times| times.plan == name);
    let failures: Vec<String> = compared
        .iter()
        .filter_map(|name| of(name).filter(|times| times.failed > 0))
        .map(|times| format!("{} failed {} of {}", times.plan, times.failed, times.runs))
        .collect();
    let failures = failures.join(", ");
    if let Some(name) = compared.into_iter().find(|name| !of(name).is_some_and(Times::is_complete))
    {
        let reason = if failures.is_empty() { format!("no runs of {name}") } else { failures };
        return Outcome::Failed(reason);
    }
    match Row::of(&times, runs, failures) {
        Some(row) => Outcome::Measured(row),
        None => Outcome::Failed("no fixed plan has a time in every block".to_owned()),
    }
}

struct Row {
    best: String,
    best_ns: f64,
    /// Regret of `auto`: the median of the paired ratios minus one, the smallest and the largest.
    auto: (f64, f64, f64),
    /// Regret of `auto` against the plan that was the best in the other half of the blocks, median only;
    /// `None` if there are fewer than four blocks. The best of many plans owes a part of its lead to the
    /// chance of the blocks in which it was chosen, and `auto` had no such choice.
    held_out: Option<f64>,
    /// The same for the default, median only.
    today: f64,
    /// The neighbour's 90th percentile with `auto`, divided by the least of the fixed plans that lose
    /// no more than 0.5 %.
    neighbour: Option<f64>,
    /// Failed runs of `auto` and the default that were repeated.
    failures: String,
}

impl Row {
    fn of(times: &[Times], runs: &[Value], failures: String) -> Option<Self> {
        let of = |name: &str| times.iter().find(|times| times.plan == name);
        let fixed = || {
            let is_fixed = |times: &&Times| !matches!(times.plan.as_str(), "auto" | "auto:polite");
            // A plan that failed in a block may owe its median to the others.
            times.iter().filter(is_fixed).filter(|times| times.is_complete())
        };
        let fixed_plans: Vec<&Times> = fixed().collect();
        let best = best_of(&fixed_plans, &|_| true)?;
        let ratios = |times: &Times| {
            let mut ratios = ratios(times, best.0, &|_| true);
            ratios.sort_by(f64::total_cmp);
            ratios
        };
        let auto = ratios(of("auto")?);
        let today = ratios(of("default")?);
        let enough =
            fixed().filter(|times| times.median_ns().is_some_and(|ns| ns <= 1.005 * best.1));
        let least = enough.filter_map(|times| p90(runs, &times.plan)).min_by(f64::total_cmp);
        Some(Self {
            best: best.0.plan.clone(),
            best_ns: best.1,
            auto: (median(&auto), *auto.first()?, *auto.last()?),
            held_out: held_out(of("auto")?, &fixed_plans),
            today: today.first().map(|_| median(&today))?,
            neighbour: p90(runs, "auto").zip(least).map(|(auto, least)| auto / least),
            failures,
        })
    }
}

/// Returns the plan with the least median in some blocks, and the median.
fn best_of<'a>(plans: &[&'a Times], in_block: &dyn Fn(u64) -> bool) -> Option<(&'a Times, f64)> {
    let medians = plans.iter().filter_map(|times| {
        let of_blocks = times.ns.iter().filter(|(block, _)| in_block(**block));
        let ns: Vec<f64> = of_blocks.filter_map(|(_, ns)| *ns).collect();
        ns.first().map(|_| (*times, median(&ns)))
    });
    medians.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Returns the regret of `times` in each of some blocks.
fn ratios(times: &Times, best: &Times, in_block: &dyn Fn(u64) -> bool) -> Vec<f64> {
    let pairs = times.ns.iter().zip(best.ns.values());
    let pairs = pairs.filter(|((block, _), _)| in_block(**block));
    pairs.filter_map(|((_, a), b)| Some((*a)? / (*b)? - 1.0)).collect()
}

/// Returns the median regret against the plan that the blocks of the other parity prefer.
fn held_out(times: &Times, fixed: &[&Times]) -> Option<f64> {
    if times.ns.len() < 4 {
        return None;
    }
    let mut all = Vec::new();
    for parity in [0, 1] {
        let (best, _) = best_of(fixed, &|block| block % 2 != parity)?;
        all.extend(ratios(times, best, &|block| block % 2 == parity));
    }
    all.first().map(|_| median(&all))
}

/// Returns the final runs of each plan, in the blocks in which every plan ran.
fn times(runs: &[Value]) -> Vec<Times> {
    let mut all: Vec<Times> = Vec::new();
    for run in runs.iter().filter(|run| run["phase"] == "final") {
        let (Some(plan), Some(block)) = (run["plan"].as_str(), run["block"].as_u64()) else {
            continue;
        };
        if Plan::parse(plan).is_none() {
            continue;
        }
        let at = all.iter().position(|times| times.plan == plan).unwrap_or_else(|| {
            all.push(Times { plan: plan.to_owned(), ns: BTreeMap::new(), runs: 0, failed: 0 });
            all.len() - 1
        });
        let times = &mut all[at];
        times.runs += 1;
        let ns_of = times.ns.entry(block).or_default();
        match run["wall_ns"].as_f64().filter(|_| run["failure"].is_null()) {
            Some(ns) => *ns_of = Some(ns),
            None => times.failed += 1,
        }
    }
    let blocks: Vec<u64> = all.iter().flat_map(|times| times.ns.keys().copied()).collect();
    let ended = |block: u64| all.iter().all(|times| times.ns.contains_key(&block));
    let unfinished: Vec<u64> = blocks.into_iter().filter(|block| !ended(*block)).collect();
    for times in &mut all {
        times.ns.retain(|block, _| !unfinished.contains(block));
    }
    all
}

/// Returns the median over the blocks of the neighbour's 90th percentile.
fn p90(runs: &[Value], plan: &str) -> Option<f64> {
    let runs = runs
        .iter()
        .filter(|run| run["phase"] == "final" && run["plan"] == plan && run["failure"].is_null());
    let values: Vec<f64> = runs.filter_map(|run| run["neighbour"]["p90_ns"].as_f64()).collect();
    values.first().map(|_| median(&values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(runs: &[Value]) -> Row {
        match outcome(runs) {
            Outcome::Measured(row) => row,
            Outcome::Failed(reason) => panic!("{reason}"),
            Outcome::Missing => panic!("no final runs"),
        }
    }

    #[test]
    fn regret_is_paired_by_block() {
        let run = |plan: &str, block: u32, ns: u64, p90: u64| {
            json!({"phase": "final", "block": block, "plan": plan, "wall_ns": ns, "failure": null,
                   "neighbour": {"p90_ns": p90}})
        };
        let mut runs = Vec::new();
        for (block, scale) in [(0, 100), (1, 200), (2, 300)] {
            runs.push(run("auto", block, 11 * scale, 90));
            runs.push(run("default", block, 12 * scale, 900));
            runs.push(run("read/threads:n=2", block, 10 * scale, 60));
        }
        let row = row(&runs);
        assert_eq!(row.best, "read/threads:n=2");
        assert!((row.auto.0 - 0.1).abs() < 1e-9 && (row.today - 0.2).abs() < 1e-9);
        assert_eq!(row.neighbour, Some(1.5));
    }

    #[test]
    fn a_plan_chosen_by_chance_has_no_lead_in_the_other_blocks() {
        // All plans take 100 but for one lucky block each.
        let mut runs = Vec::new();
        for block in 0..4 {
            for (plan, lucky) in [("read/threads:n=1", 0), ("read/threads:n=2", 1)] {
                let ns = if block % 2 == lucky { 80 } else { 100 };
                runs.push(final_run(plan, block, ns, Value::Null));
            }
            runs.push(final_run("auto", block, 100, Value::Null));
            runs.push(final_run("default", block, 100, Value::Null));
        }
        let found = row(&runs);
        assert!((found.auto.0 - 0.125).abs() < 1e-9, "{}", found.auto.0);
        assert!(found.held_out.unwrap().abs() < 1e-9, "{:?}", found.held_out);
        runs.retain(|run| run["block"] != 3);
        assert_eq!(row(&runs).held_out, None);
    }

    #[test]
    fn the_median_of_two_blocks_is_between_them() {
        let run = |plan: &str, block: u32, ns: u64| json!({"phase": "final", "block": block, "plan": plan, "wall_ns": ns, "failure": null});
        let mut runs = Vec::new();
        for (block, auto) in [(0, 110), (1, 130)] {
            runs.push(run("auto", block, auto));
            runs.push(run("default", block, 2 * auto));
            runs.push(run("read/threads:n=2", block, 100));
        }
        let row = row(&runs);
        assert!((row.auto.0 - 0.2).abs() < 1e-9 && (row.today - 1.4).abs() < 1e-9);
    }

    fn final_run(plan: &str, block: u32, ns: u64, failure: Value) -> Value {
        json!({"phase": "final", "block": block, "plan": plan, "wall_ns": ns, "failure": failure})
    }

    #[test]
    fn the_best_plan_has_a_time_in_every_block() {
        let mut runs = Vec::new();
        for block in 0..2 {
            for (plan, ns) in [("auto", 110), ("default", 120), ("read/threads:n=2", 100)] {
                runs.push(final_run(plan, block, ns, Value::Null));
            }
            let failure = if block == 0 { Value::Null } else { "not cold".into() };
            runs.push(final_run("read/threads:n=4", block, 10, failure));
        }
        // The next block has begun.
        runs.push(final_run("auto", 2, 1, Value::Null));
        let row = row(&runs);
        assert_eq!((row.best.as_str(), row.best_ns), ("read/threads:n=2", 100.0));
        assert!((row.auto.1 - 0.1).abs() < 1e-9, "only blocks that ended count");
        assert_eq!(row.failures, "");
    }

    #[test]
    fn failures_are_shown_and_a_block_without_a_time_fails_the_cell() {
        let mut runs = Vec::new();
        for plan in ["auto", "default", "read/threads:n=2"] {
            runs.push(final_run(plan, 0, 100, Value::Null));
        }
        assert!(matches!(outcome(&[]), Outcome::Missing));
        assert!(matches!(outcome(&runs[..1]), Outcome::Failed(_)), "no default");
        runs.insert(0, final_run("auto", 0, 100, "not cold".into()));
        assert_eq!(row(&runs).failures, "auto failed 1 of 2");
        runs.retain(|run| run["plan"] != "auto" || !run["failure"].is_null());
        let Outcome::Failed(reason) = outcome(&runs) else { panic!("auto has no time") };
        assert_eq!(reason, "auto failed 1 of 1");
    }
}
