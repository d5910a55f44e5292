//! One thread alone touches the stocks; the others hand it their jobs and wait.
//!
//! It takes whatever waits, carries it out in one go, commits it once and gives everything back. So
//! the order of the log, the order of the changes and the batches of commits are one and the same.
//! Each thread has at most one batch with it, so what waits is bounded.

use super::{Alone, Job, Strategy};
use crate::journal::{Broken, Journal};
use ioloom_exchange::{Exchange, State};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// Batches that are carried out before a commit.
const BATCHES_MAX: usize = 1024;

/// A batch that was carried out, and whether its answers may leave.
type Back = (Vec<Job>, Result<(), Broken>);

/// Where a batch comes back.
#[derive(Default)]
struct Desk {
    back: Mutex<Option<Back>>,
    arrived: Condvar,
}

enum Errand {
    Jobs(Vec<Job>, Arc<Desk>),
    Snapshot(Sender<(Exchange, u64)>),
}

pub(super) struct Writer {
    sender: Option<Sender<Errand>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn new(state: State, journal: Arc<Journal>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || work(Alone::new(state), &journal, &receiver))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    fn send(&self, errand: Errand) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.send(errand).is_ok())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(mut alone: Alone, journal: &Journal, receiver: &Receiver<Errand>) {
    let (mut done, mut seq) = (Vec::new(), 0);
    while let Ok(first) = receiver.recv() {
        let mut next = Some(first);
        while let Some(errand) = next {
            match errand {
                Errand::Jobs(mut jobs, desk) => {
                    seq = alone.answer(&mut jobs, journal);
                    done.push((jobs, desk));
                }
                Errand::Snapshot(sender) => {
                    let _ = sender.send(alone.snapshot());
                }
            }
            next = if done.len() < BATCHES_MAX { receiver.try_recv().ok() } else { None };
        }
        let result = journal.wait(seq);
        for (jobs, desk) in done.drain(..) {
            *desk.back.lock().expect("no panic under this lock") = Some((jobs, result));
            desk.arrived.notify_one();
        }
    }
}

thread_local! {
    /// The desk of a thread; it never has more than one batch away.
    static DESK: Arc<Desk> = Arc::default();
}

impl Strategy for Writer {
    fn answer(&self, jobs: &mut Vec<Job>, _: &Journal) -> Result<(), Broken> {
        if !jobs.iter_mut().any(Job::is_open) {
            return Ok(());
        }
        let desk = DESK.with(Arc::clone);
        if !self.send(Errand::Jobs(std::mem::take(jobs), Arc::clone(&desk))) {
            return Err(Broken);
        }
        let mut back = desk.back.lock().expect("no panic under this lock");
        loop {
            if let Some((answered, result)) = back.take() {
                *jobs = answered;
                return result;
            }
            back = desk.arrived.wait(back).expect("no panic under this lock");
        }
    }

    fn snapshot(&self) -> (Exchange, u64) {
        let (sender, receiver) = channel();
        self.send(Errand::Snapshot(sender));
        receiver.recv().expect("the writer lives as long as its handle")
    }
}
