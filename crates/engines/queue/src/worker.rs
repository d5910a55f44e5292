//! A worker: takes shards one after another, and commits their results.
//!
//! The lease of a worker is a range of shards. A task extends it three times per lease until the worker
//! acknowledges it, so a worker that is killed, stopped or cut off from the server loses it. Then another
//! worker runs the rest of its shards, and of two results the first one counts.

use crate::error::QueueError;
use crate::link::{Link, PATIENCE, Queue, now_ns, pause, raised};
use crate::parked::{self, Parked};
use crate::status::{Counts, counts};
use crate::submit::{CONSUMER, queue, store_first};
use crate::terms::{Terms, WorkerReport};
use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::message::Acker;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// How long a worker waits for a lease before it looks whether the queue is finished.
const PULL_TIME: Duration = Duration::from_secs(1);
/// Time between two reports of a worker.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// What a worker does next.
#[derive(Debug)]
pub enum Next {
    /// Run this shard.
    Shard(u64),
    /// Every shard is done or parked.
    Finished(Counts),
    /// The flag was raised.
    Stopped,
}

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

/// A range of shards that this worker holds.
struct Lease {
    acker: Arc<Acker>,
    shards: VecDeque<u64>,
    tries: u32,
    extend: JoinHandle<()>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("shards", &self.shards).finish_non_exhaustive()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.extend.abort();
    }
}

/// A member of a queue. Dropping it leaves its shards to others when the lease has run out.
#[derive(Debug)]
pub struct Worker {
    runtime: Arc<Runtime>,
    link: Link,
    terms: Terms,
    consumer: PullConsumer,
    lease: Option<Lease>,
    report: Arc<Mutex<WorkerReport>>,
    /// Commits so far, which distinguish those of a shard that comes twice.
    commits: u64,
    /// The task that publishes the report.
    tell: JoinHandle<()>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tell.abort();
    }
}

impl Queue {
    /// Joins the queue of a plan. All workers of a queue do the same work, which the first one sets;
    /// `work` says what it is in words. Waits for the server while it does not answer.
    ///
    /// # Errors
    /// The queue does not exist, has another plan or other work, or the server does not answer.
    pub fn join(&self, plan: &str, work: &str, report: WorkerReport) -> Result<Worker, QueueError> {
        let link = self.link.clone();
        let (terms, consumer) = self.runtime.block_on(async {
            let terms = link.terms().await?;
            if terms.plan != plan {
                let (found, wanted) = (terms.plan, plan.to_owned());
                return Err(QueueError::OtherPlan { queue: link.queue.clone(), found, wanted });
            }
            let subject = format!("{}.work-of", link.names.subject);
            if let Some(error) = store_first(&link, &subject, work.as_bytes().to_vec()).await? {
                let base = link.stream(&link.names.base).await?;
                let found = link.last_of(&base, &subject).await?.ok_or(error)?;
                if found != work.as_bytes() {
                    let found = String::from_utf8_lossy(&found).into_owned();
                    let wanted = work.to_owned();
                    return Err(QueueError::OtherWork { queue: link.queue.clone(), found, wanted });
                }
            }
            let stream = link.stream(&link.names.work).await?;
            let consumer = stream.get_consumer::<pull::Config>(CONSUMER).await;
            Ok((terms, consumer.map_err(|e| link.failed("read", e))?))
        })?;
        let runtime = self.runtime.clone();
        let report = Arc::new(Mutex::new(report));
        let tell = runtime.spawn(keep_telling(link.clone(), report.clone()));
        Ok(Worker { runtime, link, terms, consumer, lease: None, report, commits: 0, tell })
    }
}

