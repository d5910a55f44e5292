//! What the exchange remembers of its clients, so that an order that is sent again counts once.
//!
//! Of each client the answers to its latest [`WINDOW`] orders are kept, of so many clients that the
//! memory is bounded; the client that was silent for longest is forgotten first. An order older than
//! the window is answered with an error, never carried out. What is kept changes by orders alone, so
//! the same log gives the same memory.

use crate::stock::{Refused, RequestId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Answers that are kept of each client.
pub const WINDOW: usize = 128;

/// How an order of a client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderOutcome {
    /// It was carried out.
    Done {
        /// What was left.
        left: u32,
        /// Its number in the log.
        seq: u64,
    },
    /// It was refused.
    Refused {
        /// Why.
        why: Refused,
        /// Its number in the log.
        seq: u64,
    },
}

impl OrderOutcome {
    /// The number of the order in the log.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Done { seq, .. } | Self::Refused { seq, .. } => *seq,
        }
    }
}

/// What is known of an order of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: it is new.
    New,
    /// It was answered like this before.
    Before(OrderOutcome),
    /// It may have been, but is older than what is remembered.
    TooOld,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Client {
    answers: BTreeMap<u64, OrderOutcome>,
    /// The largest request that was forgotten.
    forgotten: Option<u64>,
    latest_seq: u64,
}

/// The memory of all clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    clients: HashMap<Arc<str>, Client>,
    /// Clients by their latest order, the most silent first.
    silent: BTreeMap<u64, Arc<str>>,
    clients_max: usize,
}

impl Clients {
    /// An empty memory for at most so many clients.
    pub fn new(clients_max: usize) -> Self {
        Self { clients: HashMap::new(), silent: BTreeMap::new(), clients_max: clients_max.max(1) }
    }

    /// The same memory in so many parts, each for the names that `part` puts there and with its share
    /// of the bound.
    pub fn split(&self, parts: usize, part: impl Fn(&str) -> usize) -> Vec<Self> {
        let one = Self::new(self.clients_max / parts.max(1));
        let mut all = vec![one; parts.max(1)];
        for (name, client) in &self.clients {
            let into = &mut all[part(name)];
            into.silent.insert(client.latest_seq, Arc::clone(name));
            into.clients.insert(Arc::clone(name), client.clone());
        }
        all
    }

    /// Forgets of each client all orders before the first that is remembered: they were carried out or
    /// not, and nobody knows any more.
    pub fn close_below(&mut self) {
        for client in self.clients.values_mut() {
            let before =
                client.answers.first_key_value().and_then(|(first, _)| first.checked_sub(1));
            client.forgotten = client.forgotten.max(before);
        }
    }

    /// How many clients are remembered.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether no client is remembered.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// What is known of an order.
    pub fn seen(&self, request_id: &RequestId) -> Seen {
        let Some(client) = self.clients.get(&request_id.client) else { return Seen::New };
        match client.answers.get(&request_id.request) {
            Some(outcome) => Seen::Before(*outcome),
            None if client.forgotten.is_some_and(|most| request_id.request <= most) => Seen::TooOld,
            None => Seen::New,
        }
    }

    /// Remembers how an order ended.
    pub fn keep(&mut self, request_id: &RequestId, outcome: OrderOutcome) {
        let seq = outcome.seq();
        let is_full = self.clients.len() >= self.clients_max;
        if is_full
            && !self.clients.contains_key(&request_id.client)
            && let Some((_, name)) = self.silent.pop_first()
        {
            self.clients.remove(&name);
        }
        let client = self.clients.entry(Arc::clone(&request_id.client)).or_default();
        if client.latest_seq > 0 {
            self.silent.remove(&client.latest_seq);
        }
        client.latest_seq = seq;
        self.silent.insert(seq, Arc::clone(&request_id.client));
        client.answers.insert(request_id.request, outcome);
        if client.answers.len() > WINDOW
            && let Some((oldest, _)) = client.answers.pop_first()
        {
            client.forgotten = client.forgotten.max(Some(oldest));
        }
    }
}
