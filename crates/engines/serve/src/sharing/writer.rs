//! One thread owns the stocks; the others send it jobs and wait.
//!
//! The thread takes everything in the queue, executes it, commits it once and replies. So the log
//! order, the order of changes and the commit batches are the same. Each sending thread has at most
//! one batch in flight, which bounds the queue.

use super::exclusive::Exclusive;
use super::job::Job;
use super::reply::{ReplySlot, submit};
use super::strategy::Strategy;
use crate::error::ServeError;
use crate::journal::{Journal, StoreFailed};
use ioloom_exchange::Exchange;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Maximum number of batches per commit.
const BATCHES_MAX: usize = 1024;

enum Message {
    Jobs(Vec<Job>, Arc<ReplySlot>),
    Snapshot(Sender<(Exchange, u64)>),
}

pub(super) struct Writer {
    sender: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn new(exclusive: Exclusive, journal: Arc<Journal>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || work(exclusive, &journal, &receiver))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    fn send(&self, message: Message) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.send(message).is_ok())
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

fn work(mut exclusive: Exclusive, journal: &Journal, receiver: &Receiver<Message>) {
    let (mut done, mut seq) = (Vec::new(), 0);
    while let Ok(first) = receiver.recv() {
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Jobs(mut jobs, reply) => {
                    seq = exclusive.answer(&mut jobs, journal);
                    done.push((jobs, reply));
                }
                Message::Snapshot(sender) => {
                    let _ = sender.send(exclusive.snapshot());
                }
            }
            next = if done.len() < BATCHES_MAX { receiver.try_recv().ok() } else { None };
        }
        let result = journal.wait(seq);
        for (jobs, reply) in done.drain(..) {
            reply.send(jobs, result);
        }
    }
}

impl Strategy for Writer {
    fn answer(&self, jobs: &mut Vec<Job>, _: &Journal) -> Result<u64, StoreFailed> {
        submit(jobs, |jobs, reply| self.send(Message::Jobs(jobs, reply)))?;
        Ok(0)
    }

    fn snapshot(&self) -> Result<(Exchange, u64), ServeError> {
        let (sender, receiver) = channel();
        self.send(Message::Snapshot(sender));
        Ok(receiver.recv().expect("the writer must outlive its handle"))
    }
}
