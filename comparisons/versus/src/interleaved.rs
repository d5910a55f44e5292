//! Interleaved comparison of programs that do the same work, shared by `walk_versus` and
//! `copy_versus`.
//!
//! All arms do the same work once per block, in a seeded random order; the first `--ours` is the
//! reference. Cold: the machine's caches are dropped before every run. A run counts if it
//! succeeded, produced the correct result, and started under its condition, as proved by the bytes
//! read from the device. Every run is written to `raw.jsonl` before the next one starts; the
//! summary is generated from that file alone.

use crate::before::{load_programs, touch_memory};
use crate::facts::{self, Facts};
use crate::kept::{self, Raw};
use crate::neighbour::Neighbours;
use crate::{child, device::Medium, order, pairs};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use ioloom_stats::Ratio;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Minimum share of the data that the device must have read in a cold run.
const COLD_MIN: f64 = 0.95;

/// Maximum share of the data that it may have read in a warm run. A lower limit would reject copies
/// of 4 KiB files, which also read the inode tables of their targets: 256 bytes each, 6 % of the
/// data.
const WARM_MAX: f64 = 0.10;

/// Random stream for the arms that load the input.
const LOADERS: u64 = 4;

/// Minimum share of a run's time that a busy neighbour must have run; a run of more threads than
/// processors leaves it less than a whole one.
const BUSY_MIN: f64 = 0.2;

/// Command-line options that do not depend on the work.
#[derive(clap::Args)]
pub struct Order {
    /// Directory for the result; must be empty or absent.
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    out: Option<PathBuf>,
    /// Summarize an existing result again.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    from: Option<PathBuf>,
    /// The cache state before a run.
    #[arg(long, value_enum, default_value = "warm")]
    condition: Condition,
    /// Allow dropping the machine's caches before each run (root); required for cold.
    #[arg(long)]
    drop_caches: bool,
    /// Before each run, write to this much memory and release it, so every arm gets memory that a
    /// virtual machine's host has already provided.
    #[arg(long, value_name = "MIB", default_value = "0")]
    touch_memory_mib: usize,
    /// Number of runs per arm.
    #[arg(long, default_value = "12")]
    blocks: u32,
    /// Our command, `NAME=PROGRAM ARG…`, with placeholders in braces. The first one is the
    /// reference.
    #[arg(long, value_name = "TEMPLATE", required_unless_present = "from")]
    ours: Vec<String>,
    /// Another command, in the same form.
    #[arg(long, value_name = "TEMPLATE")]
    arm: Vec<String>,
    /// Thread counts for {threads}; a command without it runs once per block.
    #[arg(long, value_delimiter = ',', default_value = "2")]
    threads: Vec<u32>,
    /// Seed of the orders and intervals.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Revision the program was built from (default: the commit of the working directory).
    #[arg(long)]
    commit: Option<String>,
    /// Description of the files, for the record.
    #[arg(long, alias = "tree", default_value = "not described", value_name = "TEXT")]
    what: String,
    /// Kill a run after this many seconds.
    #[arg(long, default_value = "600")]
    deadline_s: u64,
    /// Number of other programs that each keep a processor busy during all runs.
    #[arg(long, default_value = "0")]
    busy: u32,
}

/// The cache state before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Nothing.
    Cold,
    /// Everything.
    Warm,
}

/// A command with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    name: String,
    ours: bool,
    command: Vec<String>,
}

/// The first line of the raw data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    schema: String,
    /// The input of the work.
    dir: String,
    /// The user's description of it.
    #[serde(default)]
    tree: String,
    /// Number of bytes that every arm must read, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Number of bytes that the device must read in a cold run, if arms may share blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cold_bytes: Option<u64>,
    /// Number of bytes that the device may read in a warm run, if not a share of `bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warm_bytes: Option<u64>,
    condition: Condition,
    blocks: u32,
    seed: u64,
    commit: String,
    facts: Facts,
    /// Number of busy neighbours.
    #[serde(default)]
    busy: u32,
    /// What else the runs have in common.
    #[serde(default)]
    state: String,
    arms: Vec<Arm>,
}

