//! Results as an iterator: in the background, or scoped.
//!
//! The run sends its results through a bounded channel. In the order of the input, the iterator
//! holds results that come too early, and a [`Horizon`] in front of the input bounds how many those
//! can be: a path is taken only if it is less than [`AHEAD`] behind the next result.
//!
//! ```text
//! input ──► horizon ──► workers ──► channel (256) ──► early results (< 1024) ──► caller
//!              ▲ opens by one for each result that the caller takes                │
//!              └───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! No deadlock: workers that wait for the channel are served by a caller that waits for a result,
//! whichever it is, and the file whose result comes next is never behind the horizon.

use crate::cancel::Cancel;
use crate::error::{Error, FileError};
use crate::feed::{self, Entries, Entry};
use crate::keep::new_budget;
use ioloom_budget::Budget;
use ioloom_model::{Plan, ReadAhead, Schedule};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Results that the channel holds ready.
const READY: usize = 256;
/// Paths that may be taken ahead of the next result in the order of the input. More than the
/// default window, so that one slow file does not empty it.
const AHEAD: usize = 1024;

/// A result and its position in the input.
type Message<T, E> = (usize, Result<T, FileError<E>>);

/// Bounds how far paths are taken ahead of results.
#[derive(Debug)]
pub(crate) struct Horizon {
    /// Paths below this position may be taken.
    limit: Mutex<usize>,
    moved: Condvar,
}

impl Horizon {
    fn new() -> Arc<Self> {
        Arc::new(Self { limit: Mutex::new(AHEAD), moved: Condvar::new() })
    }

