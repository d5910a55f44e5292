//! `ioloom shard`: splits a list of files into shards for many hosts, and combines their parts.
//!
//! The crate `ioloom-shard` defines plans and parts; `each`, `du` and `cp` with `--shard` write the parts.

mod combine;
mod copied;
mod merge;
mod operands;
mod plan;
#[cfg(feature = "queue")]
mod queue;
mod queue_args;
mod report;
mod status;
#[cfg(feature = "queue")]
mod submit;
mod subtrees;
mod text;
mod usage;

use crate::exit::Ended;
use clap::{Args, Subcommand};

/// Process files in shards on many hosts
///
/// plan lists the files once and writes a manifest for each shard. Workers on any host run
/// `ioloom each --shard I/N --manifest PLAN --part DIR`, and merge combines the parts into the result
/// of one `ioloom each`. A plan with --subtrees does the same for `ioloom du` and `ioloom cp`. Plan, parts and
/// files are on storage that all hosts see by the same paths. No server is needed. The partial output of a
/// killed worker is ignored: run its shard again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom shard plan /data --shards 100          write data.shards
  ioloom each --shard 7/100 --manifest data.shards --part parts
  ioloom shard status data.shards parts         done, running and missing shards
  ioloom shard merge data.shards parts          one result, if none is missing

docs/scale.md shows Slurm arrays, Kubernetes jobs and ssh.")]
pub(crate) struct ShardArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Plan(plan::PlanArgs),
    Merge(merge::MergeArgs),
    Status(status::StatusArgs),
    Submit(queue_args::SubmitArgs),
    Watch(queue_args::WatchArgs),
}

pub(crate) fn run(args: &ShardArgs) -> Ended {
    match &args.command {
        Command::Plan(args) => plan::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Status(args) => status::run(args),
        #[cfg(feature = "queue")]
        Command::Submit(args) => submit::run(args),
        #[cfg(feature = "queue")]
        Command::Watch(args) => queue::watch(args),
        #[cfg(not(feature = "queue"))]
        Command::Submit(_) | Command::Watch(_) => Err(crate::sharding::no_queues()),
    }
}
