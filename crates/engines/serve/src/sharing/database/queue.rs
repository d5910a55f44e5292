//! The queue of database tasks, and whether the database is available.
//!
//! No task waits for an unavailable database. The thread that loses its connection reports this
//! here; queued and new tasks are then answered immediately until one of the threads is connected
//! again. A lost database therefore blocks a model with one loop only once, for at most the
//! duration of one query.
//!
//! ```text
//!            lost: losses + 1, queued tasks are refused
//!   there ─────────────────────────────────────────► away ──┐ new tasks are refused;
//!     ▲                                                │ ▲   │ threads reconnect, with pauses
//!     └──────────── back, if losses is unchanged ──────┘ └───┘
//! ```
//!
//! **Losses are counted.** A connection is valid for the loss count at which connecting started. A
//! thread with an older connection reconnects before it takes a task: its connection may have been
//! lost together with the reported one, which the network does not report. A thread that discovers
//! the loss of an old connection changes nothing.
//!
//! While the database is available, at least one thread has a connection of the latest count or is
//! about to report its loss, so no task remains in the queue. Two condition variables are used to
//! avoid that new tasks wake pausing threads.

use crate::sharing::job::Job;
use crate::sharing::reply::ReplySlot;
use ioloom_exchange::{Answer, Exchange, Stop};
use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// A database task.
pub(super) enum Task {
    Jobs(Vec<Job>, Arc<ReplySlot>),
    Snapshot(Sender<Result<(Exchange, u64), String>>),
}

impl Task {
    fn jobs(&self) -> usize {
        if let Self::Jobs(jobs, _) = self { jobs.len() } else { 1 }
    }

    /// Answers that the database is not available.
    fn refuse(self, reason: &str) {
        match self {
            Self::Jobs(mut jobs, reply) => {
                for job in &mut jobs {
                    if job.needs_exchange() {
                        job.answer = Some(Answer::Stopped(Stop::Busy));
                    }
                }
                reply.send(jobs, Ok(()));
            }
            Self::Snapshot(sender) => {
                let _ = sender.send(Err(reason.to_owned()));
            }
        }
    }
}

/// What a thread must do next.
pub(super) enum Next {
    Tasks(Vec<Task>),
    /// Reconnect: the connection of this count may have been lost.
    Connect,
    Over,
}

