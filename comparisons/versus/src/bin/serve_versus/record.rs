//! What is kept: one line for the setup, one for each run.

use crate::arms::Arm;
use anyhow::{Context, Result};
use ioloom_versus::facts::Facts;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Name of the file with the runs.
pub(crate) const RAW: &str = "raw.jsonl";
/// What the raw data say that they are.
pub(crate) const SCHEMA: &str = "ioloom-serve-versus-1";

/// The first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) schema: String,
    pub(crate) commit: String,
    pub(crate) facts: Facts,
    pub(crate) blocks: u32,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    /// Processors of the server and of the client; equal where there is one.
    pub(crate) cores: (u32, u32),
    /// What the programs say they are: ours, redis-server, redis-benchmark.
    pub(crate) versions: Vec<String>,
    /// Median time of appending 4 KiB to a file and syncing its data, before the first block, ns.
    pub(crate) sync_ns: u64,
    pub(crate) arms: Vec<Arm>,
}

/// Every further line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) block: u32,
    pub(crate) arm: usize,
    pub(crate) started_unix_ms: u64,
    /// Answers per second, as the client tells; of the part tail in a closed loop.
    pub(crate) rate_per_s: f64,
    /// Half, and 99 of a hundred, of the latencies are at most this, as the client tells.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Of the part tail: the rate that was offered, the latency of 999 of a thousand from when they were
    /// due, and why the load was the bottleneck, if it was.
    pub(crate) offered_per_s: Option<f64>,
    pub(crate) p999_ms: Option<f64>,
    pub(crate) load_was_late: Option<String>,
    /// Processor time of the server while it was loaded, and the requests of that time.
    pub(crate) server_cpu_ns: u64,
    pub(crate) requests: u64,
    /// Memory of the server before and while silent connections are open, where there are any.
    pub(crate) pss_before_bytes: Option<u64>,
    pub(crate) pss_bytes: Option<u64>,
    pub(crate) failure: Option<String>,
}

impl Run {
    /// Processor time of the server for each request, µs.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.server_cpu_ns as f64 / 1e3 / self.requests.max(1) as f64
    }

    /// Share of its processor that the server used.
    pub(crate) fn busy(&self) -> f64 {
        self.cpu_us() * self.rate_per_s / 1e6
    }
}

/// The file that runs are added to.
pub(crate) struct Raw(File);

impl Raw {
    pub(crate) fn create(out: &Path, setup: &Setup) -> Result<Self> {
        let mut raw = Self(File::create_new(out.join(RAW)).context("cannot make the raw data")?);
        raw.add(setup)?;
        Ok(raw)
    }

    pub(crate) fn add(&mut self, line: &impl Serialize) -> Result<()> {
        writeln!(self.0, "{}", serde_json::to_string(line)?).context("cannot keep a run")
    }
}

/// What a directory of a result holds.
pub(crate) fn read(out: &Path) -> Result<(Setup, Vec<Run>)> {
    let path = out.join(RAW);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = text.lines();
    let setup = serde_json::from_str(lines.next().context("the raw data are empty")?)?;
    let runs = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok((setup, runs))
}
