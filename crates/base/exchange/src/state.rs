//! The exchange with its memory of clients and its log numbers.
//!
//! Every order that changed a stock has a number in the log, without gaps. So has every order of a
//! named client, executed or refused, because a repetition must get the same answer. The log
//! determines the state: [`State::replay`] checks every record against the state it produces.

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
    /// Its outcome, with its number in the log.
    pub outcome: OrderOutcome,
    /// Identity of the order, if the client is named.
    pub request_id: Option<RequestId>,
}

/// A record that does not follow from the state before it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "record {seq} of the order log does not follow from the state after record {after}: the log \
     belongs to another exchange or is damaged"
)]
pub struct BadRecord {
    /// Number of the record.
    pub seq: u64,
    /// Number of the latest valid record.
    pub after: u64,
}

/// The complete state, used by one thread at a time.
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

    /// Returns the memory of clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Returns the log number of the latest order.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Executes an order, or repeats its earlier answer. If a record is returned, the log must
    /// store it.
    pub fn trade(
        &mut self,
        order: &Order,
        request_id: Option<&RequestId>,
    ) -> (Answer, Option<Record>) {
        if let Some(request_id) = request_id {
            match self.clients.seen(request_id) {
                Seen::New => {}
                Seen::Before(outcome) => return (outcome.into(), None),
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
            self.clients.keep(request_id, outcome);
        }
        (outcome.into(), Some(Record { order: *order, outcome, request_id: request_id.cloned() }))
    }

    /// Returns all stocks at this moment. The list is built once and shared until the next order.
    pub fn show(&mut self) -> Arc<Shown> {
        let (exchange, seq) = (&self.exchange, self.seq);
        Arc::clone(
            self.shown
                .get_or_insert_with(|| Arc::new(Shown { seq, lines: exchange.lines().collect() })),
        )
    }

    /// Remembers an order of the log whose effect the stocks already contain.
    pub fn remember(&mut self, record: &Record) {
        if let Some(request_id) = &record.request_id {
            self.clients.keep(request_id, record.outcome);
        }
    }

    /// Declares that the log once held older orders than those remembered here. Unknown orders
    /// older than a client's first remembered order are answered as too old from now on; otherwise
    /// they could be executed twice.
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
