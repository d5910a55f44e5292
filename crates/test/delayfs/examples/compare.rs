//! Compares commands on one delay file system, in interleaved blocks:
//!
//! ```text
//! compare DIR OUT BLOCKS 'FILE-SYSTEM ARGUMENTS' 'ARM=COMMAND'…
//! compare OUT
//! ```
//!
//! Each block runs every command once, in a random order from a fixed seed, by `sh -c`, with `{dir}`
//! replaced by the mount point `DIR`. The time is that of the whole process. A command prints the
//! JSON of `ioloom each --json`; a run counts only if it processed all files and the file system
//! returned each byte exactly once, so nothing came from a cache. Ratios refer to the first arm and to
//! the fastest. `OUT/raw.jsonl` receives one line per run, and `OUT/summary.md` is made from it alone;
//! the second form repeats only that.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use ioloom_delayfs::{Counters, DelayFs, Mounted, Options};
use ioloom_stats::{Bootstrap, Interval, Ratio};
use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SEED: u64 = 1;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [out] => summarize(Path::new(out)),
        [dir, out, blocks, options, arms @ ..] if !arms.is_empty() => {
            let options = Options::parse(options.split_whitespace())?;
            let split = |arm: &String| {
                Some(arm.split_once('=')?).map(|(n, c)| (n.to_owned(), c.to_owned()))
            };
            let arms: Option<Vec<(String, String)>> = arms.iter().map(split).collect();
            let arms = arms.ok_or("an arm is NAME=COMMAND")?;
            fs::create_dir_all(out)?;
            let mounted = DelayFs::mount(Path::new(dir), options)?;
            run_all(&mounted, Path::new(out), blocks.parse()?, &arms)?;
            summarize(Path::new(out))
        }
        _ => Err("usage: compare DIR OUT BLOCKS 'ARGUMENTS' 'ARM=COMMAND'… | compare OUT".into()),
    }
}

fn run_all(mounted: &Mounted, out: &Path, blocks: usize, arms: &[(String, String)]) -> Result<()> {
    let mut raw = File::create(out.join("raw.jsonl"))?;
    let mut state = SEED;
    for block in 0..blocks {
        let mut order: Vec<usize> = (0..arms.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, (next(&mut state) % (i as u64 + 1)) as usize);
        }
        for arm in order {
            let (name, command) = &arms[arm];
            let mut line = run(mounted, command)?;
            line["block"] = block.into();
            line["arm"] = name.as_str().into();
            line["position"] = arm.into();
            writeln!(raw, "{line}")?;
            println!("{line}");
        }
    }
    Ok(())
}

/// A step of a linear congruential generator, high bits.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
    *state >> 33
}

/// Runs a command and returns its record.
fn run(mounted: &Mounted, command: &str) -> Result<Value> {
    let command = command.replace("{dir}", &mounted.root().to_string_lossy());
    mounted.reset();
    let before = ticks_of_children()?;
    let start = Instant::now();
    let child = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).output()?;
    let wall = start.elapsed();
    let after = ticks_of_children()?;
    let seen = mounted.counters();
    let said: Value = serde_json::from_slice(&child.stdout).unwrap_or_default();
    Ok(json!({
        "command": command,
        "wall_ns": wall.as_nanos() as u64,
        "user_ticks": after.0 - before.0,
        "system_ticks": after.1 - before.1,
        "load": fs::read_to_string("/proc/loadavg")?.split(' ').next(),
        "failure": failure(mounted, child.status.success(), &said, seen),
        "elapsed_ns": said["elapsed_ns"],
        "method": said["method"],
        "schedule": said["schedule"],
        "digest": said["digest"],
        "counters": seen.to_string(),
    }))
}

/// Returns why a run does not count.
fn failure(mounted: &Mounted, success: bool, said: &Value, seen: Counters) -> Option<String> {
    let files = mounted.paths().len();
    let bytes: u64 = (0..files).map(|file| mounted.size(file)).sum();
    if !success {
        Some("its exit code is not zero".to_owned())
    } else if said["files"] != files || said["bytes"] != bytes {
        Some(format!("it reports {} files and {} bytes", said["files"], said["bytes"]))
    } else if seen.bytes != bytes || seen.opens != files as u64 {
        Some("the file system did not return each byte once".to_owned())
    } else {
        None
    }
}

/// Returns the user and system time of children that have been waited for, in clock ticks.
fn ticks_of_children() -> Result<(u64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?.1;
    let field = |n: usize| -> Result<u64> {
        Ok(fields.split_whitespace().nth(n).ok_or("/proc/self/stat is short")?.parse()?)
    };
    Ok((field(13)?, field(14)?))
}

