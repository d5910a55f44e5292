//! What a queue says about itself, and what its workers report.

use serde::{Deserialize, Serialize};

/// The version of the messages of new queues.
pub(crate) const VERSION: u32 = 2;

/// The first version whose leases can have a history. Workers of earlier ones discard such leases.
pub(crate) const WITH_HISTORY: u32 = 2;

/// What a queue hands out, and how. Fixed when it is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The checksum that identifies the plan.
    pub plan: String,
    /// The number of shards, from 1.
    pub shards: u64,
    /// The number of files in all shards.
    pub files: u64,
    /// How long a worker may be silent before its shards go to another one, in milliseconds.
    pub lease_ms: u64,
    /// How often a shard may be begun before it is parked.
    pub tries: u32,
    /// When the queue was created, in nanoseconds since 1970.
    pub created_ns: u64,
}

/// What is stored about the queue.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) version: u32,
    pub(crate) terms: Terms,
}

/// What a worker says about itself. Published every second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// The name of the host.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The name that the user gave this worker.
    pub worker: Option<String>,
    /// When it started, in nanoseconds since 1970.
    pub started_ns: u64,
    /// When it published this, in nanoseconds since 1970.
    pub seen_ns: u64,
    /// Shards of which its result counts.
    pub shards: u64,
    /// Shards that another worker had finished before.
    pub late: u64,
    /// Shards that it could not finish, each time counted.
    pub failed: u64,
    /// Files of its shards that were processed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files of its shards that failed.
    pub errors: u64,
    /// The duration of its shards together, in nanoseconds.
    pub busy_ns: u64,
    /// What limited its last shard, in a word.
    pub limited_by: Option<String>,
    /// The shard that it runs, and since when in nanoseconds since 1970.
    pub current: Option<(u64, u64)>,
    /// Whether it has ended by itself.
    pub ended: bool,
}