impl Worker {
    /// Returns the next shard. Acknowledges the lease of the shards before, which must be committed,
    /// failed or given back. Waits while other workers hold all shards that are left.
    ///
    /// # Errors
    /// The queue was removed, its leases were lost, or the server does not answer for two minutes.
    pub fn next(&mut self, stop: &AtomicBool) -> Result<Next, QueueError> {
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = raised(stop) => Ok(Next::Stopped),
                next = self.find() => next,
            }
        })
    }

    async fn find(&mut self) -> Result<Next, QueueError> {
        let mut silent = Silence::default();
        loop {
            if let Some(shard) = self.lease.as_ref().and_then(|lease| lease.shards.front()) {
                let shard = *shard;
                self.note(|report| report.current = Some((shard, now_ns())));
                return Ok(Next::Shard(shard));
            }
            self.acknowledge().await;
            match self.pull().await {
                Ok(true) => silent = Silence::default(),
                Ok(false) => match self.finished().await {
                    Ok(Some(counts)) => return Ok(Next::Finished(counts)),
                    Ok(None) => silent = Silence::default(),
                    Err(error) => silent.bear(error).await?,
                },
                // The server does not say why: the queue can be gone.
                Err(error) => match self.finished().await {
                    Err(gone @ QueueError::Removed { .. }) => return Err(gone),
                    _ => silent.bear(error).await?,
                },
            }
        }
    }

    /// Takes a lease, if there is one within a second.
    async fn pull(&mut self) -> Result<bool, QueueError> {
        let batch = self.consumer.batch().max_messages(1).expires(PULL_TIME).messages().await;
        let mut batch = batch.map_err(|e| self.link.failed("read", e))?;
        let message = match batch.next().await {
            Some(Ok(message)) => message,
            Some(Err(e)) => return Err(self.link.failed("read", e)),
            None => return Ok(false),
        };
        let tries = message.info().map_or(1, |info| u32::try_from(info.delivered).unwrap_or(1));
        let range = range(&message.payload, self.terms.shards);
        let (_, acker) = message.split();
        let acker = Arc::new(acker);
        let Some((first, last)) = range else {
            // It is not a message of ours.
            let _ = acker.ack_with(AckKind::Term).await;
            return Ok(true);
        };
        let every = Duration::from_millis((self.terms.lease_ms / 3).max(1));
        let extended = acker.clone();
        let extend = tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let _ = extended.ack_with(AckKind::Progress).await;
            }
        });
        self.lease = Some(Lease { acker, shards: (first..=last).collect(), tries, extend });
        if tries > 1 {
            self.resume().await?;
        }
        Ok(true)
    }

    /// Leaves out what earlier holders of the lease have finished, splits the rest, and parks a shard that
    /// was begun too often.
    async fn resume(&mut self) -> Result<(), QueueError> {
        let Some(lease) = &self.lease else { return Ok(()) };
        let (tries, shards) = (lease.tries, lease.shards.clone());
        let mut left = VecDeque::new();
        for shard in shards {
            if self.link.committed(shard).await?.is_none() {
                left.push_back(shard);
            }
        }
        if left.len() > 1 {
            queue(&self.link, left.iter().map(|shard| (*shard, *shard))).await?;
            left.clear();
        }
        if tries > self.terms.tries {
            for shard in std::mem::take(&mut left) {
                let error = format!("its worker ended or lost its lease {} times", tries - 1);
                self.park(shard, tries - 1, error).await?;
            }
        }
        if let Some(lease) = &mut self.lease {
            lease.shards = left;
        }
        Ok(())
    }

    async fn park(&self, shard: u64, tries: u32, error: String) -> Result<(), QueueError> {
        let host = self.report().host;
        let parked = Parked { shard, tries, error, host, parked_ns: now_ns() };
        parked::park(&self.link, &parked).await
    }

    /// Returns the counters if every shard is done or parked.
    async fn finished(&self) -> Result<Option<Counts>, QueueError> {
        let mut found = counts(&self.link).await?;
        if found.parked > 0 && found.done + found.parked >= self.terms.shards {
            parked::settle_all(&self.link).await?;
            found = counts(&self.link).await?;
        }
        if found.done + found.parked >= self.terms.shards {
            return Ok(Some(found));
        }
        if found.queued > 0 {
            return Ok(None);
        }
        if self.link.submitted().await? < self.terms.shards {
            // The submission goes on, or will be repeated.
            return Ok(None);
        }
        Err(QueueError::Lost {
            queue: self.link.queue.clone(),
            shards: self.terms.shards - found.done - found.parked,
        })
    }

    /// Commits the result of the current shard and returns whether it counts. Repeats while it is unknown
    /// whether the server has stored it.
    ///
    /// # Errors
    /// The queue was removed, or the server does not answer for two minutes. The shard is then still
    /// leased: it is run again, or its result is found to be committed.
    pub fn commit(&mut self, found: &Value) -> Result<Committed, QueueError> {
        let runtime = self.runtime.clone();
        let Some(shard) = self.current() else { return Ok(Committed::Late) };
        self.commits += 1;
        let by = self.report();
        let run = format!("{}-{}-{}-{}", by.host, by.pid, by.started_ns, self.commits);
        let committed = runtime.block_on(self.store(shard, &run, found))?;
        match committed {
            Committed::Counted => self.note(|report| report.shards += 1),
            Committed::Late => self.note(|report| report.late += 1),
        }
        self.leave();
        Ok(committed)
    }

    async fn store(&self, shard: u64, run: &str, found: &Value) -> Result<Committed, QueueError> {
        let outcome = Outcome { run: run.to_owned(), found: found.clone() };
        let payload = serde_json::to_vec(&outcome).unwrap_or_default();
        let mut silent = Silence::default();
        loop {
            let stored = self.link.store(&self.link.done_subject(shard), payload.clone()).await;
            let Err(refused) = stored else { break };
            // Refused because the shard is done, or it may have been stored: the server knows.
            match self.link.committed(shard).await {
                Ok(Some(first)) if is_of(&first, run) => break,
                Ok(Some(_)) => {
                    parked::settle(&self.link, shard).await?;
                    return Ok(Committed::Late);
                }
                Ok(None) => silent.bear(refused).await?,
                Err(error) => silent.bear(error).await?,
            }
        }
        parked::remove_if_parked(&self.link, shard).await;
        Ok(Committed::Counted)
    }

    /// Records that the current shard could not be run. It is tried again, here or elsewhere, and parked
    /// with this error after the last try. Returns whether it was parked.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn fail(&mut self, error: &str) -> Result<bool, QueueError> {
        let runtime = self.runtime.clone();
        let Some(shard) = self.current() else { return Ok(false) };
        self.note(|report| {
            report.failed += 1;
            report.current = None;
        });
        let Some(lease) = &mut self.lease else { return Ok(false) };
        lease.shards.pop_front();
        let (tries, alone) = (lease.tries, lease.shards.is_empty());
        runtime.block_on(async {
            if tries >= self.terms.tries {
                self.park(shard, tries, error.to_owned()).await?;
                return Ok(true);
            }
            match (alone, &self.lease) {
                (true, Some(lease)) => {
                    // The server counts the delivery, which is the try.
                    let pause = Some(pause(tries));
                    let _ = lease.acker.double_ack_with(AckKind::Nak(pause)).await;
                    self.lease = None;
                }
                _ => drop(queue(&self.link, std::iter::once((shard, shard))).await?),
            }
            Ok(false)
        })
    }

    /// Gives back the shards that this worker holds, the current one included, as if never begun.
    ///
    /// # Errors
    /// The server does not answer; the shards are then handed out when the lease has run out.
    pub fn give_back(&mut self) -> Result<(), QueueError> {
        let runtime = self.runtime.clone();
        let Some(lease) = self.lease.take() else { return Ok(()) };
        self.note(|report| report.current = None);
        runtime.block_on(async {
            queue(&self.link, lease.shards.iter().map(|shard| (*shard, *shard))).await?;
            let _ = lease.acker.double_ack().await;
            Ok(())
        })
    }

    /// Reports that this worker ends.
    pub fn end(self) {
        self.tell.abort();
        self.note(|report| {
            report.ended = true;
            report.current = None;
        });
        let report = self.report();
        self.runtime.block_on(async {
            tell(&self.link, report).await;
            let _ = tokio::time::timeout(REPORT_TIME, self.link.client.flush()).await;
        });
    }

    /// Returns the counters of this worker.
    pub fn report(&self) -> WorkerReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the counters of this worker, which are published every second.
    pub fn note(&self, change: impl FnOnce(&mut WorkerReport)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn current(&self) -> Option<u64> {
        self.lease.as_ref()?.shards.front().copied()
    }

    fn leave(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.shards.pop_front();
        }
        self.note(|report| report.current = None);
    }

    /// Acknowledges the lease: its shards are committed, parked or queued again. If the
    /// acknowledgement is lost, the lease comes again and nothing is left of it.
    async fn acknowledge(&mut self) {
        if let Some(lease) = self.lease.take() {
            let _ = lease.acker.double_ack().await;
        }
    }
}

