//! The database shares the stocks between the threads of this process and with other processes.
//!
//! A few threads have one connection each. Threads with jobs queue them and wait. A thread with a
//! free connection takes everything gathered so far and executes the orders in one transaction (one
//! by one with durability `each`). While the database's disk is busy, orders are gathered for the
//! next commit, as with a store. Jobs of one connection remain in order: the orders before the
//! connection's first list are executed together with those of other connections, then the lists,
//! then the rest.
//!
//! ```text
//! jobs ─┐           ┌─ thread ─ connection ─┐
//! jobs ─┼─► queue ──┤                       ├─► database ◄── another server
//! jobs ─┘           └─ thread ─ connection ─┘
//! ```
//!
//! A waiting thread blocks all connections of its loop, so no query takes longer than one second
//! (`crate::database::Link`). After a timeout the database counts as away: everything else is
//! immediately answered as busy (`queue`), and these threads reconnect in the background with
//! increasing pauses. The server keeps running: it has no data that is not in the database, so
//! nothing can be lost.

mod queue;

use super::job::Job;
use super::reply::{ReplySlot, submit};
use super::strategy::Strategy;
use crate::choice::Durability;
use crate::database::{Link, NamedOrder, Opened, Unanswered};
use crate::error::{ServeError, SystemOperation};
use crate::journal::{Journal, StoreFailed};
use crate::store::ORDERS_KEPT;
use ioloom_exchange::{Answer, Command, Exchange, Seen, Shown, Stop};
use queue::{Next, Queue, Task};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of orders in a transaction. Their stocks are locked until all are executed.
const ORDERS_MAX: usize = 512;
/// Old orders are deleted whenever this many new ones have been executed.
const TRIM_EVERY: u64 = 1_000;
/// First pause between connection attempts; each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Maximum pause between connection attempts.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// State shared between the threads.
struct Shared {
    queue: Queue,
    journal: Arc<Journal>,
    orders_at_once: usize,
    access: crate::database::Access,
    /// Name of this server for orders of unnamed clients, and the number of the next such order.
    name: String,
    unnamed: AtomicU64,
    /// Number of deletions so far, in steps of [`TRIM_EVERY`].
    trimmed: AtomicU64,
    /// Error of the latest query.
    trouble: Mutex<Option<String>>,
}

pub(crate) struct Database {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// The jobs of one thread, and the slot where it waits for them.
type JobBatch = (Vec<Job>, Arc<ReplySlot>);
/// Identifies a job by batch and index.
type JobIndex = (usize, usize);

impl Database {
    /// Starts the threads for an open database.
    pub(crate) fn new(
        opened: &Opened,
        journal: Arc<Journal>,
        durability: Durability,
        connections: usize,
    ) -> Result<Self, ServeError> {
        let shared = Arc::new(Shared {
            queue: Queue::default(),
            journal,
            orders_at_once: if durability == Durability::Each { 1 } else { ORDERS_MAX },
            access: opened.access.clone(),
            name: own_name(),
            unnamed: AtomicU64::new(0),
            trimmed: AtomicU64::new(opened.seq / TRIM_EVERY),
            trouble: Mutex::default(),
        });
        let mut all = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        for number in 0..connections {
            let mut link = Link::new(opened.access.clone())?;
            if number == 0 {
                // Open one connection now; otherwise the first request would wait for it.
                let made = link.connect(&|| false);
                made.map_err(|reason| opened.access.unreached(reason))?;
            }
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("database-{number}"));
            let thread = builder
                .spawn(move || work(&shared, link))
                .map_err(ServeError::system(SystemOperation::StartThread))?;
            all.threads.push(thread);
        }
        Ok(all)
    }
}

/// Returns a name that no other server ever uses and that no client can use.
fn own_name() -> String {
    let some = || RandomState::new().hash_one(std::process::id());
    format!("#{:016x}{:016x}", some(), some())
}

