//! Creates a queue and fills it with leases.

use crate::error::QueueError;
use crate::instance::Instance;
use crate::link::{Link, Queue};
use crate::parked;
use crate::terms::{Stored, Terms, VERSION};
use crate::ticket::{SHARDS_PER_LEASE_MAX, Ticket};
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::time::Duration;

/// The most leases in flight at all workers.
const LEASES_MAX: i64 = 100_000;
/// The most workers that wait for a lease.
const WAITING_MAX: i64 = 100_000;
/// Messages that wait for the server to store them.
const STORING: usize = 256;
/// A queue has about so many leases, unless it has fewer shards.
const LEASES: u64 = 10_000;
/// Leases between two notes of how far a submission is.
const LEASES_PER_STEP: u64 = 500;

/// What a submission did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The terms of the queue: those given, or those of the queue that existed.
    pub terms: Terms,
    /// Leases that were queued.
    pub leases: u64,
    /// Shards in these leases.
    pub shards: u64,
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
    link.check_streams("use").await?;
    create(link, base(link)).await?;
    let queue = Instance::new(link.clone(), agree(link, terms).await?);
    for config in streams(&queue) {
        create(link, config).await?;
    }
    create_consumer(&queue).await?;
    let shards = queue.terms.shards;
    let terms = queue.terms.clone();
    let mut submitted = Submitted { terms, leases: 0, shards: 0, unparked: 0 };
    if let Some(after) = missing_after(&queue).await? {
        submitted.shards = shards.saturating_sub(after);
        submitted.leases = queue_after(&queue, after, shards).await?;
    }
    if unpark {
        submitted.unparked = unpark_all(&queue).await?;
    }
    Ok(submitted)
}

/// Queues all parked shards again and returns their number.
async fn unpark_all(queue: &Instance) -> Result<u64, QueueError> {
    // A shard that is parked again while this runs must remain parked.
    let stream = queue.stream(&queue.names.parked).await?;
    let through = stream.cached_info().state.last_sequence;
    parked::settle_all(queue).await?;
    let shards = parked::numbers(queue).await?;
    // First the lease: a shard that is queued and parked is settled when it is done.
    let leases = lease(queue, shards.iter().map(|shard| Ticket::new(*shard, *shard))).await?;
    for shard in shards {
        parked::remove(queue, shard, through).await?;
    }
    Ok(leases)
}

async fn create(link: &Link, config: Config) -> Result<(), QueueError> {
    let created = link.context.get_or_create_stream(config).await;
    // Another queue can have made it since its name was checked.
    link.check_stream("use", &created.map_err(|e| link.failed("create", e))?)
}

fn common() -> Config {
    Config {
        storage: StorageType::File,
        num_replicas: 1,
        max_consumers: -1,
        max_messages: -1,
        max_bytes: -1,
        max_messages_per_subject: 1,
        discard: DiscardPolicy::Old,
        ..Config::default()
    }
}

/// The stream of the terms accepts subjects of all instances, because it exists before there are terms.
fn base(link: &Link) -> Config {
    let subject = &link.names.subject;
    let kinds = ["terms", "*.submitted", "*.work-of", "*.worker.*"];
    Config {
        name: link.names.base.clone(),
        subjects: kinds.map(|kind| format!("{subject}.{kind}")).to_vec(),
        ..common()
    }
}

/// The other streams accept subjects of this instance only.
fn streams(queue: &Instance) -> [Config; 4] {
    let work = Config {
        name: queue.names.work.clone(),
        subjects: vec![queue.work_subject()],
        retention: RetentionPolicy::WorkQueue,
        max_messages_per_subject: -1,
        ..common()
    };
    let done = Config {
        name: queue.names.done.clone(),
        subjects: vec![queue.subject("done.*")],
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        ..common()
    };
    let last = |name: &str, kind| Config {
        name: name.to_owned(),
        subjects: vec![queue.subject(kind)],
        ..common()
    };
    let names = &queue.names;
    [work, done, last(&names.parked, "parked.*"), last(&names.failed, "failed.*")]
}

/// Stores the terms unless the queue has terms, and returns what is stored.
async fn agree(link: &Link, terms: &Terms) -> Result<Stored, QueueError> {
    let subject = format!("{}.terms", link.names.subject);
    let stored = Stored { version: VERSION, terms: terms.clone() };
    let payload = serde_json::to_vec(&stored).unwrap_or_default();
    if let Some(error) = store_first(link, &subject, payload).await? {
        let found = link.stored().await.map_err(|_| error)?;
        if found.terms.plan != terms.plan {
            return Err(QueueError::OtherPlan {
                queue: link.queue.clone(),
                found: found.terms.plan,
                wanted: terms.plan.clone(),
            });
        }
        return Ok(found);
    }
    Ok(stored)
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

/// Returns the name of the durable consumer that all workers share.
pub(crate) fn consumer(terms: &Terms) -> String {
    format!("workers-{}", terms.created_ns)
}

async fn create_consumer(queue: &Instance) -> Result<(), QueueError> {
    let name = consumer(&queue.terms);
    let config = pull::Config {
        durable_name: Some(name.clone()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_millis(queue.terms.lease_ms),
        max_ack_pending: LEASES_MAX,
        max_waiting: WAITING_MAX,
        max_deliver: -1,
        ..pull::Config::default()
    };
    let work = queue.stream(&queue.names.work).await?;
    let created = work.get_or_create_consumer(&name, config).await;
    created.map(drop).map_err(|e| queue.failed("create", e))
}

/// Returns the shard after which shards may be missing from the queue: a submission did not end, or
/// nothing is queued although shards are not finished.
async fn missing_after(queue: &Instance) -> Result<Option<u64>, QueueError> {
    let shards = queue.terms.shards;
    let through = queue.submitted().await?;
    if through < shards {
        return Ok(Some(through));
    }
    let counts = crate::status::counts(queue).await?;
    let lost = counts.queued == 0 && counts.finished() < shards;
    Ok(lost.then_some(0))
}

/// Queues the shards after one, and stores from time to time how far it is: a submission that is
/// interrupted and repeated queues few shards twice.
async fn queue_after(queue: &Instance, after: u64, shards: u64) -> Result<u64, QueueError> {
    let per_lease = (shards / LEASES).clamp(1, SHARDS_PER_LEASE_MAX);
    let (mut through, mut leases) = (after, 0);
    while through < shards {
        let last = shards.min(through + per_lease * LEASES_PER_STEP);
        let firsts = (through + 1..=last).step_by(per_lease as usize);
        leases +=
            lease(queue, firsts.map(|first| Ticket::new(first, last.min(first + per_lease - 1))))
                .await?;
        through = last;
        queue.store(&queue.submitted_subject(), through.to_string().into_bytes()).await?;
    }
    Ok(leases)
}

/// Queues leases and returns their number.
pub(crate) async fn lease(
    queue: &Instance,
    tickets: impl Iterator<Item = Ticket>,
) -> Result<u64, QueueError> {
    let subject = &queue.work_subject();
    let stored = stream::iter(tickets)
        .map(|ticket| async move { queue.store(subject, queue.payload(&ticket)).await });
    let mut stored = stored.buffer_unordered(STORING);
    let mut leases = 0;
    while stored.try_next().await?.is_some() {
        leases += 1;
    }
    Ok(leases)
}
