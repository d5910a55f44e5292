//! Work on one list of files by many hosts, without a server: files and renames are the protocol.
//!
//! A [`Plan`](plan::Plan) is a directory: one [`manifest`] per shard, with the names of its files, and a
//! list of all manifests with their checksums. A worker runs one shard and writes one [`part`] with
//! the result of each file, under a temporary name that is synced and then renamed. A
//! [`census`](census::census) of the parts finds which shards are complete, missing, double,
//! damaged, or of another plan, and [`summary`] combines what the parts say about hosts and time.
//!
//! Whatever is killed at any moment, a part is either complete or absent: its first line contains a
//! checksum over the rest. A shard that runs twice replaces its part by an equal one, so its result
//! counts once, while commands that it ran have run twice.
//!
//! Cost: a manifest holds the bytes of its paths and one byte each; a part about 30 to 150 bytes per
//! file. Planning holds all paths in memory, a worker those of its shard, and a census about
//! a kilobyte per shard.

pub mod census;
pub mod copied;
mod durable;
mod envelope;
mod error;
pub mod manifest;
pub mod part;
pub mod plan;
mod raw;
pub mod record;
pub mod summary;
pub mod usage;

pub use error::{Invalid, ShardError};
pub use raw::Raw;
