//! How far a queue is: counters of its streams, and what its workers last reported.

use crate::error::QueueError;
use crate::instance::Instance;
use crate::link::{Link, Queue, now_ns};
use crate::parked::{self, Parked};
use crate::patience::patiently;
use crate::stalled::Stalled;
use crate::terms::{Terms, WorkerReport};
use async_nats::datetime::parse_rfc3339;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

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
    /// Shards of which files failed. They are done, or will be soon.
    pub with_errors: u64,
}

impl Counts {
    /// Returns the number of shards that are done or parked.
    pub fn finished(&self) -> u64 {
        self.done.saturating_add(self.parked)
    }
}

/// How far a queue is.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Its terms.
    pub terms: Terms,
    /// Whether all shards were queued; otherwise the submission was interrupted or goes on.
    pub submitted: bool,
    /// The last shard that was queued.
    pub submitted_through: u64,
    /// The work, as the first worker announced it.
    pub work: Option<String>,
    /// Its counters.
    pub counts: Counts,
    /// The last report of each worker, ended ones included. Times are those of the clock of the server, as far
    /// as the time at which it stored the report says.
    pub workers: Vec<WorkerReport>,
    /// The first parked shards.
    pub parked: Vec<Parked>,
    /// When it was read by the clock of the server, in nanoseconds since 1970.
    pub now_ns: u64,
}

impl Status {
    /// Returns whether every shard is done or parked.
    pub fn is_finished(&self) -> bool {
        self.counts.finished() >= self.terms.shards
    }

    /// Returns how many shards are neither done nor queued, if leases were lost. A shard that moves between two
    /// counters can look lost, so it is only if the counters are the same when they are read again.
    pub fn lost(&self) -> Option<u64> {
        let missing = self.terms.shards.saturating_sub(self.counts.finished());
        (self.submitted && self.counts.queued == 0 && missing > 0).then_some(missing)
    }

    /// Notes how far the submission is. Returns whether it has not gone on for too long while nothing is queued.
    pub fn is_stalled(&self, stalled: &mut Stalled) -> bool {
        if self.submitted || self.counts.queued > 0 {
            stalled.renew();
            return false;
        }
        stalled.note(self.submitted_through)
    }

    /// Returns the workers that have not ended and were heard of lately.
    fn alive(&self) -> impl Iterator<Item = &WorkerReport> {
        let lease_ns = self.terms.lease_ms.max(1000).saturating_mul(1_000_000);
        let oldest = SILENT_LEASES.saturating_mul(lease_ns);
        let silent = move |w: &WorkerReport| self.now_ns.saturating_sub(w.seen_ns);
        self.workers.iter().filter(move |w| !w.ended && silent(w) <= oldest)
    }

    /// Returns the workers that run a shard now, the shard, and since when in nanoseconds.
    pub fn running(&self) -> impl Iterator<Item = (&WorkerReport, u64, u64)> {
        self.alive().filter_map(|worker| {
            let (shard, since_ns) = worker.current?;
            Some((worker, shard, worker.seen_ns.saturating_sub(since_ns)))
        })
    }

    /// Returns the mean duration of a shard, if there is one.
    pub fn mean_ns(&self) -> Option<u64> {
        let sum =
            |of: fn(&WorkerReport) -> u64| self.workers.iter().map(of).fold(0, u64::saturating_add);
        sum(|w| w.busy_ns).checked_div(sum(|w| w.shards))
    }

    /// Returns the running shards that take much longer than the mean.
    pub fn stragglers(&self) -> Vec<u64> {
        let Some(mean) = self.mean_ns() else { return Vec::new() };
        let slow =
            |(_, shard, ns): (_, u64, u64)| (ns > SLOW.saturating_mul(mean)).then_some(shard);
        self.running().filter_map(slow).collect()
    }

    /// Returns shards per second: of the workers that run now, or of all while they ran.
    pub fn shards_per_s(&self) -> Option<f64> {
        let rate = |shards: u64, started: u64, seen: u64| {
            let elapsed_s = seen.saturating_sub(started) as f64 / 1e9;
            (elapsed_s > 0.0 && shards > 0).then(|| shards as f64 / elapsed_s)
        };
        let now: f64 = self.alive().filter_map(|w| rate(w.shards, w.started_ns, w.seen_ns)).sum();
        if now > 0.0 {
            return Some(now);
        }
        let started = self.workers.iter().map(|w| w.started_ns).min()?;
        let seen = self.workers.iter().map(|w| w.seen_ns).max()?;
        rate(self.counts.done, started, seen)
    }

