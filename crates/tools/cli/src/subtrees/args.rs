//! Flags of `du` and `cp` for shards of a plan of subtrees.

use crate::each::{Number, number};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::PathBuf;

/// Flags that select a shard of a plan.
#[derive(Debug, Clone, Args)]
pub(crate) struct Sharding {
    /// Process shard I of the N shards of a plan
    ///
    /// `ioloom shard plan --subtrees` makes the plan, and --manifest names it. Run each shard once, on any
    /// host that sees the tree by the same path; `ioloom shard merge` combines the parts.
    #[arg(long, value_name = "I/N", requires_all = ["manifest", "part"], value_parser = number,
          group = "sharded")]
    pub(crate) shard: Option<Number>,

    /// Take shards from a queue until none is left
    ///
    /// The URL is nats://HOST[:PORT]/NAME or tls://HOST[:PORT]/NAME; `ioloom shard submit` makes the queue.
    /// Needs a build with the cargo feature queue.
    #[arg(long, value_name = "URL", requires_all = ["manifest", "part"], group = "sharded",
          conflicts_with = "redo")]
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
    ///
    /// An existing file that is not recognised as a part is moved to part-NNNNNN.damaged-N.
    #[arg(long, requires = "part")]
    pub(crate) redo: bool,

    /// Name of this worker in the result
    #[arg(long, value_name = "NAME", requires = "part")]
    pub(crate) worker: Option<String>,
}

/// Names the flags of a command that have no meaning for a shard.
pub(crate) trait Others {
    /// Their identifiers.
    const OTHERS: &'static [&'static str];
}

/// The flags in a command with others.
#[derive(Debug, Clone)]
pub(crate) struct ShardingWith<O>(Sharding, PhantomData<O>);

impl<O> Deref for ShardingWith<O> {
    type Target = Sharding;

    fn deref(&self) -> &Sharding {
        &self.0
    }
}

impl<O: Others> Args for ShardingWith<O> {
    fn augment_args(command: Command) -> Command {
        let apart = |arg: Arg| arg.conflicts_with_all(O::OTHERS);
        Sharding::augment_args(command).mut_arg("shard", apart).mut_arg("queue", apart)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<O> FromArgMatches for ShardingWith<O> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Sharding::from_arg_matches(matches).map(|sharding| Self(sharding, PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}
