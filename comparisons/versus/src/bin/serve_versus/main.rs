//! `serve_versus`: the exchange beside redis, and beside itself, in one interleaved experiment.
//!
//! Both servers get the same crowd from the same client, redis-benchmark: the exchange answers
//! `BUY 1 1`, redis `DECRBY` and a script that looks before it takes, which is what `BUY` does. Every
//! run starts a server of its own on an empty directory and a free port of loopback, held to one
//! processor while the client is held to another, and counts only if the stock at the end is lower by
//! exactly as many as were asked for. All arms run once per block in a random order that a seed
//! decides, so what slows the machine slows all. Every run goes to `raw.jsonl` before the next one
//! starts; `summary.md` is made from that file alone.
//!
//! A client that fills its processor hides what a server could do more, so the processor time of
//! the server for each request stands beside its rate.

mod arms;
mod client;
mod measure;
mod record;
mod server;
mod summary;

use anyhow::{Result, bail};
use arms::{Level, Part};
use clap::Parser;
use ioloom_versus::kept;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the exchange beside redis and keeps README.md, raw.jsonl and summary.md.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Where the result goes; must not exist or be empty.
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    out: Option<PathBuf>,
    /// Only make the summary of a kept result again.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    from: Option<PathBuf>,
    /// Our server, `NAME=PROGRAM serve FLAG…`; level, stocks and address are added. May be repeated;
    /// parts other than redis take the first.
    #[arg(long, value_name = "TEMPLATE", required_unless_present = "from")]
    ours: Vec<String>,
    /// Where servers keep what they keep: a directory on the medium that is to be measured.
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    scratch: Option<PathBuf>,
    /// What is compared.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "redis,levels,idle,tail")]
    parts: Vec<Part>,
    /// Levels of the part redis; each has no counterpart there.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,os,group")]
    levels: Vec<Level>,
    /// Connections of the part redis.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16,64")]
    connections: Vec<u32>,
    /// Requests on their way for each connection, in the part redis.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16")]
    pipeline: Vec<u32>,
    /// Silent connections of the part idle.
    #[arg(long, value_name = "N", default_value = "10000")]
    idle: u32,
    /// Models of the part tail.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', default_value = arms::MODELS)]
    models: Vec<String>,
    /// How often each arm runs.
    #[arg(long, default_value = "8")]
    blocks: u32,
    /// How long each run lasts, about: the number of requests is fixed before the first block.
    #[arg(long, default_value = "0.5")]
    seconds: f64,
    /// Seed of the orders and the intervals.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// What the program was made from, if it is not the commit of the working directory.
    #[arg(long)]
    commit: Option<String>,
    /// A run of the client is killed after this many seconds.
    #[arg(long, default_value = "60")]
    deadline_s: u64,
    /// The peer.
    #[arg(long, value_name = "PROGRAM", default_value = "redis-server")]
    redis_server: String,
    /// The client.
    #[arg(long, value_name = "PROGRAM", default_value = "redis-benchmark")]
    redis_benchmark: String,
}

fn main() -> ExitCode {
    kept::exit("serve_versus", run(&Cli::parse()))
}

fn run(cli: &Cli) -> Result<bool> {
    if let Some(from) = &cli.from {
        return show(from);
    }
    let Some(out) = &cli.out else { bail!("give --out to measure, or --from to summarise") };
    measure::measure(cli, out)?;
    show(out)
}

/// Makes the summary from the raw data; whether every run counted.
fn show(out: &Path) -> Result<bool> {
    let (setup, runs): (record::Setup, Vec<record::Run>) = kept::read(out)?;
    kept::tell(out, &summary::markdown(&setup, &runs)?)?;
    let expected = setup.arms.len() * setup.blocks as usize;
    Ok(runs.len() == expected && runs.iter().all(|run| run.failure.is_none()))
}
