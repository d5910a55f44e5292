//! `walk_versus`: programs that sum up a directory tree, in one interleaved experiment.
//!
//! All arms walk the same tree once per block, in a random order that a seed decides; the yardstick
//! is the wall time of the whole process. The first `--ours` is what all others are compared with:
//! a ratio above 1 means that ours was faster (or needed less processor time). Warm: the tree is
//! walked once before each block. Cold: the caches of the machine are dropped before every run, and
//! a run counts only if the device read at least half of what the first cold run read. Every run goes
//! to `raw.jsonl` before the next one starts; the summary is made from that file alone.

#[path = "../child.rs"]
#[allow(dead_code, reason = "what it tells of output and reads is for the other program")]
mod child;
#[path = "../device.rs"]
mod device;
#[path = "../facts.rs"]
mod facts;
#[path = "../order.rs"]
mod order;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use ioloom_stats::{Ratio, Summary};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

const RAW: &str = "raw.jsonl";

/// Runs walkers beside each other on one tree and keeps raw.jsonl and summary.md.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The tree; nobody may change it meanwhile.
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    dir: Option<PathBuf>,
    /// Where the result goes; must not exist or be empty.
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    out: Option<PathBuf>,
    /// Only make the summary of a kept result again.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dir", "out"])]
    from: Option<PathBuf>,
    /// What is in memory before a run.
    #[arg(long, value_enum, default_value = "warm")]
    condition: Condition,
    /// Agree that the caches of the machine are dropped before each run (root); needed for cold.
    #[arg(long)]
    drop_caches: bool,
    /// How often each arm runs.
    #[arg(long, default_value = "12")]
    blocks: u32,
    /// Our command, `NAME=PROGRAM ARG…` with {dir} and {threads}. The first one is the reference.
    #[arg(long, value_name = "TEMPLATE", required_unless_present = "from")]
    ours: Vec<String>,
    /// Another command, in the same form.
    #[arg(long, value_name = "TEMPLATE")]
    arm: Vec<String>,
    /// Directory with diskus, pdu, dust and dua, as far as they are there; du is always taken.
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Thread counts for {threads}; a command without it runs once per block.
    #[arg(long, value_delimiter = ',', default_value = "2")]
    threads: Vec<u32>,
    /// Seed of the orders and the intervals.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// A run is killed after this many seconds.
    #[arg(long, default_value = "600")]
    deadline_s: u64,
}

/// What is in memory before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Condition {
    Cold,
    Warm,
}

/// A command with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Arm {
    name: String,
    ours: bool,
    command: Vec<String>,
}

/// The first line of the raw data.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Setup {
    schema: String,
    dir: String,
    condition: Condition,
    blocks: u32,
    seed: u64,
    commit: String,
    facts: facts::Facts,
    arms: Vec<Arm>,
}

/// Every further line.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    block: u32,
    arm: usize,
    wall_ns: u64,
    cpu_user_ns: u64,
    cpu_kernel_ns: u64,
    device_bytes: Option<u64>,
    machine_busy_ns: Option<u64>,
    failure: Option<String>,
}

/// Arms of the programs in `bin`, and du.
fn known_peers(bin: Option<&Path>) -> Vec<String> {
    let mut arms = vec!["du=du -s {dir}".to_owned()];
    let Some(bin) = bin else { return arms };
    let known = [
        ("diskus", "-j {threads} {dir}"),
        ("pdu", "--threads {threads} --max-depth 1 {dir}"),
        ("dust", "-P -T {threads} -d 0 {dir}"),
        ("dua", "-t {threads} aggregate {dir}"),
    ];
    for (program, arguments) in known {
        let path = bin.join(program);
        if path.is_file() {
            arms.push(format!("{program}={} {arguments}", path.display()));
        }
    }
    arms
}

/// The arms of one template: one per thread count if it asks for one.
fn arms_of(template: &str, ours: bool, dir: &str, threads: &[u32]) -> Result<Vec<Arm>> {
    let (name, command) =
        template.split_once('=').with_context(|| format!("'{template}' is not NAME=COMMAND"))?;
    let words = shlex::split(command).with_context(|| format!("cannot split '{command}'"))?;
    ensure!(!words.is_empty(), "'{template}' names no program");
    let fill = |count: Option<u32>| {
        let count = count.map(|count| count.to_string()).unwrap_or_default();
        words.iter().map(|w| w.replace("{dir}", dir).replace("{threads}", &count)).collect()
    };
    if !command.contains("{threads}") {
        return Ok(vec![Arm { name: name.to_owned(), ours, command: fill(None) }]);
    }
    let arm =
        |count: &u32| Arm { name: format!("{name} -j{count}"), ours, command: fill(Some(*count)) };
    Ok(threads.iter().map(arm).collect())
}

