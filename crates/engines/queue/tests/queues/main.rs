//! Queues on a real server: who gets which shard, and which result counts.
#![cfg(feature = "nats")]

mod commits;
mod connection;
mod leases;
mod setup;
mod stops;
mod submissions;
mod tries;
