//! Remembered outcomes per client, so that a repeated order executes once.
//!
//! The latest [`WINDOW`] outcomes of each client are remembered, for a bounded number of clients;
//! the client that has been silent longest is forgotten first. An order older than the window gets
//! an error and is never executed. Only orders change this memory, so replaying the same log
//! rebuilds it exactly.

use crate::stock::{Refused, RequestId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Outcomes remembered per client.
pub const WINDOW: usize = 128;

/// How an order ended.
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

/// What the memory holds about an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: the order is new.
    New,
    /// The order was answered before, with this outcome.
    Before(OrderOutcome),
    /// The order is older than the memory; whether it was executed is unknown.
    TooOld,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Client {
    answers: BTreeMap<u64, OrderOutcome>,
    /// Largest request number that was forgotten.
    forgotten: Option<u64>,
    latest_seq: u64,
}

/// Memory of all clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    clients: HashMap<Arc<str>, Client>,
    /// Clients by the log number of their latest order, the longest silent first.
    silent: BTreeMap<u64, Arc<str>>,
    clients_max: usize,
}

impl Clients {
    /// Creates an empty memory for at most `clients_max` clients.
    pub fn new(clients_max: usize) -> Self {
        Self { clients: HashMap::new(), silent: BTreeMap::new(), clients_max: clients_max.max(1) }
    }

    /// Splits the memory into `parts` parts. `part` selects the part of a client name; each part
    /// gets an equal share of the bound.
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

    /// Marks all orders before the first remembered one of each client as forgotten: whether they
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
    pub fn seen(&self, request_id: &RequestId) -> Seen {
        let Some(client) = self.clients.get(&request_id.client) else { return Seen::New };
        match client.answers.get(&request_id.request) {
            Some(outcome) => Seen::Before(*outcome),
            None if client.forgotten.is_some_and(|most| request_id.request <= most) => Seen::TooOld,
            None => Seen::New,
        }
    }

    /// Remembers the outcome of an order.
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
