//! What can go wrong with a queue, and what to do about it.

/// A failed operation on a queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The address is invalid.
    #[error("{reason}")]
    Address {
        /// What is wrong with it.
        reason: String,
    },
    /// A credential of the environment cannot be used.
    #[error("cannot use {variable}: {reason}")]
    Credentials {
        /// The name of the variable.
        variable: &'static str,
        /// Why it cannot be used.
        reason: String,
    },
    /// The server cannot be reached, or refuses the client.
    #[error("cannot connect to {queue}: {reason}")]
    Connect {
        /// The queue.
        queue: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The queue does not exist.
    #[error(
        "cannot open {queue}: the server has no such queue; create it with 'ioloom shard submit'"
    )]
    Missing {
        /// The queue.
        queue: String,
    },
    /// The submission of the queue was interrupted before it could be used.
    #[error(
        "cannot use {queue}: its submission did not end; run 'ioloom shard submit' with its plan again"
    )]
    Unfinished {
        /// The queue.
        queue: String,
    },
    /// The user of the server may not do this.
    #[error(
        "cannot use {queue}: the server denied permission: {reason}; allow the user JetStream and the subjects _INBOX.> and ioloom.>"
    )]
    Denied {
        /// The queue.
        queue: String,
        /// What the server said.
        reason: String,
    },
    /// The queue was removed while it was in use.
    #[error("cannot continue with {queue}: it was removed from the server")]
    Removed {
        /// The queue.
        queue: String,
    },
    /// The queue hands out the shards of another plan.
    #[error(
        "cannot use {queue}: it has the shards of another plan ({found}, not {wanted}); name its \
             plan, or choose another queue"
    )]
    OtherPlan {
        /// The queue.
        queue: String,
        /// The checksum of its plan.
        found: String,
        /// The checksum of the plan that was given.
        wanted: String,
    },
    /// A stream of the queue has the name of one of another queue.
    #[error(
        "cannot {action} {queue}: its stream {stream} is one of another queue and has '{found}'; \
             choose another name, or remove the other queue first"
    )]
    OtherQueue {
        /// The operation.
        action: &'static str,
        /// The queue.
        queue: String,
        /// The name of the stream.
        stream: String,
        /// A subject of the stream.
        found: String,
    },
    /// Other workers of the queue do other work.
    #[error(
        "cannot join {queue}: its workers run '{found}', not '{wanted}'; use the same flags, or \
             another queue"
    )]
    OtherWork {
        /// The queue.
        queue: String,
        /// Their work.
        found: String,
        /// The work of this process.
        wanted: String,
    },
    /// Leases are missing from the queue.
    #[error(
        "cannot finish {queue}: {shards} of its shards are neither done nor queued; run 'ioloom \
             shard submit' again"
    )]
    Lost {
        /// The queue.
        queue: String,
        /// The number of shards.
        shards: u64,
    },
    /// The server has no `JetStream`, and had none since the connection was made.
    #[error(
        "cannot {action} {queue}: the server has no JetStream; start it with 'nats-server -js'"
    )]
    NoJetStream {
        /// The operation.
        action: &'static str,
        /// The queue.
        queue: String,
    },
    /// The server did not answer, or answered with an error.
    #[error("cannot {action} {queue}: {reason}")]
    Server {
        /// The operation.
        action: &'static str,
        /// The queue.
        queue: String,
        /// Why it failed.
        reason: String,
    },
}