fn setup(cli: &Cli, dir: &Path) -> Result<Setup> {
    let text = dir.to_str().context("the directory's path must be UTF-8")?;
    let mut arms = Vec::new();
    for template in &cli.ours {
        arms.extend(arms_of(template, true, text, &cli.threads)?);
    }
    for template in cli.arm.iter().chain(&known_peers(cli.peers.as_deref())) {
        arms.extend(arms_of(template, false, text, &cli.threads)?);
    }
    Ok(Setup {
        schema: "ioloom-walk-versus-1".to_owned(),
        dir: text.to_owned(),
        condition: cli.condition,
        blocks: cli.blocks,
        seed: cli.seed,
        commit: facts::commit(),
        facts: facts::Facts::of(dir),
        arms,
    })
}

/// Makes the condition for a run of `arm`.
fn before_run(setup: &Setup, arm: &Arm) -> Result<()> {
    if setup.condition == Condition::Cold {
        ioloom_sys::cache::drop_everything().context("cannot drop the caches of the machine")?;
        // Loading the program from the device is no part of the walk.
        let quiet = Command::new(&arm.command[0])
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.with_context(|| format!("cannot start {}", arm.command[0]))?;
    }
    Ok(())
}

fn run_one(setup: &Setup, block: u32, arm: usize, deadline: Duration) -> Result<Run> {
    let command: Vec<OsString> = setup.arms[arm].command.iter().map(OsString::from).collect();
    before_run(setup, &setup.arms[arm])?;
    let (read, busy) = (setup.facts.medium.read_bytes(), child::machine_busy_ns());
    let finished = child::run(&command, None, deadline)?;
    let growth = |before: Option<u64>, after: Option<u64>| {
        before.zip(after).map(|(before, after)| after.saturating_sub(before))
    };
    Ok(Run {
        block,
        arm,
        wall_ns: finished.wall_ns,
        cpu_user_ns: finished.cpu_user_ns,
        cpu_kernel_ns: finished.cpu_kernel_ns,
        device_bytes: growth(read, setup.facts.medium.read_bytes()),
        machine_busy_ns: growth(busy, child::machine_busy_ns()),
        failure: finished.failure,
    })
}

fn measure(cli: &Cli, dir: &Path, out: &Path) -> Result<()> {
    let cold = cli.condition == Condition::Cold;
    ensure!(!cold || cli.drop_caches, "cold drops the caches of the machine; add --drop-caches");
    let used = std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!used, "{} is not empty", out.display());
    let setup = setup(cli, &dir.canonicalize().context("cannot use the directory")?)?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut raw = File::create(out.join(RAW)).context("cannot make the raw data")?;
    let mut keep = |line: String| writeln!(raw, "{line}").context("cannot keep a run");
    keep(serde_json::to_string(&setup)?)?;
    let deadline = Duration::from_secs(cli.deadline_s);
    for (block, order) in (0..).zip(order::blocks(cli.seed, cli.blocks, setup.arms.len())) {
        if !cold {
            // The first one to walk would find less in memory than the others.
            run_one(&setup, block, 0, deadline)?;
        }
        for arm in order {
            let run = run_one(&setup, block, arm, deadline)?;
            let name = &setup.arms[arm].name;
            let seconds = run.wall_ns as f64 / 1e9;
            let _ = writeln!(std::io::stderr(), "block {block} {name}: {seconds:.3} s");
            keep(serde_json::to_string(&run)?)?;
        }
    }
    Ok(())
}

/// Whether a run counts: it ended well, and if cold it read from the device.
fn counts(setup: &Setup, run: &Run, device_bytes_least: u64) -> bool {
    let cold = setup.condition == Condition::Cold;
    run.failure.is_none() && (!cold || run.device_bytes.is_none_or(|b| b >= device_bytes_least))
}