impl Drop for Database {
    fn drop(&mut self) {
        self.shared.queue.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Strategy for Database {
    fn answer(&self, jobs: &mut Vec<Job>, _: &Journal) -> Result<u64, StoreFailed> {
        submit(jobs, |jobs, reply| self.shared.queue.put(Task::Jobs(jobs, reply)))?;
        Ok(0)
    }

    fn snapshot(&self) -> Result<(Exchange, u64), ServeError> {
        let (sender, receiver) = channel();
        self.shared.queue.put(Task::Snapshot(sender));
        let shown = receiver.recv().expect("the threads must outlive their handle");
        shown.map_err(|reason| self.shared.access.unwritten(reason))
    }

    fn trouble(&self) -> Option<String> {
        let trouble = || self.shared.trouble.lock().expect("the lock must not be poisoned").clone();
        self.shared.queue.away().or_else(trouble)
    }
}

/// Processes tasks while there is a connection; otherwise, connects.
fn work(shared: &Shared, mut link: Link) {
    let (mut losses, mut pause) = (0, PAUSE_MIN);
    loop {
        if link.lost().is_some() {
            losses = shared.queue.losses();
            match link.connect(&|| shared.queue.is_over()) {
                Err(reason) => {
                    if shared.queue.pause(pause, reason) {
                        return;
                    }
                    pause = (2 * pause).min(PAUSE_MAX);
                    continue;
                }
                Ok(()) if shared.queue.back(losses) => {
                    pause = PAUSE_MIN;
                    let _ = shared.note_trouble(Ok(()));
                }
                Ok(()) => link.leave("another connection to it was lost"),
            }
        }
        match shared.queue.take(losses, ORDERS_MAX) {
            Next::Tasks(tasks) => shared.run(&mut link, tasks, losses),
            Next::Connect => link.leave("another connection to it was lost"),
            Next::Over => return,
        }
        if let Some(reason) = link.lost() {
            shared.queue.lost(losses, reason);
        }
    }
}

/// Groups open jobs into stages that can be executed together: orders, then lists, then orders, and
/// so on. This preserves the order of jobs on each connection.
fn stages(batches: &mut [JobBatch]) -> Vec<Vec<JobIndex>> {
    let mut stages: Vec<Vec<JobIndex>> = Vec::new();
    for (at, (jobs, _)) in batches.iter_mut().enumerate() {
        let mut reached: HashMap<usize, usize> = HashMap::new();
        for (place, job) in jobs.iter_mut().enumerate() {
            // Only the database knows earlier outcomes, but it is not queried for late orders.
            if !job.is_open(|_, _| Seen::New) {
                continue;
            }
            let is_list = usize::from(job.request.command == Command::Show);
            let stage = reached.entry(job.token).or_default();
            if *stage % 2 != is_list {
                *stage += 1;
            }
            if stages.len() <= *stage {
                stages.resize_with(*stage + 1, Vec::new);
            }
            stages[*stage].push((at, place));
        }
    }
    stages
}

impl Shared {
    /// Records the database error, or that there is none.
    fn note_trouble<T>(&self, result: Result<T, String>) -> Result<T, String> {
        *self.trouble.lock().expect("the lock must not be poisoned") =
            result.as_ref().err().cloned();
        result
    }

    /// Processes tasks over a connection of this loss count as long as it lasts; answers all of
    /// them.
    fn run(&self, link: &mut Link, tasks: Vec<Task>, losses: u64) {
        let (mut batches, mut latest) = (Vec::<JobBatch>::new(), 0);
        for task in tasks {
            match task {
                Task::Jobs(jobs, reply) => batches.push((jobs, reply)),
                Task::Snapshot(sender) => {
                    let stocks = |shown: Shown| (shown.lines.into_iter().collect(), shown.seq);
                    let _ = sender.send(self.list(link).map(stocks));
                }
            }
        }
        for (stage, places) in stages(&mut batches).into_iter().enumerate() {
            if stage % 2 == 0 {
                for places in places.chunks(self.orders_at_once) {
                    latest = latest.max(self.carry_out(link, &mut batches, places));
                }
            } else {
                self.show(link, &mut batches, &places);
            }
        }
        // Do this before the answers are sent: a client that then sends another request must not
        // wait for a reconnect.
        if let Some(reason) = link.lost() {
            self.queue.lost(losses, reason);
        }
        for (jobs, reply) in batches {
            reply.send(jobs, Ok(()));
        }
        self.trim(link, latest);
    }

    /// Executes orders in one transaction; returns the largest log number in their answers.
    fn carry_out(&self, link: &mut Link, batches: &mut [JobBatch], places: &[JobIndex]) -> u64 {
        let numbered = |(batch, place): &JobIndex| {
            let request = &batches[*batch].0[*place].request;
            let Command::Trade(order) = &request.command else { return None };
            Some(match &request.request_id {
                Some(request_id) => NamedOrder {
                    order: *order,
                    client: &request_id.client,
                    request: request_id.request,
                },
                None => {
                    let request = self.unnamed.fetch_add(1, Ordering::Relaxed);
                    NamedOrder { order: *order, client: &self.name, request }
                }
            })
        };
        let orders: Vec<NamedOrder<'_>> = places.iter().filter_map(numbered).collect();
        // Only the thread that detected the loss has waited for it.
        let carried = match link.lost() {
            Some(reason) => Err(Unanswered::NotTried(reason.to_owned())),
            None => link.carry_out(&orders),
        };
        let (answers, latest) = match carried {
            Ok((answers, latest)) => {
                let _ = self.note_trouble(Ok(()));
                (answers, latest)
            }
            Err(unanswered) => {
                let (stop, reason) = match unanswered {
                    Unanswered::NotTried(reason) => (Stop::Busy, reason),
                    Unanswered::Unsure(reason) => (Stop::Unsure, reason),
                };
                let _ = self.note_trouble(Err::<(), _>(reason));
                (vec![Answer::Stopped(stop); places.len()], 0)
            }
        };
        for ((batch, place), answer) in places.iter().zip(answers) {
            batches[*batch].0[*place].answer = Some(answer);
        }
        if latest > 0 {
            self.journal.committed_elsewhere(latest);
        }
        latest
    }

    /// Periodically deletes orders beyond the number to keep. Only the next task waits for this.
    fn trim(&self, link: &mut Link, latest: u64) {
        let step = latest / TRIM_EVERY;
        let is_due = latest > ORDERS_KEPT && link.lost().is_none();
        if is_due && self.trimmed.fetch_max(step, Ordering::Relaxed) < step {
            link.trim(latest - ORDERS_KEPT);
        }
    }

    fn list(&self, link: &mut Link) -> Result<Shown, String> {
        let shown = match link.lost() {
            Some(reason) => Err(reason.to_owned()),
            None => link.show(),
        };
        self.note_trouble(shown)
    }

    fn show(&self, link: &mut Link, batches: &mut [JobBatch], places: &[JobIndex]) {
        if places.is_empty() {
            return;
        }
        let answer = match self.list(link) {
            Ok(shown) => Answer::Shown(Arc::new(shown)),
            Err(_) => Answer::Stopped(Stop::Busy),
        };
        for (batch, place) in places {
            batches[*batch].0[*place].answer = Some(answer.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_exchange::{Form, Order, Request, Side};

    pub(super) fn job(token: usize, is_list: bool) -> Job {
        let order = Order::new(Side::Buy, 1, 1).unwrap();
        let ask = if is_list { Command::Show } else { Command::Trade(order) };
        let request =
            Request { command: ask, request_id: None, deadline_ms: None, form: Form::Resp };
        Job { token, request, due_ns: 0, answer: None }
    }

    #[test]
    fn stages_keep_the_order_of_each_connection() {
        let batch = |jobs: Vec<Job>| (jobs, Arc::<ReplySlot>::default());
        let mut batches = vec![
            batch(vec![job(1, false), job(2, true), job(1, true), job(1, false), job(2, true)]),
            batch(vec![job(1, false), job(1, false)]),
        ];
        batches[1].0.push(Job { answer: Some(Answer::Stopped(Stop::Busy)), ..job(1, true) });
        let stages = stages(&mut batches);
        assert_eq!(stages[0], [(0, 0), (1, 0), (1, 1)]);
        assert_eq!(stages[1], [(0, 1), (0, 2), (0, 4)]);
        assert_eq!(stages[2], [(0, 3)]);
        assert_eq!(stages.len(), 3);
    }

    #[test]
    fn server_names_are_unique() {
        assert_ne!(own_name(), own_name());
        assert!(own_name().starts_with('#'));
    }
}
