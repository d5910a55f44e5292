//! `versus`: ioloom beside what users would write today, in one interleaved experiment.
//!
//! All arms run on the same files, under the same proved condition, once per block in a random
//! order that a seed decides. The yardstick is the wall time of the whole process as seen from
//! outside, because it is the same for every program; what a program measured of itself stands
//! beside it. Every run goes to `raw.jsonl` before the next one starts, and the summary is made from
//! that file alone.

mod arms;
mod cli;
mod condition;
mod experiment;
mod fio;
mod parse;
mod record;
mod set;
mod summary;

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&cli::Cli::parse()) {
        Ok(complete) => match complete {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        Err(e) => {
            say(&format!("versus: {e:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &cli::Cli) -> Result<bool> {
    if let Some(from) = &cli.from {
        return show(from);
    }
    let Some(plan) = cli.plan()? else {
        bail!("give --dir and --out to measure, or --from to summarise a kept result");
    };
    experiment::run(&plan)?;
    show(&plan.out)
}

/// Makes the summary from the raw data, prints and keeps it. Whether every run counted.
fn show(out: &Path) -> Result<bool> {
    let (setup, runs) = record::read(&out.join(record::RAW))?;
    let text = summary::markdown(&setup, &runs)?;
    let path = out.join("summary.md");
    std::fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    write!(std::io::stdout(), "{text}").context("cannot print the summary")?;
    Ok(summary::is_complete(&setup, &runs))
}

/// One line for the person who watches.
fn say(line: &str) {
    // Progress is no result: a closed stderr does not end an experiment.
    let _ = writeln!(std::io::stderr(), "{line}");
}
