//! Shards that failed too often.
//!
//! A shard can be parked by one worker and committed by another one whose lease had run out. Each of
//! them looks for the message of the other after it has stored its own, so at least one of them sees
//! both, and a commit wins. [`settle`] does the same for what a killed worker left.

use crate::error::QueueError;
use crate::link::Link;
use async_nats::jetstream::stream::Stream;
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
pub(crate) async fn park(link: &Link, parked: &Parked) -> Result<(), QueueError> {
    let subject = link.parked_subject(parked.shard);
    link.store(&subject, serde_json::to_vec(parked).unwrap_or_default()).await?;
    settle(link, parked.shard).await
}

/// Removes the message about a parked shard if the shard is done.
pub(crate) async fn settle(link: &Link, shard: u64) -> Result<(), QueueError> {
    if link.committed(shard).await?.is_some() {
        remove(link, shard).await?;
    }
    Ok(())
}

pub(crate) async fn remove(link: &Link, shard: u64) -> Result<(), QueueError> {
    let stream = link.stream(&link.names.base).await?;
    let purged = stream.purge().filter(link.parked_subject(shard)).await;
    purged.map(drop).map_err(|e| link.failed("change", e))
}

/// Removes the message about a shard that was committed now, if it was parked. A failure is settled later.
pub(crate) async fn remove_if_parked(link: &Link, shard: u64) {
    let Ok(base) = link.context.get_stream_no_info(&link.names.base).await else { return };
    if let Ok(Some(_)) = link.last_of(&base, &link.parked_subject(shard)).await {
        let _ = remove(link, shard).await;
    }
}

/// Returns the numbers of all parked shards.
pub(crate) async fn numbers(link: &Link, base: &Stream) -> Result<Vec<u64>, QueueError> {
    let filter = format!("{}.parked.>", link.names.subject);
    let mut subjects = base.info_with_subjects(filter).await.map_err(|e| link.failed("read", e))?;
    let mut numbers = Vec::new();
    while let Some((subject, _)) = subjects.try_next().await.map_err(|e| link.failed("read", e))? {
        numbers.extend(subject.rsplit('.').next().and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the first parked shards.
pub(crate) async fn list(
    link: &Link,
    base: &Stream,
    numbers: &[u64],
) -> Result<Vec<Parked>, QueueError> {
    let read = stream::iter(numbers.to_owned()).map(|shard| async move {
        let found = link.last_of(base, &link.parked_subject(shard)).await?;
        Ok::<_, QueueError>(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    });
    let found: Vec<Option<Parked>> = read.buffered(REQUESTS).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// Settles all parked shards.
pub(crate) async fn settle_all(link: &Link) -> Result<(), QueueError> {
    let base = link.stream(&link.names.base).await?;
    let shards = numbers(link, &base).await?;
    let settled = stream::iter(shards).map(|shard| settle(link, shard));
    settled.buffer_unordered(REQUESTS).try_for_each(|()| async { Ok(()) }).await
}
