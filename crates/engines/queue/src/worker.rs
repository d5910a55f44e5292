//! A worker: takes shards one after another, and commits their results.
//!
//! The lease of a worker is a range of shards. A task extends it three times per lease until the worker
//! acknowledges it, so a worker that is killed, stopped or cut off from the server loses it. Then another
//! worker runs the rest of its shards, and of two results the first one counts. The result of a shard is committed
//! while the next one runs ([`crate::commit`]), and [`crate::holding`] decides when its lease is acknowledged.

use crate::commit::{Commit, Committed};
use crate::error::QueueError;
use crate::holding::{Holding, Lease};
use crate::instance::Instance;
use crate::link::{Queue, REQUEST_TIME, now_ns};
use crate::parked::{self, Parked};
use crate::patience::{Patience, hurried, patiently};
use crate::pause::pause;
use crate::reporting::{keep_publishing, publish};
use crate::stalled::Stalled;
use crate::status::{Counts, counts};
use crate::submit::{consumer, lease, store_first};
use crate::terms::WorkerReport;
use crate::ticket::{History, Ticket};
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{AckKind, Message};
use futures_util::StreamExt;
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// How long a worker waits at most for a lease before it looks whether the queue is finished. It looks at once when no
/// lease is queued, and then waits twice as long each time: the shards that are left often end soon.
const PULL_TIME: Duration = Duration::from_secs(1);
/// The first of these waits.
const FIRST_PULL_TIME: Duration = Duration::from_millis(10);
/// Failures of a shard that are not counted as tries, at all workers together.
const UNCOUNTED_MAX: u32 = 5;

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

/// A commit that is under way.
struct Pending {
    task: JoinHandle<Result<Committed, QueueError>>,
    /// Its lease.
    holding: Arc<Holding>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("holding", &self.holding).finish_non_exhaustive()
    }
}

/// A member of a queue. Dropping it leaves its shards to others when the lease has run out.
#[derive(Debug)]
pub struct Worker {
    runtime: Arc<Runtime>,
    queue: Instance,
    consumer: PullConsumer,
    lease: Option<Lease>,
    /// The commit of the last shard, until its result is known.
    pending: Option<Pending>,
    /// Acknowledgements of earlier leases, and looks for earlier commits among parked shards: the next shard does not
    /// wait for them.
    background: Vec<JoinHandle<()>>,
    report: Arc<Mutex<WorkerReport>>,
    /// Raised when the user wants the worker to end: then it waits for no server.
    stop: Arc<AtomicBool>,
    /// Waits for a lease that brought none since the last one.
    empty: u32,
    /// Shards that failed at this worker.
    failed_here: BTreeSet<u64>,
    /// Commits so far, which distinguish those of a shard that comes twice.
    commits: u64,
    /// Notices that the submission was interrupted.
    stalled: Stalled,
    /// The task that publishes the report.
    publishing: JoinHandle<()>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.publishing.abort();
    }
}

impl Queue {
    /// Joins the queue of a plan. All workers of a queue do the same work, which the first one sets;
    /// `work` says what it is in words. Waits up to two minutes for a server that does not answer, here and in
    /// all calls of the worker, unless `stop` is raised.
    ///
    /// # Errors
    /// The queue does not exist, has another plan or other work, or the server does not answer.
    pub fn join(
        &self,
        plan: &str,
        work: &str,
        report: WorkerReport,
        stop: Arc<AtomicBool>,
    ) -> Result<Worker, QueueError> {
        let attempt = || async {
            let queue = Instance::open(&self.link).await?;
            if queue.terms.plan != plan {
                let (found, wanted) = (queue.terms.plan.clone(), plan.to_owned());
                return Err(QueueError::OtherPlan { queue: queue.queue.clone(), found, wanted });
            }
            announce(&queue, work).await?;
            let stream = match queue.stream(&queue.names.work).await {
                Err(error @ QueueError::Removed { .. }) => return Err(queue.explain(error).await),
                stream => stream?,
            };
            match stream.get_consumer::<pull::Config>(&consumer(&queue.terms)).await {
                Ok(consumer) => Ok((consumer, queue)),
                Err(error) => {
                    let is_missing = error.to_string().contains("consumer not found");
                    let error = queue.failed("read", error);
                    Err(if is_missing { queue.explain(error).await } else { error })
                }
            }
        };
        let (consumer, queue) = self.runtime.block_on(patiently(&self.link, &stop, attempt))?;
        let runtime = self.runtime.clone();
        let report = Arc::new(Mutex::new(report));
        let publishing = runtime.spawn(keep_publishing(queue.clone(), report.clone()));
        let (lease, pending, background, empty, commits) = (None, None, Vec::new(), 0, 0);
        let failed_here = BTreeSet::new();
        Ok(Worker {
            runtime,
            queue,
            consumer,
            lease,
            pending,
            background,
            report,
            stop,
            empty,
            failed_here,
            commits,
            stalled: Stalled::default(),
            publishing,
        })
    }
}

