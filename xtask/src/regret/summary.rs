//! The table of all cells, from the raw data alone.

use super::arms::Plan;
use super::cell::Cell;
use super::raw::{Raw, file_of};
use ioloom_stats::median;
use std::path::Path;

/// Final runs of a plan in one cell.
struct Times {
    plan: String,
    /// Nanoseconds by block.
    ns: Vec<Option<f64>>,
}

impl Times {
    fn median_ns(&self) -> Option<f64> {
        let ns: Vec<f64> = self.ns.iter().flatten().copied().collect();
        ns.first().map(|_| median(&ns))
    }
}

/// Prints one row per cell that has final runs.
pub(super) fn print(cells: &[&Cell], out: &Path) -> anyhow::Result<()> {
    println!(
        "\n{:44} {:>7} {:>22} {:>8} {:>9}  best fixed plan",
        "cell", "best, s", "auto, % (range)", "today, %", "p90 ratio"
    );
    let (mut regrets, mut missing) = (Vec::new(), 0);
    for cell in cells {
        let raw = Raw::open(file_of(out, cell))?;
        let Some(row) = Row::of(&raw) else {
            missing += 1;
            continue;
        };
        println!(
            "{:44} {:7.2} {:>8.1} ({:>4.1} to {:>4.1}) {:8.1} {:>9}  {}",
            cell.name,
            row.best_ns / 1e9,
            100.0 * row.auto.0,
            100.0 * row.auto.1,
            100.0 * row.auto.2,
            100.0 * row.today,
            row.neighbour.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
            row.best
        );
        regrets.push(row.auto.0);
    }
    if let (Some(worst), count) = (regrets.iter().copied().reduce(f64::max), regrets.len()) {
        let within = regrets.iter().filter(|regret| **regret <= 0.05).count();
        println!(
            "\n{count} cells: median {:.1} %, {within} within 5 %, worst {:.1} %; {missing} without final runs",
            100.0 * median(&regrets),
            100.0 * worst
        );
    } else {
        println!("no cell has final runs yet");
    }
    Ok(())
}

struct Row {
    best: String,
    best_ns: f64,
    /// Regret of `auto`: the median of the paired ratios minus one, the smallest and the largest.
    auto: (f64, f64, f64),
    /// The same for the default, median only.
    today: f64,
    /// The neighbour's 90th percentile with `auto`, divided by the least of the fixed plans that lose
    /// no more than 0.5 %.
    neighbour: Option<f64>,
}

impl Row {
    fn of(raw: &Raw) -> Option<Self> {
        let times = times(raw);
        let of = |name: &str| times.iter().find(|times| times.plan == name);
        let is_fixed = |plan: &str| !matches!(plan, "auto" | "auto:polite");
        let best = times
            .iter()
            .filter(|times| is_fixed(&times.plan))
            .filter_map(|times| Some((times, times.median_ns()?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        let ratios = |times: &Times| -> Vec<f64> {
            let pairs = times.ns.iter().zip(&best.0.ns);
            let mut ratios: Vec<f64> =
                pairs.filter_map(|(a, b)| Some((*a)? / (*b)? - 1.0)).collect();
            ratios.sort_by(f64::total_cmp);
            ratios
        };
        let auto = ratios(of("auto")?);
        let today = ratios(of("default")?);
        let enough = times
            .iter()
            .filter(|times| is_fixed(&times.plan))
            .filter(|times| times.median_ns().is_some_and(|ns| ns <= 1.005 * best.1));
        let least = enough.filter_map(|times| p90(raw, &times.plan)).min_by(f64::total_cmp);
        Some(Self {
            best: best.0.plan.clone(),
            best_ns: best.1,
            auto: (median(&auto), *auto.first()?, *auto.last()?),
            today: today.first().map(|_| median(&today))?,
            neighbour: p90(raw, "auto").zip(least).map(|(auto, least)| auto / least),
        })
    }
}

fn times(raw: &Raw) -> Vec<Times> {
    let mut all: Vec<Times> = Vec::new();
    for run in raw.runs.iter().filter(|run| run["phase"] == "final" && run["failure"].is_null()) {
        let (Some(plan), Some(block), Some(ns)) =
            (run["plan"].as_str(), run["block"].as_u64(), run["wall_ns"].as_f64())
        else {
            continue;
        };
        if Plan::parse(plan).is_none() {
            continue;
        }
        let at = all.iter().position(|times| times.plan == plan).unwrap_or_else(|| {
            all.push(Times { plan: plan.to_owned(), ns: Vec::new() });
            all.len() - 1
        });
        let ns_of = &mut all[at].ns;
        ns_of.resize(ns_of.len().max(block as usize + 1), None);
        ns_of[block as usize] = Some(ns);
    }
    all
}

/// Returns the median over the blocks of the neighbour's 90th percentile.
fn p90(raw: &Raw, plan: &str) -> Option<f64> {
    let runs = raw.runs.iter().filter(|run| run["phase"] == "final" && run["plan"] == plan);
    let values: Vec<f64> = runs.filter_map(|run| run["neighbour"]["p90_ns"].as_f64()).collect();
    values.first().map(|_| median(&values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::PathBuf;

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
        let row = Row::of(&Raw { path: PathBuf::new(), runs }).unwrap();
        assert_eq!(row.best, "read/threads:n=2");
        assert!((row.auto.0 - 0.1).abs() < 1e-9 && (row.today - 0.2).abs() < 1e-9);
        assert_eq!(row.neighbour, Some(1.5));
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
        let row = Row::of(&Raw { path: PathBuf::new(), runs }).unwrap();
        assert!((row.auto.0 - 0.2).abs() < 1e-9 && (row.today - 1.4).abs() < 1e-9);
    }
}
