//! Remembers outcomes per client so that a repeated order executes only once.
//!
//! Keeps the latest [`WINDOW`] orders and outcomes of each client, for a bounded number of clients; the least
//! recently active client is forgotten first. An order older than the window gets an error and is
//! never executed. An order of a forgotten client cannot be distinguished from one of a new client, and
//! is executed, even if it is a repetition. An order that differs from the remembered order of its
//! number is never executed. Only orders change this history, so replaying the same log rebuilds it exactly.

use crate::stock::{Order, Refused, RequestId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Number of outcomes remembered per client.
pub const WINDOW: usize = 128;

/// Outcome of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderOutcome {
    /// Executed.
    Done {
        /// Shares left afterwards.
        left: u32,
        /// Number in the log.
        seq: u64,
    },
    /// Refused.
    Refused {
        /// Reason.
        why: Refused,
        /// Number in the log.
        seq: u64,
    },
}

impl OrderOutcome {
    /// Returns the number of the order in the log.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Done { seq, .. } | Self::Refused { seq, .. } => *seq,
        }
    }
}

/// What the history contains about an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: the order is new, or its client was forgotten.
    New,
    /// The order was already answered, with this outcome.
    Before(OrderOutcome),
    /// Another order has this identity.
    Reused,
    /// The order is older than the history; whether it was executed is unknown.
    TooOld,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Client {
    /// Orders and their outcomes, keyed by request number.
    answers: BTreeMap<u64, (Order, OrderOutcome)>,
    /// Largest request number that was forgotten.
    forgotten: Option<u64>,
    latest_seq: u64,
}

/// History of all clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    clients: HashMap<Arc<str>, Client>,
    /// Clients keyed by the log number of their latest order, least recently active first.
    silent: BTreeMap<u64, Arc<str>>,
    clients_max: usize,
}

impl Clients {
    /// Creates an empty history for at most `clients_max` clients.
    pub fn new(clients_max: usize) -> Self {
        Self { clients: HashMap::new(), silent: BTreeMap::new(), clients_max: clients_max.max(1) }
    }

    /// Splits the history into `parts` parts. `part` maps a client name to its part; each part gets
    /// an equal share of the bound.
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

    /// Marks all orders older than each client's first remembered order as forgotten: whether they
    /// were executed is unknown.
    pub fn close_below(&mut self) {
        for client in self.clients.values_mut() {
            let before =
                client.answers.first_key_value().and_then(|(first, _)| first.checked_sub(1));
            client.forgotten = client.forgotten.max(before);
        }
    }

    /// Returns the number of remembered clients.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Reports whether no client is remembered.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Looks up an order.
    pub fn seen(&self, request_id: &RequestId, order: &Order) -> Seen {
        let Some(client) = self.clients.get(&request_id.client) else { return Seen::New };
        match client.answers.get(&request_id.request) {
            Some((known, outcome)) if known == order => Seen::Before(*outcome),
            Some(_) => Seen::Reused,
            None if client.forgotten.is_some_and(|most| request_id.request <= most) => Seen::TooOld,
            None => Seen::New,
        }
    }

    /// Remembers the outcome of an order.
    pub fn keep(&mut self, request_id: &RequestId, order: &Order, outcome: OrderOutcome) {
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
        client.answers.insert(request_id.request, (*order, outcome));
        if client.answers.len() > WINDOW
            && let Some((oldest, _)) = client.answers.pop_first()
        {
            client.forgotten = client.forgotten.max(Some(oldest));
        }
    }
}
