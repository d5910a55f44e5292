//! Shards that failed too often.
//!
//! A shard can be parked by one worker and committed by another one whose lease had run out. Each of
//! them looks for the message of the other after it has stored its own, so at least one of them sees
//! both, and a commit wins. [`settle`] does the same for what a killed worker left.

use crate::error::QueueError;
use crate::instance::Instance;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

/// Requests in flight while parked shards are read.
const REQUESTS: usize = 64;

/// A shard that was begun too often, or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The number of the shard.
    pub shard: u64,
    /// How often it was begun.
    pub tries: u32,
    /// Why its last run failed.
    pub error: String,
    /// The host that parked it.
    pub host: String,
    /// When, in nanoseconds since 1970.
    pub parked_ns: u64,
}

/// Stores that a shard is parked, unless it is done.
pub(crate) async fn park(queue: &Instance, parked: &Parked) -> Result<(), QueueError> {
    let subject = queue.parked_subject(parked.shard);
    queue.store(&subject, serde_json::to_vec(parked).unwrap_or_default()).await?;
    settle(queue, parked.shard).await.map(drop)
}

/// Removes the message about a parked shard if the shard is done. Returns whether it is.
pub(crate) async fn settle(queue: &Instance, shard: u64) -> Result<bool, QueueError> {
    let is_done = queue.committed(shard).await?.is_some();
    if is_done {
        remove(queue, shard, u64::MAX).await?;
    }
    Ok(is_done)
}

/// Removes the message about a parked shard if its number in the stream is at most `through`.
pub(crate) async fn remove(queue: &Instance, shard: u64, through: u64) -> Result<(), QueueError> {
    let stream = queue.context.get_stream_no_info(&queue.names.parked).await;
    let stream = stream.map_err(|e| queue.failed("change", e))?;
    let messages = stream.purge().filter(queue.parked_subject(shard));
    let purged = match through {
        u64::MAX => messages.await,
        through => messages.sequence(through + 1).await,
    };
    purged.map(drop).map_err(|e| queue.failed("change", e))
}

/// Removes the message about a shard that was committed now, if it was parked. A failure is settled later.
pub(crate) async fn remove_if_parked(queue: &Instance, shard: u64) {
    if let Ok(true) = queue.is_parked(shard).await {
        let _ = remove(queue, shard, u64::MAX).await;
    }
}

/// Returns the numbers of all parked shards.
pub(crate) async fn numbers(queue: &Instance) -> Result<Vec<u64>, QueueError> {
    let stream = queue.stream(&queue.names.parked).await?;
    let subjects = stream.info_with_subjects(queue.subject("parked.*")).await;
    let mut subjects = subjects.map_err(|e| queue.failed("read", e))?;
    let mut numbers = Vec::new();
    while let Some((subject, _)) = subjects.try_next().await.map_err(|e| queue.failed("read", e))? {
        numbers.extend(subject.rsplit('.').next().and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns what is stored about parked shards.
pub(crate) async fn list(queue: &Instance, numbers: &[u64]) -> Result<Vec<Parked>, QueueError> {
    let read = stream::iter(numbers.to_owned()).map(|shard| async move {
        let found = queue.last_in(&queue.names.parked, &queue.parked_subject(shard)).await?;
        Ok::<_, QueueError>(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    });
    let found: Vec<Option<Parked>> = read.buffered(REQUESTS).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// Settles all parked shards and returns how many of them are not done. Those that are done can be absent from a
/// counter of results that was read before.
pub(crate) async fn settle_all(queue: &Instance) -> Result<u64, QueueError> {
    let settled = stream::iter(numbers(queue).await?).map(|shard| settle(queue, shard));
    let mut settled = settled.buffer_unordered(REQUESTS);
    let mut parked = 0;
    while let Some(is_done) = settled.try_next().await? {
        parked += u64::from(!is_done);
    }
    Ok(parked)
}
