//! A store in a redb database: copy-on-write trees in one file, checksums, no log.
//!
//! Every commit is synced. redb has no level between memory and disk, so durability `os` is
//! rejected. The latest [`ORDERS_KEPT`] orders are retained. Opening reads the whole file, because
//! redb verifies checksums only on request. redb repairs a file while it opens it, so it opens a
//! layer over the file (`overlay`), which becomes the file once the contents are accepted.

use super::bytes;
use super::copying::TemporaryCopy;
use super::interface::{
    Beginning, EachOrder, ORDERS_KEPT, Position, Proven, Store, StoreError, foreign, invalid,
};
use super::overlay::{Changes, Overlay};
use super::proof::{Proof, Reading};
use crate::choice::StoreKind;
use crate::lock::is_unwritable;
use ioloom_exchange::{Line, Record, State};
use ioloom_failure::Operation;
use ioloom_sys::file::{Kind, OpenHow, WriteMode, identity, open, open_to_write};
use ioloom_sys::make::try_lock_shared;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const STOCKS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("stock");
const ORDERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("orders");
const ABOUT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("about");
/// Marks the database as a store; includes the table version.
const MARK: &[u8] = b"ioloom-stock 2";

pub(super) struct Redb {
    database: Database,
    proof: Proof,
    path: PathBuf,
}

fn failed(error: impl Into<redb::Error>) -> io::Error {
    io::Error::other(error.into())
}

