//! `serve_versus`: the exchange compared with redis, and with itself, in one interleaved
//! experiment.
//!
//! Both servers get the same load from the same client, redis-benchmark: the exchange answers `BUY
//! 1 1`; redis answers `DECRBY` and a script that checks the stock first, like `BUY`. Every run
//! starts a new server in an empty directory on a free loopback port, with server and client pinned
//! to different CPUs. It counts only if the final stock is lower by exactly the number of requests.
//! All arms run once per block in a seeded random order, so disturbances affect all arms alike.
//! Every run is written to `raw.jsonl` before the next one starts; `summary.md` is generated from
//! that file alone.
//!
//! A client that saturates its CPU hides the server's headroom, so the server's CPU time per
//! request is shown next to its rate.

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

/// Compare the exchange with redis; write README.md, raw.jsonl and summary.md.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Directory for the result; must be empty or absent.
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    out: Option<PathBuf>,
    /// Summarize an existing result again.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    from: Option<PathBuf>,
    /// Our server, `NAME=PROGRAM serve FLAG…`; level, stocks and address are added. May be
    /// repeated: the parts redis and idle compare all, the others use the first.
    #[arg(long, value_name = "TEMPLATE", required_unless_present = "from")]
    ours: Vec<String>,
    /// Directory for the servers' data, on the medium to be measured.
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    scratch: Option<PathBuf>,
    /// The parts to run.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "redis,levels,idle,tail")]
    parts: Vec<Part>,
    /// Levels for the part redis; `each` has no counterpart in redis.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,os,group")]
    levels: Vec<Level>,
    /// Numbers of connections for the part redis.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16,64")]
    connections: Vec<u32>,
    /// Requests in flight per connection for the part redis.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16")]
    pipeline: Vec<u32>,
    /// Numbers of idle connections for the part idle.
    #[arg(long, value_name = "N", default_value = "10000")]
    idle: u32,
    /// Models for the part tail.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', default_value = arms::MODELS)]
    models: Vec<String>,
    /// Number of runs per arm.
    #[arg(long, default_value = "8")]
    blocks: u32,
    /// Approximate duration of each run; determines the number of requests before the first block.
    #[arg(long, default_value = "0.5")]
    seconds: f64,
    /// Seed of the orders and intervals.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Revision the program was built from (default: the commit of the working directory).
    #[arg(long)]
    commit: Option<String>,
    /// Kill the client after this many seconds.
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

/// Summarizes the raw data. Returns whether every run counted.
fn show(out: &Path) -> Result<bool> {
    let (setup, runs): (record::Setup, Vec<record::Run>) = kept::read(out)?;
    kept::publish(out, &summary::markdown(&setup, &runs)?)?;
    let expected = setup.arms.len() * setup.blocks as usize;
    Ok(runs.len() == expected && runs.iter().all(|run| run.failure.is_none()))
}