/// Publishes the report every second. Nothing depends on it.
async fn keep_telling(link: Link, report: Arc<Mutex<WorkerReport>>) {
    loop {
        let now = report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        tell(&link, now).await;
        tokio::time::sleep(REPORT_TIME).await;
    }
}

async fn tell(link: &Link, mut report: WorkerReport) {
    report.seen_ns = now_ns();
    let host: String = report.host.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let id = format!("{host}-{}-{}", report.pid, report.started_ns);
    let subject = format!("{}.worker.{id}", link.names.subject);
    let payload = serde_json::to_vec(&report).unwrap_or_default();
    let _ = link.client.publish(subject, payload.into()).await;
}

/// Errors of a server that may answer again.
#[derive(Debug, Default)]
struct Silence {
    since: Option<Instant>,
    attempts: u32,
}

impl Silence {
    /// Waits before the next attempt, or returns the error if there were errors for too long or no attempt
    /// can succeed.
    async fn bear(&mut self, error: QueueError) -> Result<(), QueueError> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let lasting = !matches!(error, QueueError::Server { .. });
        if lasting || since.elapsed() > PATIENCE {
            return Err(error);
        }
        self.attempts += 1;
        tokio::time::sleep(pause(self.attempts)).await;
        Ok(())
    }
}

/// Returns the shards of a lease: `FIRST-LAST`.
fn range(payload: &[u8], shards: u64) -> Option<(u64, u64)> {
    let (first, last) = std::str::from_utf8(payload).ok()?.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let short = last.checked_sub(first)? < crate::submit::SHARDS_PER_LEASE_MAX;
    (first >= 1 && last <= shards && short).then_some((first, last))
}

/// Returns whether a stored result is that of a run.
fn is_of(stored: &[u8], run: &str) -> bool {
    serde_json::from_slice::<Outcome>(stored).is_ok_and(|outcome| outcome.run == run)
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn leases_are_ranges_of_the_plan() {
        assert_eq!(range(b"1-1", 9), Some((1, 1)));
        assert_eq!(range(b"2-9", 9), Some((2, 9)));
        let wrong =
            ["", "1", "0-1", "2-1", "9-10", "1-x", "-1-2", "1-101", "1-18446744073709551615"];
        for text in wrong {
            let shards = if text.starts_with("1-1") { u64::MAX } else { 9 };
            assert_eq!(range(text.as_bytes(), shards), None, "{text}");
        }
    }
}
