//! `versus`: compares ioloom with programs that users would write today, in one interleaved
//! experiment.
//!
//! All arms run on the same files, under the same proved condition, once per block in a seeded
//! random order. Ratios use the externally measured wall time of the whole process, because it is
//! the same measure for every program; a program's own figures are shown next to it. Every run is
//! written to `raw.jsonl` before the next one starts, and the summary is generated from that file
//! alone.

mod arms;
mod cli;
mod condition;
mod experiment;
mod fio;
mod parse;
mod record;
mod set;
mod summary;

use anyhow::{Result, bail};
use clap::Parser;
use ioloom_versus::kept;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    kept::exit("versus", run(&cli::Cli::parse()))
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

/// Summarizes the raw data. Returns whether every run counted.
fn show(out: &Path) -> Result<bool> {
    let (setup, runs) = kept::read(out)?;
    kept::publish(out, &summary::markdown(&setup, &runs)?)?;
    Ok(summary::is_complete(&setup, &runs))
}