fn summary(setup: &Setup, runs: &[Run]) -> Result<(String, bool)> {
    let first = runs.iter().find_map(|run| run.device_bytes).unwrap_or(0);
    let counted: Vec<_> = runs.iter().filter(|run| counts(setup, run, first / 2)).collect();
    let mut text = format!(
        "# Walkers beside each other\n\n{:?}, {} blocks, seed {}, commit {}\n\n{} on {} cores, {}\n\n\
         Ratios: the arm over {}, paired by block, 95 % interval; above 1 ours was better.\n\n\
         | arm | runs | wall s (median, min-max) | cpu s | wall ratio | cpu ratio | device MB |\n\
         |---|---|---|---|---|---|---|\n",
        setup.condition,
        setup.blocks,
        setup.seed,
        setup.commit,
        setup.facts.cpu_model,
        setup.facts.cores,
        setup.facts.kernel,
        setup.arms[0].name,
    );
    for (number, arm) in setup.arms.iter().enumerate() {
        row(&mut text, number, arm, &counted, setup.seed)?;
    }
    let lost = runs.len() - counted.len();
    if lost > 0 {
        writeln!(text, "\n{lost} runs do not count (failed, or not cold).")?;
    }
    for run in runs.iter().filter(|run| run.failure.is_some()) {
        let (name, why) = (&setup.arms[run.arm].name, run.failure.as_deref().unwrap_or_default());
        writeln!(text, "- {name}, block {}: {why}", run.block)?;
    }
    Ok((text, lost == 0 && runs.len() == setup.arms.len() * setup.blocks as usize))
}

fn row(text: &mut String, number: usize, arm: &Arm, runs: &[&Run], seed: u64) -> Result<()> {
    let own: Vec<_> = runs.iter().filter(|run| run.arm == number).collect();
    let wall_s: Vec<f64> = own.iter().map(|run| run.wall_ns as f64 / 1e9).collect();
    if wall_s.is_empty() {
        writeln!(text, "| {} | 0 | | | | | |", arm.name)?;
        return Ok(());
    }
    let cpu = |run: &Run| (run.cpu_user_ns + run.cpu_kernel_ns) as f64 / 1e9;
    let cpu_s: Vec<f64> = own.iter().map(|run| cpu(run)).collect();
    let device: Vec<f64> =
        own.iter().filter_map(|run| run.device_bytes).map(|bytes| bytes as f64 / 1e6).collect();
    let ratio = |value: &dyn Fn(&Run) -> f64| {
        let pairs: Vec<(f64, f64)> = own
            .iter()
            .filter_map(|run| {
                let mut others = runs.iter().filter(|other| other.block == run.block);
                Some((value(run), value(others.find(|other| other.arm == 0)?)))
            })
            .collect();
        let (arm, ours): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        Ratio::of(&arm, &ours, seed).map_or_else(
            |_| "-".to_owned(),
            |r| format!("{:.2} [{:.2}, {:.2}]", r.ratio, r.lo, r.hi),
        )
    };
    let (wall, cpus) = (Summary::of(&wall_s)?, Summary::of(&cpu_s)?);
    writeln!(
        text,
        "| {} | {} | {:.3} ({:.3}-{:.3}) | {:.3} | {} | {} | {} |",
        arm.name,
        own.len(),
        wall.median,
        wall.min,
        wall.max,
        cpus.median,
        if number == 0 { "1".to_owned() } else { ratio(&|run| run.wall_ns as f64) },
        if number == 0 { "1".to_owned() } else { ratio(&cpu) },
        Summary::of(&device).map_or_else(|_| String::new(), |d| format!("{:.0}", d.median)),
    )?;
    Ok(())
}

/// Makes the summary from the raw data, prints and keeps it; whether every run counted.
fn show(out: &Path) -> Result<bool> {
    let path = out.join(RAW);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = text.lines();
    let setup: Setup = serde_json::from_str(lines.next().context("the raw data are empty")?)?;
    let runs = lines.map(serde_json::from_str).collect::<Result<Vec<Run>, _>>()?;
    let (text, complete) = summary(&setup, &runs)?;
    std::fs::write(out.join("summary.md"), &text).context("cannot keep the summary")?;
    write!(std::io::stdout(), "{text}").context("cannot print the summary")?;
    Ok(complete)
}

fn run(cli: &Cli) -> Result<bool> {
    if let Some(from) = &cli.from {
        return show(from);
    }
    let (Some(dir), Some(out)) = (&cli.dir, &cli.out) else {
        bail!("give --dir and --out to measure, or --from to summarise a kept result");
    };
    measure(cli, dir, out)?;
    show(out)
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "walk_versus: {error:#}");
            ExitCode::FAILURE
        }
    }
}
