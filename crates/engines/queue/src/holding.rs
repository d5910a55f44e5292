//! Leases, and when they end.
//!
//! A lease is extended until it is acknowledged or dropped. The lease of a shard whose commit is under way
//! has two owners: the worker, which may have more shards of it to run, and the commit. The last
//! one ends it: if the result is stored, it is acknowledged, and otherwise it is dropped and runs out, so that
//! another worker runs its shards. A failed commit ends the extension at once, also if the worker goes on with other
//! shards of that range.

use crate::instance::Instance;
use crate::ticket::Ticket;
use async_nats::jetstream::AckKind;
use async_nats::jetstream::message::Acker;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinHandle};

/// A range of shards that a worker holds.
pub(crate) struct Lease {
    pub(crate) acker: Arc<Acker>,
    /// Those that are left.
    pub(crate) shards: VecDeque<u64>,
    /// Whether the range is one shard, so that deliveries of the message are tries of the shard.
    pub(crate) is_single: bool,
    /// How often the message was delivered, and the tries before it was stored.
    pub(crate) tries: u32,
    /// Failures of the shard that were not counted as tries.
    pub(crate) uncounted: u32,
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

impl Lease {
    /// Takes over a message that was delivered. Call it inside a runtime.
    pub(crate) fn new(queue: Instance, acker: Arc<Acker>, ticket: &Ticket, delivered: u32) -> Self {
        let every = Duration::from_millis((queue.terms.lease_ms / 3).max(1));
        let extend = tokio::spawn(keep_extending(queue, acker.clone(), every));
        let Ticket { first, last, history } = *ticket;
        let tries = delivered.saturating_add(history.tries);
        let (shards, is_single) = ((first..=last).collect(), first == last);
        Self { acker, shards, is_single, tries, uncounted: history.uncounted, extend }
    }

    /// Acknowledges the lease. If the acknowledgement is lost, it comes again and nothing is left of it.
    pub(crate) async fn acknowledge(self, queue: &Instance) {
        let acknowledging =
            async { self.acker.double_ack().await.map_err(|e| queue.failed("write to", e)) };
        let _ = queue.in_time("write to", acknowledging).await;
    }
}

/// Extends a lease while its worker lives and is connected: the client keeps a limited number of messages for a
/// server that it has lost.
async fn keep_extending(queue: Instance, acker: Arc<Acker>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if queue.is_connected() {
            let _ = acker.ack_with(AckKind::Progress).await;
        }
    }
}

/// The lease of a shard whose commit is under way.
#[derive(Debug)]
pub(crate) struct Holding {
    state: Mutex<State>,
    /// Ends the extension of the lease.
    extend: Option<AbortHandle>,
}

#[derive(Debug)]
enum State {
    /// The commit is under way, and the worker has the lease.
    Committing,
    /// The commit is under way, and nothing else is left of the lease.
    Left(Lease),
    /// The commit has ended: whether the result is stored.
    Ended(bool),
}

impl Holding {
    pub(crate) fn new(lease: Option<&Lease>) -> Self {
        let extend = lease.map(|lease| lease.extend.abort_handle());
        Self { state: Mutex::new(State::Committing), extend }
    }

    /// Returns whether it is about this lease.
    pub(crate) fn is_of(&self, lease: &Lease) -> bool {
        self.extend.as_ref().map(AbortHandle::id) == Some(lease.extend.id())
    }

    /// Notes that the commit has ended. Returns the lease if it is to be acknowledged now.
    pub(crate) fn ended(&self, is_stored: bool) -> Option<Lease> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_stored && let Some(extend) = &self.extend {
            extend.abort();
        }
        match std::mem::replace(&mut *state, State::Ended(is_stored)) {
            State::Left(lease) if is_stored => Some(lease),
            _ => None,
        }
    }

    /// Takes over a lease of which nothing is left to run. Returns it if it is to be acknowledged now: it is not
    /// that of the commit, or the result is stored.
    pub(crate) fn leave(&self, lease: Lease) -> Option<Lease> {
        if !self.is_of(&lease) {
            return Some(lease);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Ended(is_stored) => is_stored.then_some(lease),
            _ => {
                debug_assert!(matches!(*state, State::Committing), "a lease is left once");
                *state = State::Left(lease);
                None
            }
        }
    }
}