    /// Returns the time that is left at this rate, in nanoseconds, while workers run.
    pub fn left_ns(&self) -> Option<f64> {
        self.alive().next()?;
        let left = self.terms.shards.saturating_sub(self.counts.finished());
        Some(left as f64 / self.shards_per_s()? * 1e9)
    }
}

impl Queue {
    /// Returns how far the queue is.
    ///
    /// # Errors
    /// The queue does not exist, its submission was interrupted, or the server does not answer.
    pub fn status(&self) -> Result<Status, QueueError> {
        self.runtime.block_on(read(&self.link))
    }

    /// Does the same, and waits up to two minutes for a server that does not answer, unless `stop` is raised.
    ///
    /// # Errors
    /// As of [`Self::status`].
    pub fn status_patiently(&self, stop: &AtomicBool) -> Result<Status, QueueError> {
        self.runtime.block_on(patiently(&self.link, stop, || read(&self.link)))
    }
}

async fn read(link: &Link) -> Result<Status, QueueError> {
    let queue = Instance::open(link).await?;
    match status(&queue).await {
        Err(error @ QueueError::Removed { .. }) => Err(queue.explain(error).await),
        status => status,
    }
}

pub(crate) async fn counts(queue: &Instance) -> Result<Counts, QueueError> {
    let messages = async |name: &str| Ok(queue.stream(name).await?.cached_info().state.messages);
    let names = &queue.names;
    // The leases first: one that is gone by then has its results in the counters that are read later. A shard
    // with failed files is counted before its result.
    let queued = messages(&names.work).await?;
    let done = messages(&names.done).await?;
    let parked = messages(&names.parked).await?;
    let with_errors = messages(&names.failed).await?;
    let mut counts = Counts { queued, done, parked, with_errors };
    if parked > 0 && counts.finished() >= queue.terms.shards {
        // A shard that is done can still be among those that are parked.
        counts.parked = parked::settle_all(queue).await?;
    }
    Ok(counts)
}

async fn status(queue: &Instance) -> Result<Status, QueueError> {
    let counts = counts(queue).await?;
    let parked = match counts.parked {
        0 => Vec::new(),
        _ => {
            let numbers = parked::numbers(queue).await?;
            parked::list(queue, &numbers[..numbers.len().min(PARKED_SHOWN)]).await?
        }
    };
    let work = queue.last_in(&queue.names.base, &queue.work_of_subject()).await?;
    let submitted_through = queue.submitted().await?;
    Ok(Status {
        submitted: submitted_through >= queue.terms.shards,
        submitted_through,
        work: work.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        counts,
        workers: workers(queue).await?,
        parked,
        now_ns: server_now_ns(queue).await?,
        terms: queue.terms.clone(),
    })
}

/// What the client leaves out of an answer about a stream.
#[derive(Debug, Deserialize)]
struct Stamp {
    ts: Option<String>,
}

/// Returns the time of the server, with whose clock reports are stored. Servers before 2.10 do not name it: then it is
/// that of this host.
async fn server_now_ns(queue: &Instance) -> Result<u64, QueueError> {
    let about = format!("STREAM.INFO.{}", queue.names.base);
    let stamp: Result<Stamp, _> = queue.context.request(about, &()).await;
    let stamp = stamp.map_err(|e| queue.failed("read", e))?;
    Ok(stamp.ts.as_deref().and_then(time_ns).unwrap_or_else(now_ns))
}

/// Reads a time as the server writes it.
fn time_ns(text: &str) -> Option<u64> {
    u64::try_from(parse_rfc3339(text).ok()?.unix_timestamp_nanos()).ok()
}

async fn workers(queue: &Instance) -> Result<Vec<WorkerReport>, QueueError> {
    let base = queue.stream(&queue.names.base).await?;
    let subjects = base.info_with_subjects(queue.subject("worker.*")).await;
    let subjects = subjects.map_err(|e| queue.failed("read", e))?;
    let subjects: Vec<(String, usize)> =
        subjects.try_collect().await.map_err(|e| queue.failed("read", e))?;
    let base = &base;
    let read = stream::iter(subjects).map(|(subject, _)| async move {
        let message = base.get_last_raw_message_by_subject(&subject).await;
        let message = message.map_err(|e| queue.failed("read", e))?;
        let stored_ns = u64::try_from(message.time.unix_timestamp_nanos()).unwrap_or(0);
        let report: Option<WorkerReport> = serde_json::from_slice(&message.payload).ok();
        Ok::<_, QueueError>(report.map(|report| by_server_clock(report, stored_ns)))
    });
    let found: Vec<Option<WorkerReport>> = read.buffered(REQUESTS).try_collect().await?;
    let mut workers: Vec<WorkerReport> = found.into_iter().flatten().collect();
    workers.sort_by_key(|worker| (worker.started_ns, worker.pid));
    Ok(workers)
}

