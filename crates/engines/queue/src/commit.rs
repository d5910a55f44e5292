//! Commits of results, which go on while the worker runs its next shard.
//!
//! A worker has at most one commit under way. The lease of its shard is acknowledged when the commit has ended.
//! A worker that ends before loses the lease, and another one finds the shard committed or runs it again.

use crate::error::QueueError;
use crate::instance::Instance;
use crate::parked;
use crate::patience::{Patience, hurried, patiently};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What became of a result.
#[derive(Debug, PartialEq, Eq)]
pub enum Committed {
    /// It counts.
    Counted,
    /// Another worker had finished the shard before.
    Late,
}

/// A result as stored: which run found it, and what it found.
#[derive(Debug, Serialize, Deserialize)]
struct Outcome {
    run: String,
    found: Value,
}

/// A result of a shard that is to be stored.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) queue: Instance,
    pub(crate) shard: u64,
    /// The name of the run, which no other run has.
    pub(crate) run: String,
    pub(crate) found: Value,
    /// Files that failed.
    pub(crate) failed_files: u64,
    /// Raised when the user wants the worker to end.
    pub(crate) stop: Arc<AtomicBool>,
}

impl Commit {
    /// Stores the result. Repeats while it is unknown whether the server has stored it.
    pub(crate) async fn store(&self) -> Result<Committed, QueueError> {
        let Self { queue, shard, stop, .. } = self;
        if self.failed_files > 0 {
            let (subject, failed) = (queue.failed_subject(*shard), self.failed_files.to_string());
            patiently(queue, stop, || queue.store(&subject, failed.clone().into_bytes())).await?;
        }
        let outcome = Outcome { run: self.run.clone(), found: self.found.clone() };
        let payload = serde_json::to_vec(&outcome).unwrap_or_default();
        let (subject, mut patience) = (queue.done_subject(*shard), Patience::new(stop));
        loop {
            let storing = queue.store(&subject, payload.clone());
            let Err(refused) = hurried(queue, stop, storing).await else { break };
            // Refused because the shard is done, or it may have been stored: the server knows.
            match hurried(queue, stop, queue.committed(*shard)).await {
                Ok(Some(first)) if is_of(&first, &self.run) => break,
                Ok(Some(_)) => {
                    patiently(queue, stop, || parked::settle(queue, *shard)).await?;
                    return Ok(Committed::Late);
                }
                Ok(None) => {
                    // A queue that was removed stores nothing, nor does a server that starts.
                    queue.check().await.or_else(|e| match e {
                        gone @ QueueError::Removed { .. } => Err(gone),
                        _ => Ok(()),
                    })?;
                    patience.bear(refused).await?;
                }
                Err(error) => patience.bear(error).await?,
            }
        }
        Ok(Committed::Counted)
    }
}

/// Returns whether a stored result is that of a run.
fn is_of(stored: &[u8], run: &str) -> bool {
    serde_json::from_slice::<Outcome>(stored).is_ok_and(|outcome| outcome.run == run)
}
