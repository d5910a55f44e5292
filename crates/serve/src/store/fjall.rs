//! The store as a fjall database: a log, and trees that are merged in the background. A directory.
//!
//! A commit is one batch in the log of the database, with checksums. With durability `os` it is
//! handed to the system, above it the log is synced each time. The latest [`ORDERS_KEPT`] orders
//! stay.

use super::{NOT_OURS, ORDERS_KEPT, Opened, STOPPED, Store, StoreError, bytes};
use crate::choice::Durability;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use ioloom_exchange::{Exchange, Kept, Line, Record, State};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What marks a database as ours, with the version of its tables.
const MARK: &[u8] = b"ioloom-stock 1";
/// The file by which a directory is known as a database of fjall.
const VERSION_FILE: &str = "version";

pub(super) struct Fjall {
    database: Database,
    stocks: Keyspace,
    orders: Keyspace,
    about: Keyspace,
    /// Prices by number: they never change.
    prices: HashMap<u32, u32>,
    mode: PersistMode,
    path: PathBuf,
}

pub(super) fn open(
    path: &Path,
    durability: Durability,
    initial: &Exchange,
) -> Result<Opened, StoreError> {
    let fail = |operation: &'static str| {
        move |reason: String| StoreError {
            operation,
            path: path.to_owned(),
            reason,
            advice: NOT_OURS,
        }
    };
    // What is there and is no database must not be touched.
    if std::fs::metadata(path).is_ok_and(|about| !about.is_dir()) {
        return Err(fail("open")("it is a file, and a store of fjall is a directory".to_owned()));
    }
    let is_used = std::fs::read_dir(path).is_ok_and(|mut dir| dir.next().is_some());
    if is_used && !path.join(VERSION_FILE).exists() {
        return Err(fail("open")("it is a directory of something else".to_owned()));
    }
    let mode = match durability {
        Durability::None | Durability::Os => PersistMode::Buffer,
        Durability::Group | Durability::Each => PersistMode::SyncData,
    };
    let database = Database::builder(path).manual_journal_persist(true).open();
    let database = database.map_err(|e| match e {
        fjall::Error::Locked => fail("open")("it is locked".to_owned()),
        e => fail("open")(e.to_string()),
    })?;
    let keyspace = |name: &str| {
        let keyspace = database.keyspace(name, KeyspaceCreateOptions::default);
        keyspace.map_err(|e| fail("open")(e.to_string()))
    };
    let (stocks, orders, about) = (keyspace("stock")?, keyspace("orders")?, keyspace("about")?);
    let path_too = path.to_owned();
    let prices = HashMap::new();
    let mut fjall = Fjall { database, stocks, orders, about, prices, mode, path: path_too };
    let loaded = fjall.load().map_err(|e| fail("read")(e.to_string()))?;
    let state = loaded.map_err(|reason| fail("read")(reason.to_owned()))?;
    if state.is_none() {
        fjall.create(initial).map_err(|e| fail("make")(e.to_string()))?;
    }
    let exchange = state.as_ref().map_or(initial, |state| state.exchange());
    fjall.prices = exchange.lines().map(|line| (line.id, line.price)).collect();
    Ok(Opened { store: Box::new(fjall), state })
}

impl Fjall {
    fn create(&self, initial: &Exchange) -> fjall::Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        for line in initial.lines() {
            let value = bytes::stock(line.left, line.price);
            batch.insert(&self.stocks, line.id.to_be_bytes(), value);
        }
        batch.insert(&self.about, "latest", bytes::key(0));
        batch.insert(&self.about, "mark", MARK);
        batch.commit()
    }

    /// The state; `None` in a new store, and a word where it is none of ours.
    fn load(&self) -> fjall::Result<Result<Option<State>, &'static str>> {
        let Some(mark) = self.about.get("mark")? else {
            let is_empty = self.stocks.is_empty()? && self.orders.is_empty()?;
            return Ok(if is_empty { Ok(None) } else { Err("it is no store of ours") });
        };
        if &*mark != MARK {
            return Ok(Err("it is no store of this version"));
        }
        let latest = self.about.get("latest")?;
        let Some(latest) = latest.as_deref().and_then(bytes::seq) else {
            return Ok(Err("the number of the latest order is missing"));
        };
        let mut lines = Vec::new();
        for entry in self.stocks.iter() {
            let (key, value) = entry.into_inner()?;
            let id = <[u8; 4]>::try_from(&*key).ok().map(u32::from_be_bytes);
            let Some((id, (left, price))) = id.zip(bytes::left_and_price(&value)) else {
                return Ok(Err("the table of stocks is damaged"));
            };
            lines.push(Line { id, left, price });
        }
        let mut state = State::new(lines.into_iter().collect(), latest);
        for entry in self.orders.iter() {
            let (key, value) = entry.into_inner()?;
            match bytes::record(&key, &value) {
                Some(record) if record.kept.seq() <= latest => state.remember(&record),
                _ => return Ok(Err("the table of orders is damaged")),
            }
        }
        Ok(Ok(Some(state)))
    }

    fn write(&self, records: &[Record]) -> fjall::Result<()> {
        let Some(latest) = records.last().map(|record| record.kept.seq()) else { return Ok(()) };
        let mut batch = self.database.batch().durability(Some(self.mode));
        let mut left_now = HashMap::new();
        for record in records {
            let seq = record.kept.seq();
            batch.insert(&self.orders, bytes::key(seq), bytes::value(record));
            if let Some(old) = seq.checked_sub(ORDERS_KEPT) {
                batch.remove(&self.orders, bytes::key(old));
            }
            if let Kept::Done { left, .. } = record.kept {
                left_now.insert(record.order.stock(), left);
            }
        }
        for (id, left) in left_now {
            let price = self.prices.get(&id).copied().unwrap_or_default();
            batch.insert(&self.stocks, id.to_be_bytes(), bytes::stock(left, price));
        }
        batch.insert(&self.about, "latest", bytes::key(latest));
        batch.commit()
    }

    fn hashes(&self) -> fjall::Result<Vec<u64>> {
        let value = self.about.get("hashes")?;
        Ok(value.and_then(|value| bytes::hashes_of(&value)).unwrap_or_default())
    }

    fn set_hashes(&self, hashes: &[u64]) -> fjall::Result<()> {
        let mut batch = self.database.batch().durability(Some(self.mode));
        batch.insert(&self.about, "hashes", bytes::hashes(hashes));
        batch.commit()
    }

    fn stopped(&self, error: &fjall::Error) -> StoreError {
        let (path, reason) = (self.path.clone(), error.to_string());
        StoreError { operation: "write to", path, reason, advice: STOPPED }
    }
}

impl Store for Fjall {
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.write(records).map_err(|error| self.stopped(&error))
    }

    fn stock_hashes(&mut self) -> Result<Vec<u64>, StoreError> {
        self.hashes().map_err(|error| self.stopped(&error))
    }

    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
        self.set_hashes(hashes).map_err(|error| self.stopped(&error))
    }
}