/// Moves the times of a report, which are those of its host, to the clock of the server.
fn by_server_clock(mut report: WorkerReport, stored_ns: u64) -> WorkerReport {
    let seen_ns = report.seen_ns;
    let moved = |ns: u64| stored_ns.saturating_sub(seen_ns.saturating_sub(ns));
    report.started_ns = moved(report.started_ns);
    report.current = report.current.map(|(shard, since_ns)| (shard, moved(since_ns)));
    report.seen_ns = stored_ns;
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn status(now_ns: u64, workers: Vec<WorkerReport>) -> Status {
        let plan = String::new();
        let terms = Terms { plan, shards: 100, files: 1, lease_ms: 1000, tries: 1, created_ns: 1 };
        let counts = Counts { done: 10, ..Counts::default() };
        let (submitted, submitted_through, work, parked) = (true, 100, None, Vec::new());
        Status { terms, submitted, submitted_through, work, counts, workers, parked, now_ns }
    }

    fn worker(started_s: u64, seen_s: u64, shards: u64) -> WorkerReport {
        WorkerReport {
            started_ns: started_s * S,
            seen_ns: seen_s * S,
            shards,
            busy_ns: shards * S,
            current: Some((7, (seen_s - 1) * S)),
            ..WorkerReport::default()
        }
    }

    #[test]
    fn a_report_of_a_wrong_clock_is_moved_to_that_of_the_server() {
        let moved = by_server_clock(worker(1000, 1010, 10), 510 * S);
        assert_eq!((moved.started_ns, moved.seen_ns), (500 * S, 510 * S));
        assert_eq!(moved.current, Some((7, 509 * S)));
        let nonsense = WorkerReport { started_ns: u64::MAX, seen_ns: 0, ..worker(1, 2, 1) };
        assert_eq!(by_server_clock(nonsense, 5).started_ns, 5);
    }

    #[test]
    fn shards_that_are_neither_done_nor_queued_are_lost() {
        let with = |submitted, queued, done| {
            let counts = Counts { queued, done, parked: 1, with_errors: 3 };
            Status { submitted, counts, ..status(0, Vec::new()) }.lost()
        };
        assert_eq!(with(true, 0, 90), Some(9));
        assert_eq!(with(true, 0, 99), None);
        assert_eq!(with(true, 1, 90), None);
        assert_eq!(with(false, 0, 90), None);
    }

    #[test]
    fn a_submission_is_stalled_if_nothing_is_queued_and_it_does_not_go_on() {
        let with = |submitted, queued, submitted_through| {
            let counts = Counts { queued, ..Counts::default() };
            Status { submitted, submitted_through, counts, ..status(0, Vec::new()) }
        };
        let mut stalled = Stalled::new(std::time::Duration::ZERO);
        let mut is_stalled = |status: Status| status.is_stalled(&mut stalled);
        assert!(!is_stalled(with(false, 0, 50)));
        assert!(is_stalled(with(false, 0, 50)));
        assert!(!is_stalled(with(false, 1, 50)));
        assert!(!is_stalled(with(false, 0, 50)));
        assert!(!is_stalled(with(true, 0, 100)) && !is_stalled(with(true, 0, 100)));
    }

    #[test]
    fn the_time_of_the_server_is_read() {
        assert_eq!(time_ns("1970-01-01T00:00:02.000000003Z"), Some(2 * S + 3));
        assert_eq!(time_ns("1970-01-01T01:00:02+01:00"), Some(2 * S));
        assert_eq!(time_ns("now"), None);
    }

    #[test]
    fn the_rate_is_that_of_workers_that_run() {
        // A worker that ended a day before does not slow the estimate down.
        let ended = WorkerReport { ended: true, ..worker(100, 110, 5) };
        let status = status(90_011 * S, vec![ended, worker(90_000, 90_010, 5)]);
        assert_eq!(status.shards_per_s(), Some(0.5));
        assert_eq!(status.left_ns(), Some(180.0 * S as f64));
        assert_eq!(status.running().count(), 1);
        assert_eq!(status.mean_ns(), Some(S));
    }

    #[test]
    fn workers_that_are_silent_do_not_run_and_nothing_is_predicted() {
        let status = status(1000 * S, vec![worker(100, 110, 5)]);
        assert_eq!((status.running().count(), status.left_ns()), (0, None));
        assert_eq!(status.shards_per_s(), Some(1.0));
    }
}
