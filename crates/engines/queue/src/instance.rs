//! A queue from its creation to its removal.
//!
//! A name can be used again for another plan. So the streams of leases, results, parked and failed shards
//! accept only subjects with the time at which the queue was created, and a worker of a queue that was
//! removed can neither take nor commit anything in the one that has its name now.

use crate::error::QueueError;
use crate::link::Link;
use crate::terms::{Stored, Terms};
use crate::ticket::Ticket;
use std::ops::Deref;

/// A queue with the terms that it was created with.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    link: Link,
    pub(crate) terms: Terms,
    version: u32,
}

impl Deref for Instance {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl Instance {
    pub(crate) fn new(link: Link, stored: Stored) -> Self {
        Self { link, terms: stored.terms, version: stored.version }
    }

    /// Reads the terms of the queue that exists now.
    pub(crate) async fn open(link: &Link) -> Result<Self, QueueError> {
        Ok(Self::new(link.clone(), link.stored().await?))
    }

    /// Returns the payload of a lease that all workers of this queue can read.
    pub(crate) fn payload(&self, ticket: &Ticket) -> Vec<u8> {
        ticket.text_of(self.version).into_bytes()
    }

    /// Returns an error if the queue was removed, even if there is a new one of its name.
    pub(crate) async fn check(&self) -> Result<(), QueueError> {
        match self.link.terms().await {
            Ok(terms) if terms == self.terms => Ok(()),
            Ok(_) | Err(QueueError::Missing { .. }) => {
                Err(QueueError::Removed { queue: self.link.queue.clone() })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns what it means that a stream or the consumer is missing: the queue was removed, or its submission
    /// was interrupted before it had made them.
    pub(crate) async fn explain(&self, error: QueueError) -> QueueError {
        match self.check().await {
            Ok(()) => QueueError::Unfinished { queue: self.link.queue.clone() },
            Err(gone @ QueueError::Removed { .. }) => gone,
            Err(_) => error,
        }
    }

    /// Stores a message and waits until the server has stored it. That no stream takes it means that the queue was
    /// removed only if its terms are gone, too: JetStream can be off for a while.
    pub(crate) async fn store(&self, subject: &str, payload: Vec<u8>) -> Result<(), QueueError> {
        match self.link.store(subject, payload).await {
            Err(gone @ QueueError::Removed { .. }) => Err(self.cause(gone).await),
            stored => stored,
        }
    }

    /// Returns the cause of an error: the server does not say whether the queue was removed.
    pub(crate) async fn cause(&self, error: QueueError) -> QueueError {
        match self.check().await {
            Err(removed @ QueueError::Removed { .. }) => removed,
            _ => self.unless_removed(error),
        }
    }

    /// Returns the error of a queue that exists.
    pub(crate) fn unless_removed(&self, error: QueueError) -> QueueError {
        match error {
            QueueError::Removed { .. } => self.failed("write to", "no stream took it"),
            other => other,
        }
    }

    /// Returns a subject of this instance.
    pub(crate) fn subject(&self, kind: &str) -> String {
        format!("{}.{}.{kind}", self.link.names.subject, self.terms.created_ns)
    }

    pub(crate) fn work_subject(&self) -> String {
        self.subject("work")
    }

    pub(crate) fn done_subject(&self, shard: u64) -> String {
        self.subject(&format!("done.{shard}"))
    }

    pub(crate) fn parked_subject(&self, shard: u64) -> String {
        self.subject(&format!("parked.{shard}"))
    }

    pub(crate) fn failed_subject(&self, shard: u64) -> String {
        self.subject(&format!("failed.{shard}"))
    }

    pub(crate) fn submitted_subject(&self) -> String {
        self.subject("submitted")
    }

    pub(crate) fn work_of_subject(&self) -> String {
        self.subject("work-of")
    }

    /// Returns the last shard of those that were queued.
    pub(crate) async fn submitted(&self) -> Result<u64, QueueError> {
        let stored = self.last_in(&self.names.base, &self.submitted_subject()).await?;
        let stored = stored.unwrap_or_default();
        Ok(std::str::from_utf8(&stored).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// Returns the result of a shard, if it was committed.
    pub(crate) async fn committed(&self, shard: u64) -> Result<Option<Vec<u8>>, QueueError> {
        self.last_in(&self.names.done, &self.done_subject(shard)).await
    }

    /// Returns whether a shard is parked.
    pub(crate) async fn is_parked(&self, shard: u64) -> Result<bool, QueueError> {
        let found = self.last_in(&self.names.parked, &self.parked_subject(shard)).await?;
        Ok(found.is_some())
    }

    /// Returns the last message on a subject of a stream.
    pub(crate) async fn last_in(
        &self,
        stream: &str,
        subject: &str,
    ) -> Result<Option<Vec<u8>>, QueueError> {
        let stream = self.context.get_stream_no_info(stream).await;
        let stream = stream.map_err(|e| self.failed("read", e))?;
        self.last_of(&stream, subject).await
    }
}
