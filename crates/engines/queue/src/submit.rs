//! Creates a queue and fills it with leases.

use crate::error::QueueError;
use crate::link::{Link, Queue};
use crate::parked;
use crate::terms::{Stored, Terms, VERSION};
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::time::Duration;

/// The durable consumer that all workers share.
pub(crate) const CONSUMER: &str = "workers";
/// The most leases in flight at all workers.
const LEASES_MAX: i64 = 100_000;
/// Messages that wait for the server to store them.
const STORING: usize = 256;
/// A queue has about so many leases, unless it has fewer shards.
const LEASES: u64 = 10_000;
/// Leases between two notes of how far a submission is.
const LEASES_PER_STEP: u64 = 500;
/// The most shards of a lease.
pub(crate) const SHARDS_PER_LEASE_MAX: u64 = 100;

/// What a submission did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The terms of the queue: those given, or those of the queue that existed.
    pub terms: Terms,
    /// Leases that were queued.
    pub leases: u64,
    /// Parked shards that were queued again.
    pub unparked: u64,
}

impl Queue {
    /// Creates the queue if it does not exist, and queues all shards. Queues them again if an earlier
    /// submission was interrupted or leases were lost; results that were committed remain and count
    /// once. With `unpark`, queues the parked shards again.
    ///
    /// # Errors
    /// The queue has another plan, or the server does not answer or has no JetStream.
    pub fn submit(&self, terms: &Terms, unpark: bool) -> Result<Submitted, QueueError> {
        self.runtime.block_on(submit(&self.link, terms, unpark))
    }
}

async fn submit(link: &Link, terms: &Terms, unpark: bool) -> Result<Submitted, QueueError> {
    create_streams(link).await?;
    let terms = agree(link, terms).await?;
    create_consumer(link, &terms).await?;
    let mut submitted = Submitted { terms, leases: 0, unparked: 0 };
    if let Some(after) = missing_after(link, submitted.terms.shards).await? {
        submitted.leases = queue_after(link, after, submitted.terms.shards).await?;
    }
    if unpark {
        parked::settle_all(link).await?;
        let base = link.stream(&link.names.base).await?;
        let shards = parked::numbers(link, &base).await?;
        // First the lease: a shard that is queued and parked is settled when it is done.
        submitted.unparked = queue(link, shards.iter().map(|shard| (*shard, *shard))).await?;
        for shard in shards {
            parked::remove(link, shard).await?;
        }
    }
    Ok(submitted)
}

async fn create_streams(link: &Link) -> Result<(), QueueError> {
    let subject = &link.names.subject;
    let own = |suffix: &str| format!("{subject}.{suffix}");
    let common = Config {
        storage: StorageType::File,
        num_replicas: 1,
        max_consumers: -1,
        max_messages: -1,
        max_bytes: -1,
        ..Config::default()
    };
    let base = Config {
        name: link.names.base.clone(),
        subjects: ["terms", "submitted", "work-of", "worker.*", "parked.*"].map(own).to_vec(),
        max_messages_per_subject: 1,
        discard: DiscardPolicy::Old,
        ..common.clone()
    };
    let work = Config {
        name: link.names.work.clone(),
        subjects: vec![own("work")],
        retention: RetentionPolicy::WorkQueue,
        max_messages_per_subject: -1,
        ..common.clone()
    };
    let done = Config {
        name: link.names.done.clone(),
        subjects: vec![own("done.*")],
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        ..common
    };
    for config in [work, done, base] {
        let created = link.context.get_or_create_stream(config).await;
        created.map_err(|e| link.failed("create", e))?;
    }
    Ok(())
}

/// Stores the terms unless the queue has terms, and returns those that it has.
async fn agree(link: &Link, terms: &Terms) -> Result<Terms, QueueError> {
    let subject = format!("{}.terms", link.names.subject);
    let stored = Stored { version: VERSION, terms: terms.clone() };
    let payload = serde_json::to_vec(&stored).unwrap_or_default();
    if let Some(error) = store_first(link, &subject, payload).await? {
        let found = link.terms().await.map_err(|_| error)?;
        if found.plan != terms.plan {
            return Err(QueueError::OtherPlan {
                queue: link.queue.clone(),
                found: found.plan,
                wanted: terms.plan.clone(),
            });
        }
        return Ok(found);
    }
    Ok(terms.clone())
}

/// Stores the first message of a subject. Returns an error if there is one, or may be one.
pub(crate) async fn store_first(
    link: &Link,
    subject: &str,
    payload: Vec<u8>,
) -> Result<Option<QueueError>, QueueError> {
    let message = PublishMessage::build().payload(payload.into()).expected_last_subject_sequence(0);
    let sent = link.context.send_publish(subject.to_owned(), message).await;
    let stored = match sent {
        Ok(stored) => stored.await,
        Err(e) => Err(e),
    };
    match stored {
        Ok(_) => Ok(None),
        Err(e) if e.kind() == PublishErrorKind::StreamNotFound => Err(link.failed("write to", e)),
        Err(e) => Ok(Some(link.failed("write to", e))),
    }
}

async fn create_consumer(link: &Link, terms: &Terms) -> Result<(), QueueError> {
    let config = pull::Config {
        durable_name: Some(CONSUMER.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_millis(terms.lease_ms),
        max_ack_pending: LEASES_MAX,
        max_deliver: -1,
        ..pull::Config::default()
    };
    let work = link.stream(&link.names.work).await?;
    let created = work.get_or_create_consumer(CONSUMER, config).await;
    created.map(drop).map_err(|e| link.failed("create", e))
}

/// Returns the shard after which shards may be missing from the queue: a submission did not end, or
/// nothing is queued although shards are not finished.
async fn missing_after(link: &Link, shards: u64) -> Result<Option<u64>, QueueError> {
    let through = link.submitted().await?;
    if through < shards {
        return Ok(Some(through));
    }
    let counts = crate::status::counts(link).await?;
    let lost = counts.queued == 0 && counts.done + counts.parked < shards;
    Ok(lost.then_some(0))
}

/// Queues the shards after one, and stores from time to time how far it is: a submission that is
/// interrupted and repeated queues few shards twice.
async fn queue_after(link: &Link, after: u64, shards: u64) -> Result<u64, QueueError> {
    let per_lease = (shards / LEASES).clamp(1, SHARDS_PER_LEASE_MAX);
    let (mut through, mut leases) = (after, 0);
    while through < shards {
        let last = shards.min(through + per_lease * LEASES_PER_STEP);
        let firsts = (through + 1..=last).step_by(per_lease as usize);
        leases += queue(link, firsts.map(|first| (first, last.min(first + per_lease - 1)))).await?;
        through = last;
        link.store(&link.submitted_subject(), through.to_string().into_bytes()).await?;
    }
    Ok(leases)
}

/// Queues leases and returns their number.
pub(crate) async fn queue(
    link: &Link,
    ranges: impl Iterator<Item = (u64, u64)>,
) -> Result<u64, QueueError> {
    let subject = format!("{}.work", link.names.subject);
    let stored = stream::iter(ranges).map(|(first, last)| {
        let subject = subject.clone();
        async move { link.store(&subject, format!("{first}-{last}").into_bytes()).await }
    });
    let mut stored = stored.buffer_unordered(STORING);
    let mut leases = 0;
    while stored.try_next().await?.is_some() {
        leases += 1;
    }
    Ok(leases)
}