/// Creates a database in a new file.
pub(super) fn make(path: &Path, beginning: &Beginning<'_>) -> io::Result<()> {
    let database = Database::create(path).map_err(failed)?;
    let transaction = database.begin_write().map_err(failed)?;
    {
        let mut stocks = transaction.open_table(STOCKS).map_err(failed)?;
        for line in beginning.stocks.lines() {
            let value = bytes::stock(line.left, line.price);
            stocks.insert(line.id, value.as_slice()).map_err(failed)?;
        }
        transaction.open_table(ORDERS).map_err(failed)?;
        let seal = Proof::new(beginning.stocks).seal(0);
        let mut about = transaction.open_table(ABOUT).map_err(failed)?;
        about.insert("mark", MARK).map_err(failed)?;
        about.insert("latest", bytes::key(0).as_slice()).map_err(failed)?;
        about.insert("seal", bytes::key(seal).as_slice()).map_err(failed)?;
        let hashes = bytes::hashes(&[beginning.file_hash]);
        about.insert("hashes", hashes.as_slice()).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    database.close().map_err(failed)
}

/// Reads and verifies an existing database.
pub(super) fn prove(path: &Path, each: EachOrder<'_>) -> Result<Proven, StoreError> {
    let file = open_to_write(path, WriteMode::Buffered);
    prove_file(file.map_err(StoreError::unusable(Operation::Open, path))?, path, each)
}

/// Like [`prove`], for a program that does not use the database. redb locks only a file that is open
/// for writing; of any other file, a copy is verified.
pub(super) fn prove_to_read(path: &Path, each: EachOrder<'_>) -> Result<Proven, StoreError> {
    let refused = StoreError::unusable(Operation::Open, path);
    let file = match open_to_write(path, WriteMode::Buffered) {
        Err(error) if is_unwritable(&error) => open(path, OpenHow::default()).map_err(&refused)?,
        opened => return prove_file(opened.map_err(&refused)?, path, each),
    };
    // redb holds this lock too, also if the mark is missing.
    if !try_lock_shared(&file).map_err(&refused)? {
        return Err(StoreError::locked(path, None));
    }
    let copy = TemporaryCopy::of(StoreKind::Redb, path)?;
    let copied = open_to_write(&copy.path(), WriteMode::Buffered).map_err(&refused)?;
    Ok(prove_file(copied, path, each)?.of_copy(path))
}

/// Reads and verifies an open database. Errors name `path`.
fn prove_file(file: OwnedFd, path: &Path, each: EachOrder<'_>) -> Result<Proven, StoreError> {
    let refused = StoreError::unusable(Operation::Open, path);
    let facts = identity(&file).map_err(&refused)?;
    if facts.kind != Kind::Regular || facts.size == 0 {
        // redb would create a new database in an empty file.
        return Err(refused(invalid("not a store of this type and version")));
    }
    let overlay = Overlay::new(File::from(file)).map_err(failed).map_err(&refused)?;
    let changes = overlay.changes();
    let mut builder = Database::builder();
    builder.set_check_integrity_on_open(true);
    let database = builder.create_with_backend(overlay).map_err(|e| match e {
        redb::DatabaseError::DatabaseAlreadyOpen => StoreError::locked(path, None),
        e => refused(failed(e)),
    })?;
    let loaded = load(&database, each).map_err(StoreError::unusable(Operation::Read, path));
    let (state, proof) = loaded?;
    let store = Redb { database, proof, path: path.to_owned() };
    let hashes = store.hashes().map_err(StoreError::unusable(Operation::Read, path))?;
    let begin = move || begin(store, &changes);
    let position = Position::default();
    Ok(Proven { state, hashes, unreadable: None, position, begin: Box::new(begin) })
}

/// Writes the repairs made while opening, and everything else from now on, to the file.
fn begin(store: Redb, changes: &Changes) -> Result<Box<dyn Store>, StoreError> {
    changes.apply().map_err(|error| StoreError::stopped(&store.path, error))?;
    Ok(Box::new(store))
}

fn load(database: &Database, each: EachOrder<'_>) -> io::Result<(State, Proof)> {
    let transaction = database.begin_read().map_err(failed)?;
    let about = transaction.open_table(ABOUT).map_err(|error| match error {
        TableError::TableDoesNotExist(_) => foreign(),
        error => failed(error),
    })?;
    let of = |name: &str| -> io::Result<Option<Vec<u8>>> {
        Ok(about.get(name).map_err(failed)?.map(|value| value.value().to_vec()))
    };
    if of("mark")?.as_deref() != Some(MARK) {
        return Err(foreign());
    }
    let number = |name: &str| Ok::<_, io::Error>(of(name)?.as_deref().and_then(bytes::seq));
    let Some((latest, seal)) = number("latest")?.zip(number("seal")?) else {
        return Err(invalid("the latest order number is missing"));
    };
    let mut lines = Vec::new();
    let stocks = transaction.open_table(STOCKS).map_err(failed)?;
    for entry in stocks.iter().map_err(failed)? {
        let (id, value) = entry.map_err(failed)?;
        let stock = bytes::left_and_price(value.value());
        let (left, price) = stock.ok_or_else(|| invalid("the stock table is damaged"))?;
        lines.push(Line { id: id.value(), left, price });
    }
    let mut reading = Reading::new(lines, latest, seal)?;
    let orders = transaction.open_table(ORDERS).map_err(failed)?;
    for entry in orders.iter().map_err(failed)? {
        let (seq, value) = entry.map_err(failed)?;
        let record = bytes::record(&bytes::key(seq.value()), value.value());
        let record = record.ok_or_else(|| invalid("an order is damaged"))?;
        reading.order(&record)?;
        each(&record);
    }
    reading.end()
}

impl Redb {
    fn write(&mut self, records: &[Record]) -> io::Result<()> {
        let Some(latest) = records.last().map(|record| record.outcome.seq()) else { return Ok(()) };
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut orders = transaction.open_table(ORDERS).map_err(failed)?;
            for record in records {
                let seq = record.outcome.seq();
                orders.insert(seq, bytes::value(record).as_slice()).map_err(failed)?;
                if let Some(old) = seq.checked_sub(ORDERS_KEPT) {
                    orders.remove(old).map_err(failed)?;
                }
            }
            let mut stocks = transaction.open_table(STOCKS).map_err(failed)?;
            for line in self.proof.apply(records).ok_or_else(|| invalid("a stock is missing"))? {
                let value = bytes::stock(line.left, line.price);
                stocks.insert(line.id, value.as_slice()).map_err(failed)?;
            }
            let seal = self.proof.seal(latest);
            let mut about = transaction.open_table(ABOUT).map_err(failed)?;
            about.insert("latest", bytes::key(latest).as_slice()).map_err(failed)?;
            about.insert("seal", bytes::key(seal).as_slice()).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn hashes(&self) -> io::Result<Vec<u64>> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let about = transaction.open_table(ABOUT).map_err(failed)?;
        let value = about.get("hashes").map_err(failed)?;
        Ok(value.and_then(|value| bytes::hashes_of(value.value())).unwrap_or_default())
    }

    fn set_hashes(&self, hashes: &[u64]) -> io::Result<()> {
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut about = transaction.open_table(ABOUT).map_err(failed)?;
            about.insert("hashes", bytes::hashes(hashes).as_slice()).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn stopped(&self, error: io::Error) -> StoreError {
        StoreError::stopped(&self.path, error)
    }
}

impl Store for Redb {
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.write(records).map_err(|error| self.stopped(error))
    }

    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
        self.set_hashes(hashes).map_err(|error| self.stopped(error))
    }
}
