//! The cells of `results/predict-cells`: each is predicted from a calibration, then measured.
//!
//! The list of cells was committed before anything was calibrated for it, and is only read here. First
//! the sets are created and four calibrations are made: of the disk with evicted and with cached
//! copies, of the capped group, and of the delayed file system. Then all cells are predicted, and only
//! then measured, once per block in a random order, each under its condition. Every step is a line of
//! `runs.jsonl` before the next one starts; a repeated command continues where the last one ended, and
//! tries again what failed.

mod list;
mod naive;
mod place;
mod score;

use crate::regret::raw::{self, Raw};
use crate::repo::Repo;
use anyhow::{Context, bail, ensure};
use list::Cell;
use place::Place;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs of each cell, and of those that are predicted to take longer than [`LONG_S`].
const RUNS: u32 = 3;
const LONG_S: f64 = 10.0;
/// Attempts of a command at a run whose condition was not proved.
const ATTEMPTS: u32 = 3;
const SEED: u64 = 1;

/// What the words of the command select.
struct Options {
    out: PathBuf,
    dir: PathBuf,
    program: PathBuf,
    delayfs: Option<PathBuf>,
    cells: Vec<String>,
    runs: u32,
    summary: bool,
}

impl Options {
    fn parse(repo: &Repo, words: &[&str]) -> anyhow::Result<Self> {
        let target = repo.root.join("target");
        let mut options = Self {
            out: target.join("predict-cells/results"),
            dir: target.join("predict-cells/files"),
            program: target.join("release/ioloom"),
            delayfs: None,
            cells: Vec::new(),
            runs: RUNS,
            summary: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match *word {
                "--out" => options.out = value()?.into(),
                "--dir" => options.dir = value()?.into(),
                "--program" => options.program = value()?.into(),
                "--delayfs" => options.delayfs = Some(value()?.into()),
                "--cell" => options.cells.push((*value()?).to_owned()),
                "--runs" => options.runs = value()?.parse().context("--runs needs a number")?,
                "--summary" => options.summary = true,
                _ => bail!("unknown word '{word}'; see `cargo xtask help`"),
            }
        }
        ensure!(options.runs > 0, "--runs must be above 0");
        Ok(options)
    }
}

