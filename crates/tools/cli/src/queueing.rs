//! What workers and `shard` have in common about queues: addresses, connections and errors.

use crate::exit::{Exit, Failure};
use ioloom_queue::{Address, Queue, QueueError};

/// Reads the address of a queue.
pub(crate) fn address(url: &str) -> Result<Address, Failure> {
    url.parse().map_err(|error| Failure::usage(format!("invalid --queue '{}': {error}", hide(url))))
}

/// Connects to the server of a queue.
pub(crate) fn connect(url: &str) -> Result<Queue, Failure> {
    Queue::connect(&address(url)?).map_err(failure)
}

/// Returns an address without what is before its host, which may be a password.
fn hide(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => url.to_owned(),
    }
}

/// Returns the failure of a command: what was given does not fit the queue (2), or the queue cannot be
/// used (1).
pub(crate) fn failure(error: QueueError) -> Failure {
    let exit = match &error {
        QueueError::Address { .. }
        | QueueError::Credentials { .. }
        | QueueError::Denied { .. }
        | QueueError::OtherPlan { .. }
        | QueueError::OtherQueue { .. }
        | QueueError::OtherWork { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