/// Every subsequent line.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    block: u32,
    arm: usize,
    /// Time until the program exited.
    wall_ns: u64,
    /// Time until work left to the kernel was also finished, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    durable_ns: Option<u64>,
    cpu_user_ns: u64,
    cpu_kernel_ns: u64,
    device_bytes: Option<u64>,
    machine_busy_ns: Option<u64>,
    /// Processor time of the busy neighbours.
    #[serde(default)]
    neighbours_ns: u64,
    failure: Option<String>,
}

impl Run {
    /// Returns the times used to compare arms.
    fn yardstick_ns(&self) -> u64 {
        self.durable_ns.unwrap_or(self.wall_ns)
    }

    fn cpu_s(&self) -> f64 {
        (self.cpu_user_ns + self.cpu_kernel_ns) as f64 / 1e9
    }
}

/// The work of the arms.
pub trait Work {
    /// Title of the results.
    const TITLE: &'static str;
    /// The program that runs it.
    const PROGRAM: &'static str;
    /// Kind of the raw data, as stored in them.
    const SCHEMA: &'static str;

    /// The input of the work.
    fn subject(&self) -> &Path;

    /// Replaces the placeholders in a word of a command.
    fn fill(&self, word: &str) -> String;

    /// Arms that are always included.
    fn known(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the number of bytes that every arm must read, if known.
    ///
    /// # Errors
    /// A file cannot be statted.
    fn bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the number of bytes that the device reads at least in a cold run; `None` for most of
    /// [`Self::bytes`].
    fn cold_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the number of bytes that the device reads at most in a warm run; `None` for little of
    /// [`Self::bytes`].
    ///
    /// # Errors
    /// A directory cannot be listed.
    fn warm_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the medium of the input if it changes between runs.
    fn medium(&self) -> Option<Medium> {
        None
    }

    /// Describes the state in which every run starts.
    fn state(&self) -> String {
        String::new()
    }

    /// Prepares the first run of a block.
    ///
    /// # Errors
    /// A file system cannot be prepared.
    fn begin_block(&self) -> Result<()> {
        Ok(())
    }

    /// Loads the input into memory; `None` if an arm does that.
    ///
    /// # Errors
    /// A file cannot be read.
    fn warm(&self) -> Result<Option<()>> {
        Ok(None)
    }

    /// Moves the results of the previous run out of the way.
    ///
    /// # Errors
    /// A file cannot be removed.
    fn reset(&self) -> Result<()> {
        Ok(())
    }

    /// Removes the results of all runs.
    ///
    /// # Errors
    /// A file cannot be removed.
    fn end(&self) -> Result<()> {
        Ok(())
    }

    /// Finishes work that the program left to the kernel, as part of the run's time; `None` if
    /// there is none.
    ///
    /// # Errors
    /// A system call fails.
    fn settle(&self) -> Result<Option<()>> {
        Ok(None)
    }

    /// Returns any problem with the result of a run; `first` requests a full check.
    fn wrong(&self, first: bool) -> Option<String> {
        let _ = first;
        None
    }
}

/// Returns the arms of a template: one per thread count if it contains that placeholder.
fn arms_of(work: &impl Work, template: &str, ours: bool, threads: &[u32]) -> Result<Vec<Arm>> {
    let (name, command) =
        template.split_once('=').with_context(|| format!("'{template}' is not NAME=COMMAND"))?;
    let words = shlex::split(command).with_context(|| format!("cannot split '{command}'"))?;
    ensure!(!words.is_empty(), "'{template}' names no program");
    let fill = |count: Option<u32>| {
        let count = count.map(|count| count.to_string()).unwrap_or_default();
        words.iter().map(|word| work.fill(&word.replace("{threads}", &count))).collect()
    };
    if !command.contains("{threads}") {
        return Ok(vec![Arm { name: name.to_owned(), ours, command: fill(None) }]);
    }
    let arm =
        |count: &u32| Arm { name: format!("{name} -j{count}"), ours, command: fill(Some(*count)) };
    Ok(threads.iter().map(arm).collect())
}

fn setup<W: Work>(work: &W, order: &Order) -> Result<Setup> {
    let dir = work.subject().to_str().context("paths must be UTF-8")?;
    let mut arms = Vec::new();
    for template in &order.ours {
        arms.extend(arms_of(work, template, true, &order.threads)?);
    }
    for template in order.arm.iter().chain(&work.known()) {
        arms.extend(arms_of(work, template, false, &order.threads)?);
    }
    Ok(Setup {
        schema: W::SCHEMA.to_owned(),
        dir: dir.to_owned(),
        tree: order.what.clone(),
        bytes: work.bytes()?,
        cold_bytes: work.cold_bytes(),
        warm_bytes: match order.condition {
            Condition::Warm => work.warm_bytes()?,
            Condition::Cold => None,
        },
        condition: order.condition,
        blocks: order.blocks,
        seed: order.seed,
        commit: order.commit.clone().unwrap_or_else(facts::commit),
        facts: Facts::of(work.subject()),
        busy: order.busy,
        state: work.state(),
        arms,
    })
}

/// Runs one arm once, in block `block`.
fn run_one(
    work: &impl Work,
    (order, setup): (&Order, &Setup),
    neighbours: &Neighbours,
    block: u32,
    arm: usize,
) -> Result<Run> {
    let command: Vec<OsString> = setup.arms[arm].command.iter().map(OsString::from).collect();
    work.reset()?;
    if setup.condition == Condition::Cold {
        ioloom_sys::cache::flush_and_drop_caches()
            .context("cannot drop the caches of the machine")?;
    }
    touch_memory(order.touch_memory_mib << 20);
    // Loading the programs from the device is not part of the work.
    load_programs(&setup.arms[arm].command);
    let medium = work.medium().unwrap_or_else(|| setup.facts.medium.clone());
    let (read, busy) = (medium.read_bytes(), child::machine_busy_ns());
    let neighbours_ns = neighbours.cpu_ns();
    let start = Instant::now();
    let mut finished = child::run(&command, None, Duration::from_secs(order.deadline_s))?;
    let durable_ns = match work.settle() {
        Ok(settled) => settled.map(|()| start.elapsed().as_nanos() as u64),
        Err(error) => {
            finished.failure.get_or_insert(format!("{error:#}"));
            None
        }
    };
    let growth = |before: Option<u64>, after: Option<u64>| {
        before.zip(after).map(|(before, after)| after.saturating_sub(before))
    };
    let neighbours_ns = neighbours.cpu_ns().saturating_sub(neighbours_ns);
    let device_bytes = growth(read, medium.read_bytes());
    let machine_busy_ns = growth(busy, child::machine_busy_ns());
    if finished.failure.is_none() {
        finished.failure = work.wrong(block == 0);
    }
    Ok(Run {
        block,
        arm,
        wall_ns: finished.wall_ns,
        durable_ns,
        cpu_user_ns: finished.cpu_user_ns,
        cpu_kernel_ns: finished.cpu_kernel_ns,
        device_bytes,
        machine_busy_ns,
        neighbours_ns,
        failure: finished.failure,
    })
}

fn measure<W: Work>(work: &W, order: &Order, out: &Path) -> Result<()> {
    let cold = order.condition == Condition::Cold;
    ensure!(
        !cold || order.drop_caches,
        "cold runs drop the caches of the machine; add --drop-caches"
    );
    let setup = setup(work, order)?;
    kept::claim(out)?;
    let mut raw = Raw::create(out, &readme::<W>(&setup)?, &setup)?;
    let neighbours = Neighbours::start(setup.busy)?;
    let mut loaders = order::Draws::new(setup.seed, LOADERS);
    let run_one = |block, arm| run_one(work, (order, &setup), &neighbours, block, arm);
    for (block, arms) in (0..).zip(order::blocks(setup.seed, setup.blocks, setup.arms.len())) {
        work.begin_block()?;
        if !cold && work.warm()?.is_none() {
            // Without this, the first run would have less in memory than the others. The arm is
            // drawn, because the order in which it loads the input may favour it. One that fails
            // may have loaded nothing.
            for loader in loaders.sample(setup.arms.len(), setup.arms.len()) {
                if run_one(block, loader)?.failure.is_none() {
                    break;
                }
            }
        }
        for arm in arms {
            let run = run_one(block, arm)?;
            let (name, seconds) = (&setup.arms[arm].name, run.yardstick_ns() as f64 / 1e9);
            let trouble = run.failure.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            kept::say(&format!("block {block} {name}: {seconds:.3} s{trouble}"));
            raw.add(&run)?;
        }
    }
    work.reset()?;
    work.end()
}

/// Writes the README of the raw data: the command, the machine, the programs.
fn readme<W: Work>(setup: &Setup) -> Result<String> {
    let mut text = format!(
        "# {}\n\nCommand:\n\n```sh\n{}\n```\n\n\
         - commit: {}\n{}- files: {}\n- medium: {}\n- condition: {:?}\n\
         - blocks: {}, seed {}\n- other programs that keep a processor busy: {}\n{}\n\
         `raw.jsonl` holds the setup and one line per run, in the order in which they ran; \
         `summary.md` is made from it alone by `{} --from .`.\n\n## Arms\n\n\
         | arm | version | command |\n|---|---|---|\n",
        W::TITLE,
        kept::command(),
        setup.commit,
        setup.facts.lines(),
        setup.tree,
        setup.facts.medium.words(),
        setup.condition,
        setup.blocks,
        setup.seed,
        setup.busy,
        if setup.state.is_empty() { String::new() } else { format!("- {}\n", setup.state) },
        W::PROGRAM,
    );
    for arm in &setup.arms {
        let command = shlex::try_join(arm.command.iter().map(String::as_str))?;
        // If a program cannot be started, its runs fail with the reason.
        let version = facts::version(&arm.command[0]).unwrap_or_else(|_| "unknown".to_owned());
        writeln!(text, "| {} | {version} | `{command}` |", arm.name)?;
    }
    Ok(text)
}

/// Returns the number of bytes the device read in the first run that did not fail.
fn first_read(runs: &[Run]) -> u64 {
    let read = |run: &Run| run.device_bytes.filter(|_| run.failure.is_none());
    runs.iter().find_map(read).unwrap_or(0)
}

/// Returns why a run does not count; `first` is the result of [`first_read`].
fn why_not(setup: &Setup, run: &Run, first: u64) -> Option<String> {
    if let Some(failure) = &run.failure {
        return Some(failure.clone());
    }
    if f64::from(setup.busy) * run.wall_ns as f64 * BUSY_MIN > run.neighbours_ns as f64 {
        let ran = run.neighbours_ns / 1_000_000;
        return Some(format!("not busy: the other programs ran for {ran} ms"));
    }
    let Some(read) = run.device_bytes else {
        let is_cold = setup.condition == Condition::Cold;
        return is_cold.then(|| "not proved cold: the device is unknown".to_owned());
    };
    let all = setup.bytes;
    // If the amount of data is unknown, a run must read at least half as much as the first one.
    let most_of = |bytes: u64| (bytes as f64 * COLD_MIN) as u64;
    let least = setup.cold_bytes.or(all.map(most_of)).unwrap_or(first / 2);
    let little_of = |bytes: u64| (bytes as f64 * WARM_MAX) as u64;
    let most = setup.warm_bytes.or(all.map(little_of)).unwrap_or(u64::MAX);
    match setup.condition {
        Condition::Cold if read < least => Some(format!("not cold: the device read {read} bytes")),
        Condition::Warm if read > most => Some(format!("not warm: the device read {read} bytes")),
        _ => None,
    }
}

fn summary<W: Work>(setup: &Setup, runs: &[Run]) -> Result<(String, bool)> {
    let first = first_read(runs);
    let (lost, counted): (Vec<_>, Vec<_>) =
        runs.iter().partition(|run| why_not(setup, run, first).is_some());
    let durable = runs.iter().any(|run| run.durable_ns.is_some());
    let (times, ratios) = match durable {
        false => ("wall s (median, min-max)", "wall ratio | cpu ratio"),
        true => {
            ("returned s (median) | durable s (median, min-max)", "durable ratio | returned ratio")
        }
    };
    let mut text = format!(
        "# {}\n\n{:?}, {} blocks, seed {}, commit {}\n\n{} on {} cores, {}\n\n\
         Ratios: the arm over {}, paired by block ({}); above 1 ours was better.\n\n\
         | arm | runs | {times} | cpu s | {ratios} | device MB |\n\
         |---|---|---|---|---|---|---|{}\n",
        W::TITLE,
        setup.condition,
        setup.blocks,
        setup.seed,
        setup.commit,
        setup.facts.cpu_model,
        setup.facts.cores,
        setup.facts.kernel,
        setup.arms[0].name,
        pairs::BRACKETS,
        if durable { "---|" } else { "" },
    );
    for (number, arm) in setup.arms.iter().enumerate() {
        row(&mut text, number, &arm.name, &counted, durable)?;
    }
    if !lost.is_empty() {
        writeln!(
            text,
            "\n{} runs do not count (failed, or not {:?}).",
            lost.len(),
            setup.condition
        )?;
    }
    for run in &lost {
        let why = why_not(setup, run, first).unwrap_or_default();
        writeln!(text, "- {}, block {}: {why}", setup.arms[run.arm].name, run.block)?;
    }
    Ok((text, are_complete(setup, runs)))
}

/// Returns whether every run of every arm exists and counts.
fn are_complete(setup: &Setup, runs: &[Run]) -> bool {
    let (first, all) = (first_read(runs), setup.arms.len() * setup.blocks as usize);
    runs.len() == all && runs.iter().all(|run| why_not(setup, run, first).is_none())
}

/// Returns whether every run of a kept result exists and counts.
///
/// # Errors
/// The raw data cannot be read.
pub fn is_complete(out: &Path) -> Result<bool> {
    let (setup, runs) = kept::read(out)?;
    Ok(are_complete(&setup, &runs))
}

/// Returns the ratio of an arm's runs to those of the first arm, paired by block.
fn ratio(own: &[&Run], runs: &[&Run], value: &dyn Fn(&Run) -> f64) -> String {
    let first = runs.iter().filter(|run| run.arm == 0);
    let valued = |run: &&Run| (run.block, value(run));
    let (arm, first) = pairs::by_block(own.iter().map(valued), first.map(valued));
    Ratio::of(&arm, &first).map_or_else(|_| "-".to_owned(), |r| pairs::ratio_text(r, 2))
}

fn row(text: &mut String, number: usize, name: &str, runs: &[&Run], durable: bool) -> Result<()> {
    let own: Vec<_> = runs.iter().copied().filter(|run| run.arm == number).collect();
    if own.is_empty() {
        writeln!(text, "| {name} | 0 | | | | | |{}", if durable { " |" } else { "" })?;
        return Ok(());
    }
    let of = |value: &dyn Fn(&Run) -> f64| {
        let values: Vec<f64> = own.iter().map(|run| value(run)).collect();
        pairs::Spread::of(&values).context("an arm without runs")
    };
    let wall = |run: &Run| run.wall_ns as f64 / 1e9;
    let yardstick = |run: &Run| run.yardstick_ns() as f64 / 1e9;
    let second: &dyn Fn(&Run) -> f64 = if durable { &wall } else { &Run::cpu_s };
    let compared = |value: &dyn Fn(&Run) -> f64| match number {
        0 => "1".to_owned(),
        _ => ratio(&own, runs, value),
    };
    let times = of(&yardstick)?;
    let returned = if durable { format!(" {:.3} |", of(&wall)?.median) } else { String::new() };
    let device: Vec<f64> =
        own.iter().filter_map(|run| run.device_bytes).map(|bytes| bytes as f64 / 1e6).collect();
    writeln!(
        text,
        "| {name} | {} |{returned} {:.3} ({:.3}-{:.3}) | {:.3} | {} | {} | {} |",
        own.len(),
        times.median,
        times.min,
        times.max,
        of(&Run::cpu_s)?.median,
        compared(&yardstick),
        compared(second),
        pairs::Spread::of(&device).map_or_else(String::new, |d| format!("{:.0}", d.median)),
    )?;
    Ok(())
}

/// Summarizes the raw data. Returns whether every run counted.
fn show<W: Work>(out: &Path) -> Result<bool> {
    let (setup, runs) = kept::read(out)?;
    let (text, complete) = summary::<W>(&setup, &runs)?;
    kept::publish(out, &text)?;
    Ok(complete)
}

fn run<W: Work>(order: &Order, work: impl FnOnce() -> Result<W>) -> Result<bool> {
    if let Some(from) = &order.from {
        return show::<W>(from);
    }
    let Some(out) = &order.out else { bail!("give --out to measure, or --from to summarise") };
    measure(&work()?, order, out)?;
    show::<W>(out)
}

/// Measures `work`, or only summarizes an existing result.
pub fn main<W: Work>(order: &Order, work: impl FnOnce() -> Result<W>) -> ExitCode {
    kept::exit(W::PROGRAM, run(order, work))
}

#[cfg(test)]
mod tests;
