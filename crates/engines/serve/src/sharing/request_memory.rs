//! Remembers which orders of named clients were executed.
//!
//! An order holds the lock on its client's part until it is logged. If two copies arrive at the
//! same time, only one is executed.

use ioloom_exchange::{Answer, Clients, Order, OrderOutcome, RequestId, Seen, Stop};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

/// Number of parts.
const PARTS: usize = 16;

/// The memory of named clients, split into parts with one lock each.
pub(super) struct RequestMemory {
    parts: Vec<Mutex<Clients>>,
    hasher: RandomState,
}

impl RequestMemory {
    pub(super) fn new(clients: &Clients) -> Self {
        let hasher = RandomState::new();
        let parts = clients.split(PARTS, |name| part_of(&hasher, name));
        Self { parts: parts.into_iter().map(Mutex::new).collect(), hasher }
    }

    /// Looks up an order.
    pub(super) fn seen(&self, request_id: &RequestId, order: &Order) -> Seen {
        let part = &self.parts[part_of(&self.hasher, &request_id.client)];
        part.lock().expect("the lock must not be poisoned").seen(request_id, order)
    }

    /// Executes an order once. `trade` executes it and returns its outcome and log number.
    pub(super) fn once(
        &self,
        request_id: &RequestId,
        order: &Order,
        trade: impl FnOnce() -> OrderOutcome,
    ) -> Answer {
        let part = &self.parts[part_of(&self.hasher, &request_id.client)];
        let mut clients = part.lock().expect("the lock must not be poisoned");
        match clients.seen(request_id, order) {
            Seen::Before(outcome) => outcome.into(),
            Seen::Reused => Answer::Stopped(Stop::Reused),
            Seen::TooOld => Answer::Stopped(Stop::TooOld),
            Seen::New => {
                let outcome = trade();
                clients.keep(request_id, order, outcome);
                outcome.into()
            }
        }
    }
}

fn part_of(hasher: &RandomState, name: &str) -> usize {
    hasher.hash_one(name) as usize % PARTS
}