/// Announces the work of this worker, which must be that of all others.
async fn announce(queue: &Instance, work: &str) -> Result<(), QueueError> {
    let subject = queue.work_of_subject();
    let Some(error) = store_first(queue, &subject, work.as_bytes().to_vec()).await? else {
        return Ok(());
    };
    let found = queue.last_in(&queue.names.base, &subject).await?.ok_or(error)?;
    if found != work.as_bytes() {
        let found = String::from_utf8_lossy(&found).into_owned();
        let wanted = work.to_owned();
        return Err(QueueError::OtherWork { queue: queue.queue.clone(), found, wanted });
    }
    Ok(())
}

impl Worker {
    /// Sets how long a submission may queue nothing before the worker ends; the default is a minute.
    pub fn wait_for_submission(&mut self, time: Duration) {
        self.stalled = Stalled::new(time);
    }

    /// Returns the next shard. The shards before must be committed, failed or given back; a commit can still be
    /// under way. Waits while other workers hold all shards that are left; if the flag is raised
    /// meanwhile, ends within about a second.
    ///
    /// # Errors
    /// The queue was removed, its leases were lost, its submission was interrupted, the server does not answer for
    /// two minutes, or an earlier commit failed.
    pub fn next_shard(&mut self) -> Result<Next, QueueError> {
        let (runtime, stop) = (self.runtime.clone(), self.stop.clone());
        runtime.block_on(async {
            self.release();
            let mut patience = Patience::new(&stop);
            loop {
                if stop.load(Ordering::Relaxed) {
                    return Ok(Next::Stopped);
                }
                if let Some(shard) = self.current() {
                    self.note(|report| report.current = Some((shard, now_ns())));
                    return Ok(Next::Shard(shard));
                }
                let found = match self.find(&mut patience).await {
                    Ok(true) => {
                        self.stalled.renew();
                        // A lease that came again can have nothing left.
                        if let Some(over) = self.lease.take_if(|lease| lease.shards.is_empty()) {
                            self.acknowledge(over);
                        }
                        Ok(None)
                    }
                    Ok(false) => {
                        self.settle_commit().await?;
                        self.finished().await
                    }
                    Err(error) => Err(error),
                };
                match found {
                    Ok(Some(counts)) => return Ok(Next::Finished(counts)),
                    Ok(None) => patience.renew(),
                    Err(error) => match patience.bear(error).await {
                        Err(_) if stop.load(Ordering::Relaxed) => return Ok(Next::Stopped),
                        other => other?,
                    },
                }
            }
        })
    }

    /// Takes a lease, unless there is none now.
    async fn find(&mut self, patience: &mut Patience<'_>) -> Result<bool, QueueError> {
        let message = match self.pull().await {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(false),
            Err(error) if self.stop.load(Ordering::Relaxed) => return Err(error),
            Err(error) => return Err(self.queue.cause(error).await),
        };
        patience.renew();
        self.open(message, patience).await.map(|()| true)
    }

