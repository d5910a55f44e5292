//! The exchange with its client history and log numbers.
//!
//! Every order that changed a stock has a log number, without gaps. So has every order of a named
//! client, executed or refused, because a repetition must get the same answer. The log determines
//! the state: [`State::replay`] checks every record against the state it produces.

use crate::answer::{Answer, Shown, Stop};
use crate::book::Exchange;
use crate::clients::{Clients, OrderOutcome, Seen};
use crate::stock::{Order, RequestId};
use std::sync::Arc;
use thiserror::Error;

/// Number of clients whose latest orders are remembered.
const CLIENTS_MAX: usize = 65_536;

/// One entry of the order log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The order.
    pub order: Order,
    /// Outcome of the order, including its log number.
    pub outcome: OrderOutcome,
    /// Identity of the order, if the client is named.
    pub request_id: Option<RequestId>,
}

/// A record that is inconsistent with the preceding state.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "record {seq} of the order log is inconsistent with the state after record {after}: the log \
    belongs to another exchange or is damaged"
)]
pub struct BadRecord {
    /// Record number.
    pub seq: u64,
    /// Number of the latest valid record.
    pub after: u64,
}

/// The complete state. Only one thread at a time can use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    exchange: Exchange,
    clients: Clients,
    seq: u64,
    shown: Option<Arc<Shown>>,
}

impl State {
    /// Creates a state whose latest order has log number `seq`.
    pub fn new(exchange: Exchange, seq: u64) -> Self {
        Self { exchange, clients: Clients::new(CLIENTS_MAX), seq, shown: None }
    }

    /// Returns the stocks.
    pub fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Returns the client history.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Returns the log number of the latest order.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Executes an order, or repeats its earlier answer. If a record is returned, it must be
    /// written to the log.
    pub fn trade(
        &mut self,
        order: &Order,
        request_id: Option<&RequestId>,
    ) -> (Answer, Option<Record>) {
        if let Some(request_id) = request_id {
            match self.clients.seen(request_id, order) {
                Seen::New => {}
                Seen::Before(outcome) => return (outcome.into(), None),
                Seen::Reused => return (Answer::Stopped(Stop::Reused), None),
                Seen::TooOld => return (Answer::Stopped(Stop::TooOld), None),
            }
        }
        let seq = self.seq + 1;
        let outcome = match self.exchange.trade(order) {
            Ok(left) => OrderOutcome::Done { left, seq },
            Err(why) if request_id.is_none() => return (Answer::Refused(why), None),
            Err(why) => OrderOutcome::Refused { why, seq },
        };
        self.seq = seq;
        self.shown = None;
        if let Some(request_id) = request_id {
            self.clients.keep(request_id, order, outcome);
        }
        (outcome.into(), Some(Record { order: *order, outcome, request_id: request_id.cloned() }))
    }

    /// Returns all current stocks. The list is built once and shared until the next order.
    pub fn show(&mut self) -> Arc<Shown> {
        let (exchange, seq) = (&self.exchange, self.seq);
        Arc::clone(
            self.shown
                .get_or_insert_with(|| Arc::new(Shown { seq, lines: exchange.lines().collect() })),
        )
    }

    /// Remembers a logged order whose effect is already included in the stocks.
    pub fn remember(&mut self, record: &Record) {
        if let Some(request_id) = &record.request_id {
            self.clients.keep(request_id, &record.order, record.outcome);
        }
    }

    /// Declares that the log once contained older orders than those remembered here. From now on,
    /// unknown orders older than a client's first remembered order are answered as too old;
    /// otherwise they could execute twice.
    pub fn forget_older(&mut self) {
        self.clients.close_below();
    }

    /// Replays the next record of a log.
    pub fn replay(&mut self, record: &Record) -> Result<(), BadRecord> {
        let bad = BadRecord { seq: record.outcome.seq(), after: self.seq };
        if bad.seq != self.seq + 1 {
            return Err(bad);
        }
        match (self.exchange.trade(&record.order), record.outcome) {
            (Ok(left), OrderOutcome::Done { left: logged, .. }) if left == logged => {}
            (Err(why), OrderOutcome::Refused { why: logged, .. }) if why == logged => {}
            _ => return Err(bad),
        }
        self.seq = bad.seq;
        self.shown = None;
        self.remember(record);
        Ok(())
    }
}
