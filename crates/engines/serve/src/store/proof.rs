//! Store verification.
//!
//! Storage engines verify only part of what they read: SQLite has no checksums for its tables, redb
//! trusts a file that was closed cleanly, and fjall truncates its log at the first damage although
//! its trees may be more recent. So a store verifies itself. Each order has a checksum, there are
//! no gaps between orders up to the latest one, and one checksum of all stocks is stored together
//! with the latest order number. Contents that do not match are rejected; contents that match are a
//! state that the server once had.
//!
//! The stock checksum is a sum of checksums, so a commit computes two hashes per changed stock.
//! This requires a second copy of the stocks in memory, in a tree with twelve bytes per stock.

use super::bytes;
use super::interface::{ORDERS_KEPT, invalid};
use ioloom_exchange::{Exchange, Line, OrderOutcome, Record, State};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use xxhash_rust::xxh3::xxh3_64;

/// Returns the checksum of an order, covering its number and all fields.
pub(super) fn order_sum(record: &Record) -> u32 {
    bytes::checksum(&bytes::key(record.outcome.seq()), &bytes::body(record))
}

/// The stocks in the store, with their checksum.
pub(super) struct Proof {
    stocks: BTreeMap<u32, (u32, u32)>,
    sum: u64,
}

impl Proof {
    /// Computes the checksum of the stocks of an exchange.
    pub(super) fn new(exchange: &Exchange) -> Self {
        let stocks: BTreeMap<_, _> =
            exchange.lines().map(|line| (line.id, (line.left, line.price))).collect();
        let sums = stocks.iter().map(|(id, stock)| sum(*id, *stock));
        let sum = sums.fold(0, u64::wrapping_add);
        Self { stocks, sum }
    }

    /// Returns the checksum to store with the latest order number.
    pub(super) fn seal(&self, latest: u64) -> u64 {
        xxh3_64(&[self.sum.to_le_bytes(), latest.to_le_bytes()].concat())
    }

    /// Applies orders and returns the changed stocks; `None` if a stock does not exist.
    pub(super) fn apply(&mut self, records: &[Record]) -> Option<Vec<Line>> {
        let mut changed = BTreeSet::new();
        for record in records {
            let OrderOutcome::Done { left, .. } = record.outcome else { continue };
            let id = record.order.stock();
            let stock = self.stocks.get_mut(&id)?;
            self.sum = self.sum.wrapping_sub(sum(id, *stock));
            stock.0 = left;
            self.sum = self.sum.wrapping_add(sum(id, *stock));
            changed.insert(id);
        }
        let line = |id: u32| self.stocks.get(&id).map(|(left, price)| (id, *left, *price));
        let lines = changed.into_iter().filter_map(line);
        Some(lines.map(|(id, left, price)| Line { id, left, price }).collect())
    }
}

fn sum(id: u32, (left, price): (u32, u32)) -> u64 {
    xxh3_64(&[id.to_le_bytes(), left.to_le_bytes(), price.to_le_bytes()].concat())
}

/// A state that is assembled from the contents of a store.
pub(super) struct Reading {
    state: State,
    proof: Proof,
    latest: u64,
    /// Number of the previous order.
    before: Option<u64>,
}

impl Reading {
    /// Starts with the stocks, the latest order number, and the checksum stored with it.
    pub(super) fn new(lines: Vec<Line>, latest: u64, seal: u64) -> io::Result<Self> {
        let count = lines.len();
        let exchange: Exchange = lines.into_iter().collect();
        let proof = Proof::new(&exchange);
        if exchange.len() != count || proof.seal(latest) != seal {
            return Err(invalid("the stocks do not match the latest order"));
        }
        Ok(Self { state: State::new(exchange, latest), proof, latest, before: None })
    }

    /// Adds the next order.
    pub(super) fn order(&mut self, record: &Record) -> io::Result<()> {
        let seq = record.outcome.seq();
        let follows = match self.before {
            Some(before) => before.checked_add(1) == Some(seq),
            None => (1..=self.latest.saturating_sub(ORDERS_KEPT) + 1).contains(&seq),
        };
        if !follows || seq > self.latest {
            return Err(invalid("orders are missing"));
        }
        self.before = Some(seq);
        self.state.remember(record);
        Ok(())
    }

    /// Returns the state, and the checksums for subsequent commits.
    pub(super) fn end(self) -> io::Result<(State, Proof)> {
        if self.before.unwrap_or(0) != self.latest {
            return Err(invalid("the latest orders are missing"));
        }
        Ok((self.state, self.proof))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_exchange::{Order, RequestId, Side};
    use std::sync::Arc;

    fn exchange() -> Exchange {
        Exchange::from_text("1 10 5\n2 20 6\n7 30 7\n").unwrap()
    }

    fn records() -> Vec<Record> {
        let mut state = State::new(exchange(), 0);
        let request_id = RequestId { client: Arc::from("a"), request: 1 };
        let orders = [(Side::Buy, 1, 3), (Side::Sell, 7, 1), (Side::Buy, 1, 2), (Side::Buy, 2, 21)];
        let order = |(side, id, count)| Order::new(side, id, count).unwrap();
        orders
            .iter()
            .filter_map(|o| state.trade(&order(*o), Some(&who_of(&request_id, o.2))).1)
            .collect()
    }

    fn who_of(request_id: &RequestId, count: u32) -> RequestId {
        RequestId { request: u64::from(count) + 10, ..request_id.clone() }
    }

    #[test]
    fn applied_orders_give_the_checksum_of_the_new_stocks() {
        let mut proof = Proof::new(&exchange());
        let records = records();
        let changed = proof.apply(&records).unwrap();
        let ids: Vec<_> = changed.iter().map(|line| (line.id, line.left)).collect();
        assert_eq!(ids, [(1, 5), (7, 31)]);
        let now = Exchange::from_text("1 5 5\n2 20 6\n7 31 7\n").unwrap();
        let latest = records.last().unwrap().outcome.seq();
        assert_eq!(proof.seal(latest), Proof::new(&now).seal(latest));
        assert_ne!(proof.seal(latest), proof.seal(latest - 1));
        let unknown = Record { order: Order::new(Side::Buy, 9, 1).unwrap(), ..records[0].clone() };
        assert!(proof.apply(&[unknown]).is_none());
    }

    #[test]
    fn inconsistent_contents_are_rejected() {
        let mut proof = Proof::new(&exchange());
        let records = records();
        proof.apply(&records).unwrap();
        let lines = |text: &str| Exchange::from_text(text).unwrap().lines().collect::<Vec<_>>();
        let (good, seal) = ("1 5 5\n2 20 6\n7 31 7\n", proof.seal(4));
        let read = |text: &str, latest, records: &[Record]| {
            let mut reading = Reading::new(lines(text), latest, seal)?;
            records.iter().try_for_each(|record| reading.order(record))?;
            reading.end().map(|(state, _)| state.seq())
        };
        assert_eq!(read(good, 4, &records).unwrap(), 4);
        assert!(read("1 7 5\n2 20 6\n7 31 7\n", 4, &records).is_err());
        assert!(read("1 5 5\n7 31 7\n", 4, &records).is_err());
        assert!(read(good, 3, &records[..3]).is_err());
        assert!(read(good, 4, &records[..3]).is_err());
        assert!(read(good, 4, &records[1..]).is_err());
        let gap = [&records[..1], &records[2..]].concat();
        assert!(read(good, 4, &gap).is_err());
        assert!(read(good, 4, &[]).is_err());
    }
}
