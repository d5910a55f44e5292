//! The store as a redb database: copy-on-write trees in one file, checksums, no log.
//!
//! A commit is synced, always: redb has nothing between memory and disk, so durability `os` is refused
//! with it. The latest [`ORDERS_KEPT`] orders stay.

use super::{NOT_OURS, ORDERS_KEPT, Opened, STOPPED, Store, StoreError, bytes};
use ioloom_exchange::{Exchange, Kept, Line, Record, State};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::{Path, PathBuf};

const STOCKS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("stock");
const ORDERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("orders");
const ABOUT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("about");
/// What marks a database as ours, with the version of its tables.
const MARK: &[u8] = b"ioloom-stock 1";

pub(super) struct Redb {
    database: Database,
    path: PathBuf,
}

/// An error of any step, in words.
type Failed = String;

fn failed(error: impl Into<redb::Error>) -> Failed {
    error.into().to_string()
}

pub(super) fn open(path: &Path, initial: &Exchange) -> Result<Opened, StoreError> {
    let fail = |operation: &'static str| {
        move |reason: Failed| StoreError {
            operation,
            path: path.to_owned(),
            reason,
            advice: NOT_OURS,
        }
    };
    let database = Database::create(path).map_err(|e| match e {
        redb::DatabaseError::DatabaseAlreadyOpen => fail("open")("it is locked".to_owned()),
        e => fail("open")(failed(e)),
    })?;
    let redb = Redb { database, path: path.to_owned() };
    let state = match redb.load().map_err(fail("read"))? {
        Loaded::Nothing => {
            redb.create(initial).map_err(fail("make"))?;
            None
        }
        Loaded::State(state) => Some(*state),
        Loaded::Other(reason) => return Err(fail("read")(reason.to_owned())),
    };
    Ok(Opened { store: Box::new(redb), state })
}

enum Loaded {
    Nothing,
    State(Box<State>),
    Other(&'static str),
}

impl Redb {
    fn create(&self, initial: &Exchange) -> Result<(), Failed> {
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut stocks = transaction.open_table(STOCKS).map_err(failed)?;
            for line in initial.lines() {
                let value = bytes::stock(line.left, line.price);
                stocks.insert(line.id, value.as_slice()).map_err(failed)?;
            }
            transaction.open_table(ORDERS).map_err(failed)?;
            let mut about = transaction.open_table(ABOUT).map_err(failed)?;
            about.insert("mark", MARK).map_err(failed)?;
            about.insert("latest", bytes::key(0).as_slice()).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn load(&self) -> Result<Loaded, Failed> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let about = match transaction.open_table(ABOUT) {
            Ok(about) => about,
            Err(redb::TableError::TableDoesNotExist(_)) => {
                let others = transaction.list_tables().map_err(failed)?.count();
                let other = Loaded::Other("it is no store of ours");
                return Ok(if others == 0 { Loaded::Nothing } else { other });
            }
            Err(e) => return Err(failed(e)),
        };
        let of = |name: &str| -> Result<Option<Vec<u8>>, Failed> {
            Ok(about.get(name).map_err(failed)?.map(|value| value.value().to_vec()))
        };
        if of("mark")?.as_deref() != Some(MARK) {
            return Ok(Loaded::Other("it is no store of this version"));
        }
        let Some(latest) = of("latest")?.as_deref().and_then(bytes::seq) else {
            return Ok(Loaded::Other("the number of the latest order is missing"));
        };
        let mut lines = Vec::new();
        let stocks = transaction.open_table(STOCKS).map_err(failed)?;
        for entry in stocks.iter().map_err(failed)? {
            let (id, value) = entry.map_err(failed)?;
            let Some((left, price)) = bytes::left_and_price(value.value()) else {
                return Ok(Loaded::Other("the table of stocks is damaged"));
            };
            lines.push(Line { id: id.value(), left, price });
        }
        let mut state = State::new(lines.into_iter().collect(), latest);
        let orders = transaction.open_table(ORDERS).map_err(failed)?;
        for entry in orders.iter().map_err(failed)? {
            let (seq, value) = entry.map_err(failed)?;
            match bytes::record(&bytes::key(seq.value()), value.value()) {
                Some(record) if seq.value() <= latest => state.remember(&record),
                _ => return Ok(Loaded::Other("the table of orders is damaged")),
            }
        }
        Ok(Loaded::State(Box::new(state)))
    }

    fn write(&self, records: &[Record]) -> Result<(), Failed> {
        let Some(latest) = records.last().map(|record| record.kept.seq()) else { return Ok(()) };
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut stocks = transaction.open_table(STOCKS).map_err(failed)?;
            let mut orders = transaction.open_table(ORDERS).map_err(failed)?;
            for record in records {
                let seq = record.kept.seq();
                orders.insert(seq, bytes::value(record).as_slice()).map_err(failed)?;
                if let Some(old) = seq.checked_sub(ORDERS_KEPT) {
                    orders.remove(old).map_err(failed)?;
                }
                if let Kept::Done { left, .. } = record.kept {
                    let id = record.order.stock();
                    let before = stocks.get(id).map_err(failed)?;
                    let before = before.and_then(|value| bytes::left_and_price(value.value()));
                    let (_, price) = before.ok_or("a stock is missing")?;
                    stocks.insert(id, bytes::stock(left, price).as_slice()).map_err(failed)?;
                }
            }
            let mut about = transaction.open_table(ABOUT).map_err(failed)?;
            about.insert("latest", bytes::key(latest).as_slice()).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn hashes(&self) -> Result<Vec<u64>, Failed> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let about = transaction.open_table(ABOUT).map_err(failed)?;
        let value = about.get("hashes").map_err(failed)?;
        Ok(value.and_then(|value| bytes::hashes_of(value.value())).unwrap_or_default())
    }

    fn set_hashes(&self, hashes: &[u64]) -> Result<(), Failed> {
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut about = transaction.open_table(ABOUT).map_err(failed)?;
            about.insert("hashes", bytes::hashes(hashes).as_slice()).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn stopped(&self, reason: Failed) -> StoreError {
        StoreError { operation: "write to", path: self.path.clone(), reason, advice: STOPPED }
    }
}

impl Store for Redb {
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.write(records).map_err(|reason| self.stopped(reason))
    }

    fn stock_hashes(&mut self) -> Result<Vec<u64>, StoreError> {
        self.hashes().map_err(|reason| self.stopped(reason))
    }

    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
        self.set_hashes(hashes).map_err(|reason| self.stopped(reason))
    }
}
