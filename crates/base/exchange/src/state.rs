//! The exchange with its memory of clients and the numbers of its log.
//!
//! Every order that changed something has a number in the log, without gaps; so has every order of a
//! client that gave it a name, refused or not, because a repetition must get the same answer. The
//! log gives the state: [`State::replay`] checks each record against what it leads to.

use crate::answer::{Answer, Shown, Stop};
use crate::book::Exchange;
use crate::clients::{Clients, OrderOutcome, Seen};
use crate::stock::{Order, RequestId};
use std::sync::Arc;
use thiserror::Error;

/// Clients whose latest orders are remembered.
const CLIENTS_MAX: usize = 65_536;

/// One entry of the order log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What was ordered.
    pub order: Order,
    /// How it ended, with its number in the log.
    pub outcome: OrderOutcome,
    /// Who sent it, if the client gave itself a name.
    pub request_id: Option<RequestId>,
}

/// A record that does not follow from the state before it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "record {seq} of the order log does not follow from the state after record {after}: the log is \
     not of this exchange, or damaged"
)]
pub struct BadRecord {
    /// The number of the record.
    pub seq: u64,
    /// The number of the latest record that did.
    pub after: u64,
}

/// The whole state, for one thread at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    exchange: Exchange,
    clients: Clients,
    seq: u64,
    shown: Option<Arc<Shown>>,
}

impl State {
    /// A state in which the latest order of the log has the number `seq`.
    pub fn new(exchange: Exchange, seq: u64) -> Self {
        Self { exchange, clients: Clients::new(CLIENTS_MAX), seq, shown: None }
    }

    /// The stocks.
    pub fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// What is remembered of clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The number of the latest order in the log.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Carries out an order, or repeats the answer it had. A record is what the log must hold.
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

    /// All stocks at this moment. The list is made once and shared until the next order.
    pub fn show(&mut self) -> Arc<Shown> {
        let (exchange, seq) = (&self.exchange, self.seq);
        Arc::clone(
            self.shown
                .get_or_insert_with(|| Arc::new(Shown { seq, lines: exchange.lines().collect() })),
        )
    }

    /// Remembers an order of the log that the stocks already hold.
    pub fn remember(&mut self, record: &Record) {
        if let Some(request_id) = &record.request_id {
            self.clients.keep(request_id, record.outcome);
        }
    }

    /// Notes that the log held more orders once than this state was told of. An order of a client that
    /// is older than those it is known by may be one of them, and is answered as too old from now on:
    /// else it could be carried out twice.
    pub fn forget_older(&mut self) {
        self.clients.close_below();
    }

    /// Carries out the next record of a log.
    pub fn replay(&mut self, record: &Record) -> Result<(), BadRecord> {
        let bad = BadRecord { seq: record.outcome.seq(), after: self.seq };
        if bad.seq != self.seq + 1 {
            return Err(bad);
        }
        match (self.exchange.trade(&record.order), record.outcome) {
            (Ok(left), OrderOutcome::Done { left: told, .. }) if left == told => {}
            (Err(why), OrderOutcome::Refused { why: told, .. }) if why == told => {}
            _ => return Err(bad),
        }
        self.seq = bad.seq;
        self.shown = None;
        self.remember(record);
        Ok(())
    }
}
