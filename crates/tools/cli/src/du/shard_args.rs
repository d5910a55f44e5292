//! Flags of `du` for shards.

use crate::each::{Number, number};
use clap::Args;
use std::path::PathBuf;

/// Flags that change what is counted or printed. The plan and `shard merge` decide both for shards.
const OTHERS: [&str; 36] = [
    "paths",
    "all",
    "summarize",
    "separate_dirs",
    "max_depth",
    "human_readable",
    "si",
    "bytes",
    "apparent_size",
    "inodes",
    "block_size",
    "kib",
    "mib",
    "zero",
    "time_style",
    "total",
    "count_links",
    "one_file_system",
    "one_mount",
    "all_file_systems",
    "dereference",
    "dereference_args",
    "exclude",
    "exclude_from",
    "threshold",
    "time",
    "top",
    "files0_from",
    "tree",
    "lines",
    "interactive",
    "import",
    "export_ncdu",
    "save",
    "svg",
    "diff",
];

/// Flags that select a shard of a plan.
#[derive(Debug, Clone, Args)]
pub(crate) struct Sharding {
    /// Scan shard I of the N shards of a plan
    ///
    /// `ioloom shard plan --subtrees` makes the plan, and --manifest names it. Run each shard once, on any
    /// host that sees the tree by the same path; `ioloom shard merge` adds up the parts.
    #[arg(long, value_name = "I/N", requires_all = ["manifest", "part"], value_parser = number,
          group = "sharded", conflicts_with_all = OTHERS)]
    pub(crate) shard: Option<Number>,

    /// Take shards from a queue until none is left
    ///
    /// The URL is nats://HOST[:PORT]/NAME or tls://HOST[:PORT]/NAME; `ioloom shard submit` makes the queue.
    #[arg(long, value_name = "URL", requires_all = ["manifest", "part"], group = "sharded",
          conflicts_with_all = OTHERS, conflicts_with = "redo")]
    pub(crate) queue: Option<String>,

    /// Plan that lists the subtrees of each shard
    #[arg(long, value_name = "PLAN", requires = "sharded")]
    pub(crate) manifest: Option<PathBuf>,

    /// Write the result of the shard to this directory
    ///
    /// The file part-NNNNNN is complete or absent. If it exists and is valid, the shard is skipped.
    #[arg(long, value_name = "DIR", requires = "sharded")]
    pub(crate) part: Option<PathBuf>,

    /// Run the shard although its part exists
    #[arg(long, requires = "part")]
    pub(crate) redo: bool,

    /// Name of this worker in the timeline of the result
    #[arg(long, value_name = "NAME", requires = "part")]
    pub(crate) worker: Option<String>,
}
