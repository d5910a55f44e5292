//! How far a queue is: counters of its streams, and what its workers last reported.

use crate::error::QueueError;
use crate::link::{Link, Queue, now_ns};
use crate::parked::{self, Parked};
use crate::terms::{Terms, WorkerReport};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

/// Parked shards that a status describes.
const PARKED_SHOWN: usize = 100;
/// Requests in flight while the reports of workers are read.
const REQUESTS: usize = 64;
/// A shard is slow if it takes so many times the mean of all.
const SLOW: u64 = 3;
/// A worker that was silent for so many leases is taken for dead.
const SILENT_LEASES: u64 = 2;

/// Counters of a queue. They were read one after another while workers went on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Leases that are queued or running.
    pub queued: u64,
    /// Shards whose result is committed.
    pub done: u64,
    /// Shards that failed too often.
    pub parked: u64,
}

/// How far a queue is.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Its terms.
    pub terms: Terms,
    /// Whether all shards were queued; otherwise the submission was interrupted or goes on.
    pub submitted: bool,
    /// The work, as the first worker announced it.
    pub work: Option<String>,
    /// Its counters.
    pub counts: Counts,
    /// The last report of each worker, ended ones included.
    pub workers: Vec<WorkerReport>,
    /// The first parked shards.
    pub parked: Vec<Parked>,
    /// When it was read, in nanoseconds since 1970.
    pub now_ns: u64,
}

impl Status {
    /// Returns whether every shard is done or parked.
    pub fn is_finished(&self) -> bool {
        self.counts.done + self.counts.parked >= self.terms.shards
    }

    /// Returns the workers that run a shard now.
    pub fn running(&self) -> impl Iterator<Item = (&WorkerReport, u64, u64)> {
        let oldest = SILENT_LEASES * self.terms.lease_ms.max(1000) * 1_000_000;
        let alive =
            move |w: &&WorkerReport| !w.ended && self.now_ns.saturating_sub(w.seen_ns) <= oldest;
        self.workers.iter().filter(alive).filter_map(|worker| {
            let (shard, since_ns) = worker.current?;
            Some((worker, shard, self.now_ns.saturating_sub(since_ns)))
        })
    }

    /// Returns the mean duration of a shard, if there is one.
    pub fn mean_ns(&self) -> Option<u64> {
        let shards: u64 = self.workers.iter().map(|w| w.shards + w.late).sum();
        let busy: u64 = self.workers.iter().map(|w| w.busy_ns).sum();
        busy.checked_div(shards)
    }

    /// Returns the running shards that take much longer than the mean.
    pub fn stragglers(&self) -> Vec<u64> {
        let Some(mean) = self.mean_ns() else { return Vec::new() };
        let slow = |(_, shard, ns): (_, u64, u64)| (ns > SLOW * mean).then_some(shard);
        self.running().filter_map(slow).collect()
    }

    /// Returns shards per second since the first worker started.
    pub fn shards_per_s(&self) -> Option<f64> {
        let started = self.workers.iter().map(|w| w.started_ns).min()?;
        let last = self.workers.iter().map(|w| w.seen_ns).max()?;
        let end = if self.running().next().is_some() { self.now_ns } else { last };
        let elapsed_s = end.saturating_sub(started) as f64 / 1e9;
        (elapsed_s > 0.0 && self.counts.done > 0).then(|| self.counts.done as f64 / elapsed_s)
    }

    /// Returns the time that is left at this rate, in nanoseconds.
    pub fn left_ns(&self) -> Option<f64> {
        let left = self.terms.shards.saturating_sub(self.counts.done + self.counts.parked);
        Some(left as f64 / self.shards_per_s()? * 1e9)
    }
}

impl Queue {
    /// Returns how far the queue is.
    ///
    /// # Errors
    /// The queue does not exist, or the server does not answer.
    pub fn status(&self) -> Result<Status, QueueError> {
        self.runtime.block_on(status(&self.link))
    }
}

pub(crate) async fn counts(link: &Link) -> Result<Counts, QueueError> {
    // The leases first: one that is gone by then has its results in the counter that is read later.
    let queued = link.stream(&link.names.work).await?.cached_info().state.messages;
    let done = link.stream(&link.names.done).await?.cached_info().state.messages;
    let base = link.stream(&link.names.base).await?;
    let parked = parked::numbers(link, &base).await?.len() as u64;
    Ok(Counts { queued, done, parked })
}

async fn status(link: &Link) -> Result<Status, QueueError> {
    let terms = link.terms().await?;
    let mut counts = counts(link).await?;
    let base = link.stream(&link.names.base).await?;
    let subject = &link.names.subject;
    if counts.parked > 0 && counts.done + counts.parked > terms.shards {
        parked::settle_all(link).await?;
    }
    let numbers = parked::numbers(link, &base).await?;
    counts.parked = numbers.len() as u64;
    let parked = parked::list(link, &base, &numbers[..numbers.len().min(PARKED_SHOWN)]).await?;
    let work = link.last_of(&base, &format!("{subject}.work-of")).await?;
    let submitted = link.submitted().await? >= terms.shards;
    Ok(Status {
        submitted,
        work: work.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        counts,
        workers: workers(link).await?,
        parked,
        now_ns: now_ns(),
        terms,
    })
}

async fn workers(link: &Link) -> Result<Vec<WorkerReport>, QueueError> {
    let base = link.stream(&link.names.base).await?;
    let filter = format!("{}.worker.*", link.names.subject);
    let subjects = base.info_with_subjects(filter).await.map_err(|e| link.failed("read", e))?;
    let subjects: Vec<(String, usize)> =
        subjects.try_collect().await.map_err(|e| link.failed("read", e))?;
    let base = &base;
    let read = stream::iter(subjects).map(|(subject, _)| async move {
        let bytes = link.last_of(base, &subject).await?;
        Ok::<_, QueueError>(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    });
    let found: Vec<Option<WorkerReport>> = read.buffered(REQUESTS).try_collect().await?;
    let mut workers: Vec<WorkerReport> = found.into_iter().flatten().collect();
    workers.sort_by_key(|worker| (worker.started_ns, worker.pid));
    Ok(workers)
}