/// Runs `predict-cells …`.
pub(crate) fn run(repo: &Repo, words: &[&str]) -> anyhow::Result<ExitCode> {
    let options = Options::parse(repo, words)?;
    let all = list::read(&repo.root.join("results/predict-cells"))?;
    for name in &options.cells {
        ensure!(all.iter().any(|cell| cell.name == *name), "unknown cell '{name}'");
    }
    let cells: Vec<&Cell> = all
        .iter()
        .filter(|cell| options.cells.is_empty() || options.cells.contains(&cell.name))
        .collect();
    if !options.summary {
        let mut again = vec!["predict-cells"];
        again.extend(words);
        if let Some(ended) = crate::fuzz::enter(&again)? {
            return Ok(ended);
        }
        measure(&cells, &options)?;
    }
    let runs = raw::read(&options.out.join("runs.jsonl"))?;
    let text = score::summary(&cells, &runs);
    print!("{text}");
    // The file is about all cells.
    if options.cells.is_empty() {
        std::fs::write(options.out.join("summary.md"), text).context("write the summary")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(cells: &[&Cell], options: &Options) -> anyhow::Result<()> {
    std::fs::create_dir_all(&options.out).context("create the directory of the results")?;
    let mut raw = Raw::open(options.out.join("runs.jsonl"))?;
    let delayfs = options
        .delayfs
        .clone()
        .unwrap_or_else(|| options.program.with_file_name("examples").join("delayfs"));
    let place = Place::prepare(&options.dir, &options.program, &delayfs, cells)?;
    if raw.runs.is_empty() {
        raw.push(json!({"phase": "setup", "seed": SEED, "version": place.version()?}))?;
    }
    for name in place::CALIBRATIONS {
        let used = cells.iter().any(|cell| cell.calibration() == Some(name));
        if used && find(&raw.runs, "calibration", name).is_none() {
            println!("calibration {name}");
            let calibration = place.calibrate(name)?;
            let calibration =
                json!({"phase": "calibration", "cell": name, "calibration": calibration});
            raw.push(calibration)?;
        }
    }
    for cell in cells {
        if find(&raw.runs, "predicted", &cell.name).is_none() {
            let mut predicted = place.predict(cell)?;
            let calibration =
                cell.calibration().and_then(|name| find(&raw.runs, "calibration", name));
            let probes = calibration.map_or(Value::Null, |found| found["calibration"].clone());
            let naive = naive::seconds(cell, &probes);
            predicted["naive_s"] = json!(naive);
            predicted["phase"] = "predicted".into();
            predicted["cell"] = cell.name.as_str().into();
            raw.push(predicted)?;
        }
    }
    let todo = todo(cells, options.runs, &raw.runs);
    let seconds: f64 =
        todo.iter().map(|(_, cell)| place.cost_s(cell, predicted_s(cell, &raw.runs))).sum();
    println!("{} runs to do, about {:.0} min", todo.len(), (seconds / 60.0).ceil());
    for (at, (block, cell)) in todo.iter().enumerate() {
        for attempt in 1..=ATTEMPTS {
            let mut run = place.run(cell)?;
            run["phase"] = "run".into();
            run["cell"] = cell.name.as_str().into();
            run["block"] = (*block).into();
            println!(
                "{}/{} {block} {:12} {:9.3} s {}",
                at + 1,
                todo.len(),
                cell.name,
                run["seconds"].as_f64().unwrap_or(f64::NAN),
                run["failure"].as_str().unwrap_or("")
            );
            let failed = !run["failure"].is_null();
            raw.push(run)?;
            if !failed || attempt == ATTEMPTS {
                break;
            }
        }
    }
    Ok(())
}

/// Returns the runs that are missing, block by block, each block in a random order.
fn todo<'a>(cells: &[&'a Cell], blocks: u32, raw: &[Value]) -> Vec<(u32, &'a Cell)> {
    let (mut todo, mut state) = (Vec::new(), SEED);
    for block in 0..blocks {
        let mut order = cells.to_vec();
        for i in (1..order.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(i, (state >> 33) as usize % (i + 1));
        }
        for cell in order {
            let done = |run: &Value| {
                run["phase"] == "run"
                    && run["cell"] == cell.name
                    && run["block"] == block
                    && run["failure"].is_null()
            };
            let long = predicted_s(cell, raw) > LONG_S;
            if !(long && block > 0 || raw.iter().any(done)) {
                todo.push((block, cell));
            }
        }
    }
    todo
}

/// Returns the predicted seconds of a run: those of a closed loop are per request.
fn predicted_s(cell: &Cell, raw: &[Value]) -> f64 {
    let found = find(raw, "predicted", &cell.name);
    found.and_then(|found| found["elapsed_s"].as_f64()).unwrap_or(0.0)
}

fn find<'a>(runs: &'a [Value], phase: &str, cell: &str) -> Option<&'a Value> {
    runs.iter().find(|run| run["phase"] == phase && run["cell"] == cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_command_does_only_what_is_missing_or_failed() {
        let results =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/predict-cells");
        let all = list::read(&results).unwrap();
        let cells: Vec<&Cell> = all.iter().take(3).collect();
        let (done, failed, long) = (&cells[0].name, &cells[1].name, &cells[2].name);
        let mut raw = vec![json!({"phase": "predicted", "cell": long, "elapsed_s": 2.0 * LONG_S})];
        let names = |raw: &[Value]| {
            let mut all: Vec<(u32, String)> =
                todo(&cells, 2, raw).iter().map(|(n, cell)| (*n, cell.name.clone())).collect();
            all.sort();
            all
        };
        let all = [(0, done), (0, failed), (0, long), (1, done), (1, failed)]
            .map(|(block, name)| (block, name.clone()));
        assert_eq!(names(&raw), all);
        let run = |cell: &String, failure: Value| json!({"phase": "run", "cell": cell, "block": 0, "failure": failure});
        raw.push(run(done, Value::Null));
        raw.push(run(failed, "not cold".into()));
        assert_eq!(names(&raw), all[1..]);
    }
}
