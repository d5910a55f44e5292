//! The experiment that decides about `auto`: its time in each cell of a committed list, divided by that
//! of the best fixed plan of a sweep.
//!
//! A cell is a medium, a set of files, a condition, the work, limits and a trap
//! (`comparisons/regret/cells.json`). Three phases: a coarse sweep of methods and windows in steps of
//! four, a finer one by two around the best two, and the best three, the default and `auto` in blocks
//! with a random order. Every run is a line of `CELL.jsonl` before the next one starts; a repeated
//! command continues where the last one ended. A run that fails, or whose condition is not proved, is
//! recorded with the reason and tried again.

mod arms;
mod cell;
pub(crate) mod command;
mod neighbour;
pub(crate) mod proof;
pub(crate) mod raw;
mod setting;
mod summary;

use crate::repo::Repo;
use anyhow::{Context, bail, ensure};
use arms::{Plan, coarse, finer, rivals};
use cell::Cell;
use raw::{Raw, file_of};
use serde_json::json;
use setting::Setting;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Blocks of the sweeps and of the final phase.
const SWEEP_BLOCKS: u32 = 2;
const FINAL_BLOCKS: u32 = 12;
/// Plans of the sweep that run again at the end.
const FINALISTS: usize = 3;
const SEED: u64 = 1;

/// What the words of the command select.
struct Options {
    out: PathBuf,
    dir: PathBuf,
    program: PathBuf,
    cells: Vec<String>,
    set: Option<String>,
    blocks: u32,
    drop_caches: bool,
    list: bool,
    summary: bool,
}

impl Options {
    fn parse(repo: &Repo, words: &[&str]) -> anyhow::Result<Self> {
        let target = repo.root.join("target");
        let mut options = Self {
            out: target.join("regret/results"),
            dir: target.join("regret/files"),
            program: target.join("release/ioloom"),
            cells: Vec::new(),
            set: None,
            blocks: FINAL_BLOCKS,
            drop_caches: false,
            list: false,
            summary: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match *word {
                "--out" => options.out = value()?.into(),
                "--dir" => options.dir = value()?.into(),
                "--program" => options.program = value()?.into(),
                "--cell" => options.cells.push((*value()?).to_owned()),
                "--set" => options.set = Some((*value()?).to_owned()),
                "--blocks" => {
                    options.blocks = value()?.parse().context("--blocks needs a number")?
                }
                "--drop-caches" => options.drop_caches = true,
                "--list" => options.list = true,
                "--summary" => options.summary = true,
                _ => bail!("unknown word '{word}'; see `cargo xtask help`"),
            }
        }
        Ok(options)
    }

    fn selects(&self, cell: &Cell) -> bool {
        let named = self.cells.is_empty() || self.cells.contains(&cell.name);
        named && self.set.as_ref().is_none_or(|set| *set == cell.set)
    }
}

/// Runs `regret …`.
pub(crate) fn run(repo: &Repo, words: &[&str]) -> anyhow::Result<ExitCode> {
    if let ["neighbour", file] = words {
        return neighbour::read_until_input_ends(Path::new(file)).map(|()| ExitCode::SUCCESS);
    }
    let options = Options::parse(repo, words)?;
    let cells = cell::read(&repo.root.join("comparisons/regret/cells.json"))?;
    for name in &options.cells {
        ensure!(
            cells.iter().any(|cell| cell.name == *name),
            "unknown cell '{name}'; --list prints all"
        );
    }
    let selected: Vec<&Cell> = cells.iter().filter(|cell| options.selects(cell)).collect();
    if options.list {
        for cell in &selected {
            println!("{:6} {}", cell.set, cell.name);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut unmeasured = 0;
    if !options.summary {
        let mut again = vec!["regret"];
        again.extend(words);
        if let Some(ended) = crate::fuzz::enter(&again)? {
            return Ok(ended);
        }
        ensure!(
            options.program.is_file(),
            "{} is missing; run cargo build --release, or name another with --program",
            options.program.display()
        );
        std::fs::create_dir_all(&options.out).context("create the directory of the results")?;
        for cell in &selected {
            println!("{}", cell.name);
            if let Err(error) = measure(cell, &options) {
                println!("  not measured: {error:#}");
                unmeasured += 1;
            }
        }
    }
    let failed = summary::print(&selected, &options.out)?;
    if unmeasured > 0 {
        println!("{unmeasured} cells could not be measured to the end");
    }
    Ok(if failed + unmeasured > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn measure(cell: &Cell, options: &Options) -> anyhow::Result<()> {
    let mut raw = Raw::open(file_of(&options.out, cell))?;
    let mut setting = Setting::prepare(cell, &options.dir, &options.program, options.drop_caches)?;
    raw.begin(json!({
        "phase": "setup",
        "cell": cell.json.clone(),
        "seed": SEED,
        "version": setting.version()?,
        "drop_caches": options.drop_caches,
        "kernel": rustix::system::uname().release().to_string_lossy(),
    }))?;
    let cores = setting.cores();
    phase("coarse", SWEEP_BLOCKS, &coarse(cores), &mut raw, &mut setting)?;
    let best = raw.ranking(&["coarse"]);
    phase("fine", SWEEP_BLOCKS, &finer(&best), &mut raw, &mut setting)?;
    let mut last = rivals(cores);
    let best = raw.ranking(&["coarse", "fine"]);
    for (plan, _) in best.into_iter().take(FINALISTS) {
        if !last.contains(&plan) {
            last.push(plan);
        }
    }
    phase("final", options.blocks, &last, &mut raw, &mut setting)
}

/// Runs each plan once per block, in a random order of its own.
fn phase(
    name: &str,
    blocks: u32,
    plans: &[Plan],
    raw: &mut Raw,
    setting: &mut Setting<'_>,
) -> anyhow::Result<()> {
    let mut state = SEED ^ name.len() as u64;
    for block in 0..blocks {
        let mut order: Vec<usize> = (0..plans.len()).collect();
        for i in (1..order.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(i, (state >> 33) as usize % (i + 1));
        }
        for i in order {
            let plan = plans[i].to_string();
            while !raw.has(name, block, &plan) {
                let mut run = setting.run(&plans[i])?;
                run["phase"] = name.into();
                run["block"] = block.into();
                run["plan"] = plan.clone().into();
                if run["failure"].is_null() {
                    run["failure"] = raw.difference(&run).into();
                }
                let ms = run["wall_ns"].as_f64().unwrap_or(f64::NAN) / 1e6;
                println!(
                    "  {name} {block} {ms:9.1} ms {plan} {}",
                    run["failure"].as_str().unwrap_or("")
                );
                raw.push(run)?;
            }
        }
    }
    Ok(())
}