#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    is_over: bool,
    /// How often the database was lost.
    losses: u64,
    /// Why the database is away, if it is.
    away: Option<String>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("the lock must not be poisoned")
    }

    /// Queues a task, or answers it if the database is away; returns false if the queue is closed.
    pub(super) fn put(&self, task: Task) -> bool {
        let mut waiting = self.lock();
        if waiting.is_over {
            return false;
        }
        if let Some(reason) = waiting.away.clone() {
            drop(waiting);
            task.refuse(&reason);
            return true;
        }
        waiting.tasks.push_back(task);
        self.arrived.notify_one();
        true
    }

    /// Waits for tasks, and takes tasks with a total of about `most` jobs. `losses` is the loss
    /// count of the thread's connection.
    pub(super) fn take(&self, losses: u64, most: usize) -> Next {
        let mut waiting = self.lock();
        loop {
            if waiting.losses != losses {
                // Pass the notification on to a thread that may take the task.
                self.arrived.notify_one();
                return if waiting.is_over { Next::Over } else { Next::Connect };
            }
            if !waiting.tasks.is_empty() {
                break;
            }
            if waiting.is_over {
                return Next::Over;
            }
            waiting = self.arrived.wait(waiting).expect("the lock must not be poisoned");
        }
        let (mut taken, mut jobs) = (Vec::new(), 0);
        while jobs < most
            && let Some(task) = waiting.tasks.pop_front()
        {
            jobs += task.jobs();
            taken.push(task);
        }
        Next::Tasks(taken)
    }

    /// Marks the database as unavailable and refuses queued tasks. `losses` is the count that the
    /// failed connection started with; a later loss is reported only once.
    pub(super) fn lost(&self, losses: u64, reason: &str) {
        let mut waiting = self.lock();
        if waiting.losses != losses {
            return;
        }
        waiting.losses += 1;
        waiting.away = Some(reason.to_owned());
        let refused = std::mem::take(&mut waiting.tasks);
        drop(waiting);
        self.arrived.notify_all();
        for task in refused {
            task.refuse(reason);
        }
    }

    /// Returns the loss count; read it before connecting.
    pub(super) fn losses(&self) -> u64 {
        self.lock().losses
    }

    /// Marks the database as available over a connection of this count; returns false if it has
    /// been lost since then.
    pub(super) fn back(&self, losses: u64) -> bool {
        let mut waiting = self.lock();
        let is_good = waiting.losses == losses;
        if is_good {
            waiting.away = None;
        }
        is_good
    }

    /// Pauses before the next connection attempt, after one that failed with `reason`; returns true
    /// if the queue was closed.
    pub(super) fn pause(&self, pause: Duration, reason: String) -> bool {
        let mut waiting = self.lock();
        if let Some(away) = &mut waiting.away {
            *away = reason;
        }
        let is_on = |waiting: &mut Waiting| !waiting.is_over;
        let paused = self.ended.wait_timeout_while(waiting, pause, is_on);
        paused.expect("the lock must not be poisoned").0.is_over
    }

    /// Returns why the database is away, if it is.
    pub(super) fn away(&self) -> Option<String> {
        self.lock().away.clone()
    }

    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Closes the queue. Tasks already in the queue are still processed.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.arrived.notify_all();
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::job;
    use super::*;
    use crate::sharing::reply::submit;
    use std::sync::mpsc::channel;

    fn busy(queue: &Queue) -> bool {
        let mut jobs = vec![job(1, false), job(2, true)];
        submit(&mut jobs, |jobs, reply| queue.put(Task::Jobs(jobs, reply))).unwrap();
        jobs.iter().all(|job| matches!(job.answer, Some(Answer::Stopped(Stop::Busy))))
    }

    /// No thread takes tasks here, so a queued task would block forever.
    #[test]
    fn nothing_waits_for_a_database_that_is_away() {
        let queue = Queue::default();
        queue.lost(0, "gone");
        assert!(busy(&queue));
        let (sender, receiver) = channel();
        assert!(queue.put(Task::Snapshot(sender)));
        assert_eq!(receiver.recv().unwrap().unwrap_err(), "gone");
        assert_eq!(queue.away().unwrap(), "gone");
        assert!(!queue.pause(Duration::ZERO, "not there yet".to_owned()));
        assert_eq!(queue.away().unwrap(), "not there yet");
        queue.end();
        assert!(queue.pause(Duration::MAX, String::new()));
    }

    #[test]
    fn what_waits_is_answered_when_the_database_is_lost() {
        let queue = Queue::default();
        let (sender, receiver) = channel();
        assert!(queue.put(Task::Snapshot(sender)));
        let waits = std::thread::scope(|scope| {
            let waits = scope.spawn(|| busy(&queue));
            while queue.lock().tasks.len() < 2 {
                std::thread::yield_now();
            }
            queue.lost(0, "gone");
            waits.join().unwrap()
        });
        assert!(waits && receiver.recv().unwrap().is_err());
    }

    #[test]
    fn an_old_connection_takes_nothing_and_tells_nothing_new() {
        let queue = Queue::default();
        queue.lost(0, "gone");
        assert_eq!(queue.losses(), 1);
        assert!(!queue.back(0), "connecting started before the loss");
        assert!(queue.away().is_some());
        assert!(queue.back(1));
        // A late report of a known loss.
        queue.lost(0, "gone");
        assert!(queue.away().is_none());
        let (sender, _receiver) = channel();
        assert!(queue.put(Task::Snapshot(sender)));
        assert!(matches!(queue.take(0, 1), Next::Connect));
        assert!(matches!(queue.take(1, 1), Next::Tasks(tasks) if tasks.len() == 1));
        queue.end();
        assert!(matches!(queue.take(1, 1), Next::Over));
        assert!(matches!(queue.take(0, 1), Next::Over));
    }

    #[test]
    fn about_as_much_is_taken_as_fits() {
        let queue = Queue::default();
        let batch = || Task::Jobs(vec![job(1, false), job(1, false)], Arc::<ReplySlot>::default());
        for _ in 0..3 {
            assert!(queue.put(batch()));
        }
        let sizes = [2, 1].map(|_| match queue.take(0, 3) {
            Next::Tasks(tasks) => tasks.len(),
            _ => 0,
        });
        assert_eq!(sizes, [2, 1]);
    }
}
