//! Leases of numbered shards from a NATS JetStream server.
//!
//! A queue hands out the shards `1..=N` of a plan to workers on any host, and counts each result once.
//! Workers bring the plan, the work and the paths with them. What the queue stores about them is for people
//! to read (the announced work, the errors of parked shards): no worker executes or opens it, so a client
//! that can publish to the queue can neither choose what a worker runs nor where it reads and writes.
//!
//! # Protocol
//!
//! Five streams belong to a queue `Q`:
//!
//! - `ioloom-Q-work` holds leases: one message for a range of shards, with retention by
//!   acknowledgement. A worker acknowledges a message after the results of all its shards are
//!   committed, and extends the lease meanwhile; if it ends, the server delivers the message again.
//! - `ioloom-Q-done` holds one message per finished shard and refuses a second one on its subject. That
//!   refusal is the only sign that a shard was finished before. Every other failed publication may
//!   have been stored, so the worker reads the subject until it knows.
//! - `ioloom-Q-failed` holds one message per shard that has failed files, stored before its result: the number of messages
//!   is the number of such shards, whatever becomes of their workers.
//! - `ioloom-Q-parked` holds one message per shard that failed too often ("parked").
//! - `ioloom-Q` holds the terms, the work that the first worker announced, and what workers last reported.
//!
//! All subjects but that of the terms, and the name of the consumer, contain the time at which the queue was
//! created: a name can be used again, and workers of the queue that was removed cannot reach the new one.
//!
//! A range that is delivered again is split into single shards, so that a shard which ends its workers
//! is found; its tries are counted from then on. A shard delivered more often than the terms allow is parked with its error.
//! The payload of a shard that is queued again contains its tries and its failures that were not counted as tries.
//! Messages can be delivered and published twice at any point; only commits count. After a crash, the
//! server can deliver a lease as if it were new, so a shard that is done can be handed out again.
//!
//! # Cost
//!
//! A shard costs a commit, which the server stores while the worker runs the next shard, and its share of a pull and an
//! acknowledgement. A
//! worker holds one range. `Status` reads counters, and one message per worker and per parked shard that it shows.
//!
//! Functions block; the runtime of the client is inside `Queue`. Without the feature `nats` the crate
//! is empty.
#![cfg(feature = "nats")]

mod address;
mod commit;
mod error;
mod holding;
mod instance;
mod link;
mod parked;
mod patience;
mod pause;
mod reporting;
mod stalled;
mod status;
mod submit;
mod terms;
mod ticket;
mod worker;

pub use address::Address;
pub use commit::Committed;
pub use error::QueueError;
pub use link::Queue;
pub use parked::Parked;
pub use stalled::Stalled;
pub use status::{Counts, Status};
pub use submit::Submitted;
pub use terms::{Terms, WorkerReport};
pub use worker::{Next, Worker};
