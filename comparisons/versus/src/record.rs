//! The raw data: one JSON document per line, the setup first, then one line per run.

use crate::cli::{Condition, Input};
use ioloom_versus::facts::Facts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A serialized line, tagged with its kind.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(crate) enum Line<'a> {
    Setup(&'a Setup),
    Run(&'a Run),
}

/// Properties shared by all runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) schema: u32,
    pub(crate) facts: Facts,
    pub(crate) commit: String,
    pub(crate) condition: Condition,
    /// `drop-caches`, `fadvise`, `read-all` or `drop-caches, read-all`.
    pub(crate) condition_made_by: String,
    pub(crate) input: Input,
    pub(crate) blocks: u32,
    pub(crate) seed: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// The peers' digest of the file set, computed by the runner before the first run.
    pub(crate) digest_sum: String,
    /// The digest over sorted lines `HEX  PATH`, also computed by the runner.
    pub(crate) digest_combined: String,
    pub(crate) arms: Vec<ArmFacts>,
    /// Arms that cannot run here, with reasons.
    pub(crate) refused: BTreeMap<String, String>,
    /// Order of the arms in each block, as indices into `arms`.
    pub(crate) orders: Vec<Vec<usize>>,
}

/// An arm in the raw data; `{dir}` and the like replace the paths of this machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ArmFacts {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) command: Vec<String>,
    /// First line of `PROGRAM --version`.
    pub(crate) version: String,
    /// XXH3-64 of the program file.
    pub(crate) program_xxh3: String,
}

/// Kind of an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Ours,
    Peer,
    /// The minimum of system calls, with hashing: the limit for hand-written code.
    Lean,
    /// The same without hashing: the kernel floor, not a peer.
    Floor,
    Fio,
}

/// One run of one arm.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) arm: String,
    pub(crate) block: u32,
    /// Position in the block, from 0.
    pub(crate) position: u32,
    pub(crate) started_unix_ms: u64,
    /// Wall time of the whole process, from before its start to after its exit: the primary figure.
    pub(crate) wall_ns: u64,
    /// The program's own figure.
    pub(crate) elapsed_ns: Option<u64>,
    pub(crate) files: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) digest: Option<String>,
    /// Peak resident memory as reported by the program.
    pub(crate) peak_rss_bytes: Option<u64>,
    /// CPU time of the whole process and of the children it waited for.
    pub(crate) cpu_user_ns: u64,
    pub(crate) cpu_kernel_ns: u64,
    /// Bytes charged to the process as read from a device.
    pub(crate) process_read_bytes: u64,
    /// CPU time of all other processes divided by wall time × cores; `None` without /proc/stat.
    pub(crate) others_cpu: Option<f64>,
    pub(crate) proof: Proof,
    /// Why the run does not count; `None` if it did its work.
    pub(crate) failure: Option<String>,
}

impl Run {
    /// Returns whether it counts in the statistics.
    pub(crate) fn counts(&self) -> bool {
        self.failure.is_none() && self.proof.doubt.is_none()
    }

    /// Returns user plus system time in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_user_ns + self.cpu_kernel_ns
    }
}

/// The evidence for the condition of one run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Proof {
    pub(crate) sampled_files: u64,
    pub(crate) sampled_pages: u64,
    /// Share of sampled pages in memory before the run; `None` without cachestat.
    pub(crate) resident_pages: Option<u64>,
    /// Bytes that the device read during the run, for all processes; `None` without a known device.
    pub(crate) device_bytes: Option<u64>,
    /// Bytes of data in the file set.
    pub(crate) data_bytes: u64,
    /// Why the condition is not proved; `None` if it is.
    pub(crate) doubt: Option<String>,
}
