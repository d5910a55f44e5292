//! The raw data: one line for the setup, one for each run.

use crate::arms::Arm;
use ioloom_versus::facts::Facts;
use serde::{Deserialize, Serialize};

/// Kind of the raw data, as stored in them.
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
    /// CPUs of the server and the client; equal if there is only one.
    pub(crate) cores: (u32, u32),
    /// Versions of ours, redis-server and redis-benchmark.
    pub(crate) versions: Vec<String>,
    /// Median time in ns to append 4 KiB to a file and sync its data, before the first block.
    pub(crate) sync_ns: u64,
    pub(crate) arms: Vec<Arm>,
}

/// Every subsequent line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) block: u32,
    pub(crate) arm: usize,
    pub(crate) started_unix_ms: u64,
    /// Answers per second as reported by the client; in a closed loop for the part tail.
    pub(crate) rate_per_s: f64,
    /// Median and 99th percentile of the latency, as reported by the client.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Part tail only: the offered rate, the 99.9th percentile of the latency since requests were
    /// due, and the reason if the load generator was the bottleneck.
    pub(crate) offered_per_s: Option<f64>,
    pub(crate) p999_ms: Option<f64>,
    pub(crate) load_was_late: Option<String>,
    /// CPU time of the server under load, and the number of requests in that time.
    pub(crate) server_cpu_ns: u64,
    pub(crate) requests: u64,
    /// Server memory before and with idle connections, if any.
    pub(crate) pss_before_bytes: Option<u64>,
    pub(crate) pss_bytes: Option<u64>,
    pub(crate) failure: Option<String>,
}

impl Run {
    /// Server CPU time per request in µs.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.server_cpu_ns as f64 / 1e3 / self.requests.max(1) as f64
    }

    /// Share of its CPU used by the server.
    pub(crate) fn busy(&self) -> f64 {
        self.cpu_us() * self.rate_per_s / 1e6
    }
}