    /// Refuses a plan that takes all paths before the first result.
    pub(crate) fn check(plan: &Plan) -> Result<(), Error> {
        match plan.schedule {
            Schedule::Roles { window: ReadAhead::All, .. } => Err(Error::Refused(format!(
                "{plan}: results in the order of the input limit how far reads run ahead; use a \
                 number for w="
            ))),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.limit.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn move_to(&self, limit: usize) {
        let mut current = self.lock();
        *current = limit.max(*current);
        drop(current);
        self.moved.notify_one();
    }

    fn wait_for(&self, position: usize) {
        let mut limit = self.lock();
        while *limit <= position {
            limit = self.moved.wait(limit).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Passes on entries when they come into sight.
    pub(crate) fn bound(self: Arc<Self>, mut entries: Entries) -> Entries {
        let mut position = 0;
        feed::one_by_one(std::iter::from_fn(move || -> Option<Entry> {
            self.wait_for(position);
            position += 1;
            entries.next()
        }))
    }
}

/// The sending end: what the work of a run needs.
pub(crate) struct Channel<T, E> {
    send: SyncSender<Message<T, E>>,
    /// The budget of the run, which counts values in the channel as possible releases.
    budget: Arc<Budget>,
}

impl<T, E> Channel<T, E> {
    pub(crate) fn budget(&self) -> Arc<Budget> {
        self.budget.clone()
    }

    /// Sends a result. Returns false if nothing receives it any more.
    pub(crate) fn send(&self, index: usize, result: Result<T, FileError<E>>) -> bool {
        self.budget.add_releaser();
        let sent = match self.send.try_send((index, result)) {
            Ok(()) => true,
            Err(TrySendError::Full(message)) => {
                ioloom_observe::writing(|| self.send.send(message)).is_ok()
            }
            Err(TrySendError::Disconnected(_)) => false,
        };
        if !sent {
            self.budget.remove_releaser();
        }
        sent
    }
}

/// Both ends of a channel, and the horizon for results in the order of the input.
pub(crate) type Ends<V, E> = (Channel<V, E>, Incoming<V, E>, Option<Arc<Horizon>>);

/// The results of a run, as they become ready or in the order of the input. Failed files are items,
/// too. Passed to the closure of [`Job::scope`](crate::Job::scope).
///
/// While the caller may still drop values, the run waits for the memory that they retain; if the
/// caller waits for the next value instead, the run ends with [`Error::BudgetHeld`].
pub struct Results<T, E = Infallible> {
    received: Received<T, E>,
}

/// Values as the run sends them.
enum Received<T, E> {
    Direct(Incoming<T, E>),
    InBox(Incoming<Box<T>, E>),
}

impl<T, E> Results<T, E> {
    pub(crate) fn direct(incoming: Incoming<T, E>) -> Self {
        Self { received: Received::Direct(incoming) }
    }

    pub(crate) fn in_box(incoming: Incoming<Box<T>, E>) -> Self {
        Self { received: Received::InBox(incoming) }
    }

    /// Ends the run: workers that send, rest or wait for paths notice it.
    pub(crate) fn end(&mut self) {
        match &mut self.received {
            Received::Direct(incoming) => incoming.end(),
            Received::InBox(incoming) => incoming.end(),
        }
    }

    /// Returns whether the caller has seen the end, and how many results it has taken.
    pub(crate) fn seen(&self) -> (bool, u64) {
        match &self.received {
            Received::Direct(incoming) => (incoming.ended, incoming.taken),
            Received::InBox(incoming) => (incoming.ended, incoming.taken),
        }
    }
}

impl<T, E> Iterator for Results<T, E> {
    type Item = Result<T, FileError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.received {
            Received::Direct(incoming) => incoming.next(),
            Received::InBox(incoming) => match incoming.next()? {
                Ok(value) => Some(Ok(*value)),
                Err(error) => Some(Err(error)),
            },
        }
    }
}

impl<T, E> Drop for Results<T, E> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The receiving end.
pub(crate) struct Incoming<V, E> {
    messages: Option<Receiver<Message<V, E>>>,
    /// In the order of the input: results that came early, and what they wait for.
    order: Option<Early<V, E>>,
    /// Whether the caller has seen the end.
    ended: bool,
    /// Results that the caller has taken.
    taken: u64,
    cancel: Cancel,
    /// Each value in the channel may return retained bytes to the budget, and so may the caller
    /// while it is not in [`Results::next`].
    budget: Arc<Budget>,
}

struct Early<T, E> {
    results: BTreeMap<usize, Result<T, FileError<E>>>,
    next: usize,
    horizon: Arc<Horizon>,
}

impl<V, E> Incoming<V, E> {
    /// Creates both ends, and the horizon for results in the order of the input.
    pub(crate) fn channel(ordered: bool, cancel: Cancel, memory_bytes: u64) -> Ends<V, E> {
        let (send, messages) = sync_channel(READY);
        let budget = new_budget(memory_bytes);
        budget.add_releaser();
        let horizon = ordered.then(Horizon::new);
        let order = horizon.clone().map(|horizon| {
            let results = BTreeMap::new();
            Early { results, next: 0, horizon }
        });
        let messages = Some(messages);
        let (ended, taken) = (false, 0);
        let incoming = Self { messages, order, ended, taken, cancel, budget: budget.clone() };
        (Channel { send, budget }, incoming, horizon)
    }

    fn end(&mut self) {
        self.cancel.cancel();
        self.messages = None;
        if let Some(early) = &mut self.order {
            early.horizon.move_to(usize::MAX);
            early.results.clear();
        }
    }

    /// Receives the next message. The caller takes over its count as a releaser, and must have
    /// stopped counting itself.
    fn receive(&mut self) -> Option<Message<V, E>> {
        let received = self.messages.as_ref()?.recv().ok();
        if received.is_none() {
            self.messages = None;
        }
        received
    }

    fn next_ready(&mut self) -> Option<Result<V, FileError<E>>> {
        match self.messages.as_ref()?.try_recv() {
            Ok((_, next)) => {
                self.budget.remove_releaser();
                Some(next)
            }
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                self.budget.remove_releaser();
                self.receive().map(|(_, next)| next)
            }
        }
    }

    fn next_in_order(&mut self) -> Option<Result<V, FileError<E>>> {
        let early = self.order.as_mut()?;
        let wanted = early.next;
        if let Some(next) = early.results.remove(&wanted) {
            early.took(wanted);
            return Some(next);
        }
        if self.messages.is_some() {
            self.budget.remove_releaser();
        }
        while let Some((index, result)) = self.receive() {
            let early = self.order.as_mut()?;
            if index == wanted {
                early.took(wanted);
                return Some(result);
            }
            // Held until the results before it have come. It releases nothing until then.
            early.results.insert(index, result);
            self.budget.remove_releaser();
        }
        // The run has ended early. What is held is behind a result that is missing.
        self.order.as_mut()?.results.clear();
        None
    }

    /// Waits for the next result. Both the caller while it is not here and each value in the channel
    /// count as releasers. A caller that must wait stops counting first, and takes over the count of
    /// the value that it receives.
    fn next(&mut self) -> Option<Result<V, FileError<E>>> {
        let next = if self.order.is_some() { self.next_in_order() } else { self.next_ready() };
        match next {
            Some(_) => self.taken += 1,
            None => {
                self.ended = true;
                self.messages = None;
            }
        }
        next
    }
}

impl<T, E> Early<T, E> {
    fn took(&mut self, index: usize) {
        self.next = index + 1;
        self.horizon.move_to(self.next.saturating_add(AHEAD));
    }
}

/// The iterator form of a job: results as they become ready, or in the order of the input with
/// [`Files::ordered`](crate::Files::ordered). The run works a bounded number of results ahead: 256,
/// and 1024 in the order of the input. See [`Results`] for memory that values retain. Dropping the
/// iterator cancels the run and waits for what is in flight. Failed files are items, so
/// [`OnError`](crate::OnError) does not apply.
pub struct Iter<T, E = Infallible> {
    results: Results<T, E>,
    engine: Option<JoinHandle<Result<(), Error>>>,
    error: Option<Arc<Error>>,
    /// Whether an item has said so.
    reported: bool,
}

impl<T, E> Iter<T, E> {
    pub(crate) fn new(
        results: Results<T, E>,
        engine: std::io::Result<JoinHandle<Result<(), Error>>>,
    ) -> Self {
        match engine {
            Ok(engine) => Self { results, engine: Some(engine), error: None, reported: false },
            Err(source) => {
                let error = Error::System { operation: "start a thread", source };
                Self { results, engine: None, error: Some(Arc::new(error)), reported: false }
            }
        }
    }

    /// Returns why the run ended early, once the iterator has ended. The last item says so as well.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_deref()
    }
}

impl<T, E> Iterator for Iter<T, E> {
    type Item = Result<T, FileError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.results.next();
        if next.is_some() {
            return next;
        }
        match self.engine.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => self.error = Some(Arc::new(error)),
            Some(Err(payload)) => std::panic::resume_unwind(payload),
        }
        // A caller that only collects the items must not take a part for the whole.
        let error = self.error.clone().filter(|_| !self.reported)?;
        self.reported = true;
        Some(Err(FileError::of_run(error)))
    }
}

impl<T, E> Drop for Iter<T, E> {
    fn drop(&mut self) {
        self.results.end();
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what a receiver gets if these positions are sent and the run then ends.
    fn received(sent: &[usize], ordered: bool) -> Vec<usize> {
        let (channel, incoming, _) =
            Incoming::<_, Infallible>::channel(ordered, Cancel::new(), 1 << 20);
        for index in sent {
            assert!(channel.send(*index, Ok(*index)));
        }
        drop(channel);
        Results::direct(incoming).map(Result::unwrap).collect()
    }

    #[test]
    fn results_in_order_have_no_gaps() {
        assert_eq!(received(&[1, 0, 9, 4, 2, 5], true), [0, 1, 2]);
        assert_eq!(received(&[2, 1, 0], true), [0, 1, 2]);
        assert!(received(&[1, 2], true).is_empty());
        assert_eq!(received(&[1, 0, 9], false), [1, 0, 9]);
    }
}