    /// Returns the message of a lease, if there is one within a second. Is not interrupted: a message that was
    /// delivered and dropped would count as a try.
    async fn pull(&mut self) -> Result<Option<Message>, QueueError> {
        let queue = self.queue.clone();
        let pulling = async {
            let one = match self.empty {
                // If there is none now, the queue may be finished.
                0 => self.consumer.fetch().max_messages(1).messages().await,
                empty => {
                    let longer = 2u32.saturating_pow(empty - 1);
                    let wait = PULL_TIME.min(FIRST_PULL_TIME.saturating_mul(longer));
                    self.consumer.batch().max_messages(1).expires(wait).messages().await
                }
            };
            one.map_err(|e| queue.failed("read", e))
        };
        let mut batch = queue.in_time("read", pulling).await?;
        let message = match tokio::time::timeout(PULL_TIME + REQUEST_TIME, batch.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(e))) => return Err(queue.failed("read", e)),
            Ok(None) => {
                self.empty = self.empty.saturating_add(1);
                return Ok(None);
            }
            Err(_) => return Err(queue.failed("read", "no answer")),
        };
        self.empty = 0;
        Ok(Some(message))
    }

    /// Takes the lease of a message.
    async fn open(
        &mut self,
        message: Message,
        patience: &mut Patience<'_>,
    ) -> Result<(), QueueError> {
        let queue = self.queue.clone();
        let delivered = message.info().map_or(1, |info| u32::try_from(info.delivered).unwrap_or(1));
        let ticket = Ticket::parse(&message.payload, queue.terms.shards);
        let (_, acker) = message.split();
        let acker = Arc::new(acker);
        let Some(ticket) = ticket else {
            // It is not a message of ours.
            let _ = acker.ack_with(AckKind::Term).await;
            return Ok(());
        };
        let mut lease = Lease::new(queue, acker, &ticket, delivered);
        if lease.tries > 1 {
            // The lease is extended meanwhile: to drop it would use up a try.
            let left = patience.repeat(&self.queue, || self.resume(&lease)).await;
            match left {
                Ok(left) => lease.shards = left,
                Err(error) => {
                    // If the user wants the worker to end, it is given back.
                    if self.stop.load(Ordering::Relaxed) {
                        self.lease = Some(lease);
                    }
                    return Err(error);
                }
            }
        }
        self.lease = Some(lease);
        Ok(())
    }

    /// Returns what is left of a lease that comes again, unless the queue was removed. Can be repeated.
    async fn resume(&self, lease: &Lease) -> Result<VecDeque<u64>, QueueError> {
        match self.left_of(lease).await {
            Err(error @ QueueError::Removed { .. }) => Err(self.queue.cause(error).await),
            left => left,
        }
    }

    /// Returns what is left of a lease that comes again after what earlier holders have finished or parked. Queues
    /// the shards of a range one by one, and parks a single shard that was begun too often. Can be repeated.
    async fn left_of(&self, lease: &Lease) -> Result<VecDeque<u64>, QueueError> {
        let mut left = VecDeque::new();
        for &shard in &lease.shards {
            let is_over =
                self.queue.committed(shard).await?.is_some() || self.queue.is_parked(shard).await?;
            if !is_over {
                left.push_back(shard);
            }
        }
        if !lease.is_single {
            self.lease_singly(&left, History::default()).await?;
        } else if lease.tries > self.queue.terms.tries {
            for shard in left {
                let tries = lease.tries - 1;
                let error = format!("its worker ended or lost its lease {tries} times");
                self.park(shard, tries, error).await?;
            }
        } else {
            return Ok(left);
        }
        Ok(VecDeque::new())
    }

    async fn lease_singly(
        &self,
        shards: &VecDeque<u64>,
        history: History,
    ) -> Result<(), QueueError> {
        let tickets = shards.iter().map(|shard| Ticket { history, ..Ticket::new(*shard, *shard) });
        lease(&self.queue, tickets).await.map(drop)
    }

    async fn park(&self, shard: u64, tries: u32, error: String) -> Result<(), QueueError> {
        let host = self.report().host;
        let parked = Parked { shard, tries, error, host, parked_ns: now_ns() };
        parked::park(&self.queue, &parked).await
    }

    /// Returns the counters if every shard is done or parked.
    async fn finished(&mut self) -> Result<Option<Counts>, QueueError> {
        self.queue.check().await?;
        self.settled().await;
        let shards = self.queue.terms.shards;
        let found = counts(&self.queue).await?;
        if found.finished() >= shards {
            return Ok(Some(found));
        }
        if found.queued > 0 {
            // Others hold leases.
            self.stalled.renew();
            return Ok(None);
        }
        let submitted = self.queue.submitted().await?;
        if submitted < shards {
            return match self.stalled.note(submitted) {
                true => Err(QueueError::Unfinished { queue: self.queue.queue.clone() }),
                // The submission goes on, or will be repeated.
                false => Ok(None),
            };
        }
        // Parked shards can have been queued again between two counters.
        let again = counts(&self.queue).await?;
        if again != found {
            return Ok(None);
        }
        let missing = shards.saturating_sub(found.finished());
        Err(QueueError::Lost { queue: self.queue.queue.clone(), shards: missing })
    }

    /// Commits the result of the current shard and returns whether it counts. Repeats while it is unknown
    /// whether the server has stored it. `failed_files` is the number of its files that failed.
    ///
    /// # Errors
    /// The queue was removed, the server does not answer for two minutes, or it does not answer and the flag is
    /// raised. The lease of the shard then runs out: it is run again, or its result is found to be committed.
    pub fn commit(&mut self, found: &Value, failed_files: u64) -> Result<Committed, QueueError> {
        self.begin_commit(found, failed_files, |_| {})?;
        Ok(self.settle()?.unwrap_or(Committed::Late))
    }

    /// Begins to commit the result of the current shard, when the commit before has ended. Applies `count` to the
    /// report if it counts.
    ///
    /// # Errors
    /// As of [`Self::commit`], for the commit before.
    pub fn begin_commit(
        &mut self,
        found: &Value,
        failed_files: u64,
        count: impl FnOnce(&mut WorkerReport) + Send + 'static,
    ) -> Result<(), QueueError> {
        self.settle()?;
        let Some(shard) = self.current() else { return Ok(()) };
        self.commits += 1;
        let by = self.report();
        let run = format!("{}-{}-{}-{}", by.host, by.pid, by.started_ns, self.commits);
        let (queue, stop, found) = (self.queue.clone(), self.stop.clone(), found.clone());
        let commit = Commit { queue, shard, run, found, failed_files, stop };
        let report = self.report.clone();
        let holding = Arc::new(Holding::new(self.lease.as_ref()));
        let held = holding.clone();
        let task = self.runtime.spawn(async move {
            let stored = commit.store().await;
            let over = held.ended(stored.is_ok());
            let committed = stored?;
            let is_counted = committed == Committed::Counted;
            {
                let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                match is_counted {
                    true => {
                        report.shards += 1;
                        count(&mut report);
                    }
                    false => report.late += 1,
                }
            }
            if is_counted {
                parked::remove_if_parked(&commit.queue, shard).await;
            }
            if let Some(lease) = over {
                lease.acknowledge(&commit.queue).await;
            }
            Ok(committed)
        });
        self.pending = Some(Pending { task, holding });
        self.leave();
        Ok(())
    }

    /// Waits for the commit that is under way, and returns whether it counts. Returns nothing if there is none.
    ///
    /// # Errors
    /// As of [`Self::commit`].
    pub fn settle(&mut self) -> Result<Option<Committed>, QueueError> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.settle_commit())
    }

    async fn settle_commit(&mut self) -> Result<Option<Committed>, QueueError> {
        let Some(Pending { task, holding }) = self.pending.take() else { return Ok(None) };
        match task.await.map_err(|e| self.queue.failed("write to", e)).flatten() {
            Ok(committed) => Ok(Some(committed)),
            Err(error) => {
                // The lease of the shard is dropped, not acknowledged: it runs out.
                self.lease.take_if(|lease| holding.is_of(lease));
                Err(error)
            }
        }
    }

    /// Ends a lease of which nothing is left: its shards are committed, parked or queued again, or will be when
    /// the commit that is under way has ended.
    fn release(&mut self) {
        let Some(lease) = self.lease.take_if(|lease| lease.shards.is_empty()) else { return };
        let left = match &self.pending {
            Some(pending) => pending.holding.leave(lease),
            None => Some(lease),
        };
        if let Some(lease) = left {
            self.acknowledge(lease);
        }
    }

    /// Records that the current shard could not be run. It is tried again, here or elsewhere, and parked
    /// with this error after the last try. Returns whether it was parked. The first failure of a shard at a
    /// worker does not count, because the host of the worker may be the cause. After five failures that did not
    /// count, each one does: the shard itself may end its workers.
    ///
    /// # Errors
    /// As of [`Self::commit`].
    pub fn fail(&mut self, error: &str) -> Result<bool, QueueError> {
        let (runtime, stop) = (self.runtime.clone(), self.stop.clone());
        let Some(shard) = self.current() else { return Ok(false) };
        let Some(Lease { tries, uncounted, is_single, .. }) = self.lease else { return Ok(false) };
        self.note(|report| report.failed += 1);
        let is_counted = !self.failed_here.insert(shard) || tries > 1 || uncounted >= UNCOUNTED_MAX;
        let is_last = is_counted && tries >= self.queue.terms.tries;
        if is_last {
            runtime.block_on(patiently(&self.queue, &stop, || {
                self.park(shard, tries, error.to_owned())
            }))?;
        } else if !is_single || !is_counted {
            // The message of the shard is a new one, so its deliveries begin at one again.
            let one = VecDeque::from([shard]);
            let history = History { tries: 0, uncounted: uncounted.saturating_add(1) };
            runtime.block_on(patiently(&self.queue, &stop, || self.lease_singly(&one, history)))?;
        } else if let Some(lease) = self.lease.take() {
            // The server counts the delivery, which is the try.
            let refusal = AckKind::Nak(Some(pause(tries)));
            let _ = runtime.block_on(self.queue.in_time("write to", async {
                lease
                    .acker
                    .double_ack_with(refusal)
                    .await
                    .map_err(|e| self.queue.failed("write to", e))
            }));
        }
        self.leave();
        Ok(is_last)
    }

    /// Gives back the shards that this worker holds, the current one included, as if never begun.
    ///
    /// # Errors
    /// The server does not answer; the shards are then handed out when the lease has run out.
    pub fn give_back(&mut self) -> Result<(), QueueError> {
        let runtime = self.runtime.clone();
        self.note(|report| report.current = None);
        runtime.block_on(async {
            self.settle_commit().await?;
            let Some(lease) = self.lease.take() else { return Ok(()) };
            // The user waits.
            let history = match lease.is_single {
                // This delivery is not a try.
                true => {
                    History { tries: lease.tries.saturating_sub(1), uncounted: lease.uncounted }
                }
                false => History::default(),
            };
            let given = async {
                self.lease_singly(&lease.shards, history).await?;
                lease.acker.double_ack().await.map_err(|e| self.queue.failed("write to", e))
            };
            hurried(&self.queue, &AtomicBool::new(true), given).await
        })
    }

    /// Reports that this worker ends. Returns its counters, and the error of a commit that was under way.
    pub fn end(mut self) -> (WorkerReport, Option<QueueError>) {
        self.publishing.abort();
        self.note(|report| {
            report.ended = true;
            report.current = None;
        });
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            let ended = tokio::time::timeout(REQUEST_TIME, self.settle_commit()).await;
            let error =
                ended.unwrap_or_else(|_| Err(self.queue.failed("write to", "no answer"))).err();
            let _ = tokio::time::timeout(REQUEST_TIME, self.settled()).await;
            publish(&self.queue, self.report()).await;
            let _ = tokio::time::timeout(PULL_TIME, self.queue.client.flush()).await;
            (self.report(), error)
        })
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

    /// Acknowledges a lease. If the acknowledgement is lost, the lease comes again and nothing is left of it, so
    /// the next lease is taken meanwhile.
    fn acknowledge(&mut self, lease: Lease) {
        let queue = self.queue.clone();
        self.do_meanwhile(async move { lease.acknowledge(&queue).await });
    }

    fn do_meanwhile(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.background.retain(|task| !task.is_finished());
        self.background.push(self.runtime.spawn(task));
    }

    /// Waits until earlier leases are acknowledged, as the counters then show.
    async fn settled(&mut self) {
        for task in std::mem::take(&mut self.background) {
            let _ = task.await;
        }
    }
}
