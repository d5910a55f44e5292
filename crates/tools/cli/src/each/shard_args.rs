//! Flags of `each` for shards.

use clap::Args;
use std::path::PathBuf;

/// Flags that select a shard of a plan.
#[derive(Debug, Clone, Args)]
pub(crate) struct Sharding {
    /// Process shard I of the N shards of a plan
    ///
    /// `ioloom shard plan` makes the plan, and --manifest names it. Run each shard once, on any host
    /// that sees the files by the same paths; `ioloom shard merge` combines the parts.
    #[arg(long, value_name = "I/N", requires = "manifest", value_parser = number,
          group = "sharded",
          conflicts_with_all = ["paths", "check", "dereference", "one_file_system", "exclude",
                                "ignore", "skip_hidden"])]
    pub(crate) shard: Option<Number>,

    /// Take shards from a queue until none is left
    ///
    /// The URL is nats://HOST[:PORT]/NAME or tls://HOST[:PORT]/NAME; `ioloom shard submit` makes
    /// the queue. Any number of workers can take shards; the shard of a killed worker goes to
    /// another one. --manifest names the plan and --part the directory of parts. Needs a build with
    /// the cargo feature queue.
    #[arg(long, value_name = "URL", requires_all = ["manifest", "part"], group = "sharded",
          conflicts_with_all = ["paths", "check", "dereference", "one_file_system", "exclude",
                                "ignore", "skip_hidden", "redo", "trace", "explain"])]
    pub(crate) queue: Option<String>,

    /// Plan that lists the files of each shard
    #[arg(long, value_name = "PLAN", requires = "sharded")]
    pub(crate) manifest: Option<PathBuf>,

    /// Write the result of the shard to this directory
    ///
    /// The file part-NNNNNN is synced and renamed when the shard is done, so it is complete or absent.
    /// If it exists and is valid, the shard is skipped; a damaged one is replaced. The exit code is 1
    /// if files failed, also when the shard is skipped.
    #[arg(long, value_name = "DIR", requires = "sharded")]
    pub(crate) part: Option<PathBuf>,

    /// Run the shard although its part exists
    ///
    /// An existing file that is not recognised as a part is moved to part-NNNNNN.damaged-N.
    #[arg(long, requires = "part")]
    pub(crate) redo: bool,

    /// Name of this worker in the timeline of the result
    #[arg(long, value_name = "NAME", requires = "part")]
    pub(crate) worker: Option<String>,
}

/// Shard I of N.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) shard: u64,
    pub(crate) of: u64,
}

pub(crate) fn number(text: &str) -> Result<Number, String> {
    let parts = text.split_once('/');
    let parsed = parts.and_then(|(shard, of)| Some((shard.parse().ok()?, of.parse().ok()?)));
    match parsed {
        Some((shard, of)) if shard >= 1 && shard <= of => Ok(Number { shard, of }),
        Some(_) => Err("shards are numbered from 1 to N".to_owned()),
        None => Err("must be I/N, for example 3/128".to_owned()),
    }
}