/// The runs of one command that count.
#[derive(Default)]
struct Arm {
    name: String,
    command: String,
    position: u64,
    /// Block and seconds.
    walls: Vec<(u64, f64)>,
    cpu_s: Vec<f64>,
    counters: Vec<Counters>,
    failures: Vec<String>,
}

fn read(out: &Path) -> Result<Vec<Arm>> {
    let mut arms: Vec<Arm> = Vec::new();
    for line in fs::read_to_string(out.join("raw.jsonl"))?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| line[key].as_u64().unwrap_or_default();
        let at = arms.iter().position(|arm| arm.name == text("arm")).unwrap_or_else(|| {
            let (name, command, position) = (text("arm"), text("command"), number("position"));
            arms.push(Arm { name, command, position, ..Arm::default() });
            arms.len() - 1
        });
        if !line["failure"].is_null() {
            arms[at].failures.push(format!("block {}: {}", number("block"), text("failure")));
            continue;
        }
        arms[at].walls.push((number("block"), number("wall_ns") as f64 / 1e9));
        // A clock tick of Linux is a hundredth of a second.
        arms[at].cpu_s.push((number("user_ticks") + number("system_ticks")) as f64 / 100.0);
        arms[at].counters.push(text("counters").parse()?);
    }
    arms.sort_by_key(|arm| arm.position);
    Ok(arms)
}

/// Returns `a / b` over the blocks that both have.
fn ratio(a: &Arm, b: &Arm) -> Result<String> {
    let pairs = a.walls.iter().filter_map(|(block, wall)| {
        Some((*wall, b.walls.iter().find(|(other, _)| other == block)?.1))
    });
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let Ratio { ratio, lo, hi, .. } = Ratio::of(&a, &b)?;
    Ok(format!("{ratio:.3} [{lo:.3}, {hi:.3}]"))
}

fn summarize(out: &Path) -> Result<()> {
    let arms = read(out)?;
    let mut text = String::from("# Summary\n\n");
    let first = arms.first().ok_or("no runs")?;
    writeln!(
        text,
        "Made from `raw.jsonl` by the example `compare` of `ioloom-delayfs`. Times are wall times of \
         the whole process, medians over blocks; brackets are 95 % bootstrap intervals. Ratios are \
         paired by block; above 1, the arm of the row is slower.\n"
    )?;
    let seconds: Vec<(&Arm, Interval)> = arms
        .iter()
        .map(|arm| {
            let walls: Vec<f64> = arm.walls.iter().map(|(_, wall)| *wall).collect();
            Ok((arm, Bootstrap::new(SEED).median(&walls)?))
        })
        .collect::<Result<_>>()?;
    let best = seconds.iter().min_by(|a, b| a.1.estimate.total_cmp(&b.1.estimate));
    let best = best.ok_or("no runs")?.0;
    let (one, two) = (&first.name, &best.name);
    writeln!(
        text,
        "| arm | n | wall s | over `{one}` | over `{two}`, the fastest | CPU s | peak of opens | peak of reads |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|"
    )?;
    for (arm, wall) in &seconds {
        let peak = |of: fn(&Counters) -> u64| {
            let least = arm.counters.iter().map(of).min().unwrap_or_default();
            let most = arm.counters.iter().map(of).max().unwrap_or_default();
            format!("{least} to {most}")
        };
        writeln!(
            text,
            "| {} | {} | {:.3} [{:.3}, {:.3}] | {} | {} | {:.2} | {} | {} |",
            arm.name,
            arm.walls.len(),
            wall.estimate,
            wall.lo,
            wall.hi,
            ratio(arm, first)?,
            ratio(arm, best)?,
            ioloom_stats::median(&arm.cpu_s),
            peak(|seen| seen.opens_peak),
            peak(|seen| seen.reads_peak),
        )?;
    }
    text.push_str("\n## Commands\n\n");
    for arm in &arms {
        writeln!(text, "- {}: `{}`", arm.name, arm.command)?;
    }
    text.push_str("\n## Runs that do not count\n\n");
    let failures: Vec<String> = arms
        .iter()
        .flat_map(|arm| arm.failures.iter().map(|why| format!("- {}, {why}\n", arm.name)))
        .collect();
    text.push_str(if failures.is_empty() { "None.\n" } else { "" });
    text.extend(failures);
    fs::write(out.join("summary.md"), &text)?;
    println!("{text}");
    Ok(())
}
