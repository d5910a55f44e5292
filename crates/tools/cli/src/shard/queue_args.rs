//! Flags of the commands for queues, which builds without queues have, too, and refuse.
#![cfg_attr(not(feature = "queue"), allow(dead_code, reason = "only queues read them"))]

use clap::Args;
use std::path::PathBuf;

/// Queue the shards of a plan on a NATS server
///
/// Creates the queue if it does not exist, and puts every shard of the plan into it. Workers take them
/// with `ioloom each --queue`. Run it again if it was interrupted: a shard that is queued twice counts
/// once. The queue holds numbers and checksums, not the plan, which workers read from shared storage.
///
/// Needs a build with the cargo feature queue.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  nats-server -js &
  ioloom shard submit data.shards --queue nats://localhost/hash
  ioloom each --queue nats://localhost/hash --manifest data.shards --part parts

Unless the URL has a user, with %XX for special characters, the variables
NATS_CREDS, NATS_NKEY, NATS_TOKEN, NATS_USER and NATS_PASSWORD authenticate;
NATS_CA, NATS_CERT and NATS_KEY name files for TLS.")]
pub(super) struct SubmitArgs {
    /// Plan that lists the shards
    #[arg(required_unless_present = "remove")]
    pub(super) plan: Option<PathBuf>,

    /// Queue: nats://HOST[:PORT]/NAME, or tls://HOST[:PORT]/NAME
    #[arg(long, value_name = "URL")]
    pub(super) queue: String,

    /// Seconds without contact after which a worker loses its shards
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) lease: u32,

    /// How often a shard is tried before it is parked
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) tries: u32,

    /// Queue parked shards again
    #[arg(long)]
    pub(super) unpark: bool,

    /// Remove the queue from the server; parts remain
    #[arg(long, conflicts_with_all = ["plan", "unpark", "lease", "tries"])]
    pub(super) remove: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Follow a queue until it is finished
///
/// Prints a line whenever something has changed, and at the end the status. The exit code is 1 if shards
/// were parked or files failed. Needs a build with the cargo feature queue.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom shard watch --queue nats://localhost/hash
  ioloom shard watch --queue nats://localhost/hash --interval 10")]
pub(super) struct WatchArgs {
    /// Queue: nats://HOST[:PORT]/NAME, or tls://HOST[:PORT]/NAME
    #[arg(long, value_name = "URL")]
    pub(super) queue: String,

    /// Seconds between two queries
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) interval: u32,

    /// Print each status as a line of JSON
    #[arg(long)]
    pub(super) json: bool,
}
