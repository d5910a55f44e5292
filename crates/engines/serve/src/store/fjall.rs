//! A store in a fjall database: a directory with a log, and trees merged in the background.
//!
//! A commit is one checksummed batch in the database log. With durability `os`, it is passed to the
//! kernel; with stricter durability, the log is synced each time. The latest [`ORDERS_KEPT`] orders
//! are retained.
//!
//! fjall truncates its log at the first damage while it opens a database. So a copy is opened and
//! verified first, which takes as long as opening: the log and the small files are copied, and the
//! trees, which fjall never modifies, are linked.

use super::bytes;
use super::copying::{TemporaryCopy, copy_tree, remove, remove_leftovers};
use super::interface::{
    Beginning, EachOrder, ORDERS_KEPT, OTHER_PATH, Position, Proven, Store, StoreError, cause,
    foreign, invalid,
};
use super::proof::{Proof, Reading};
use crate::choice::{Durability, StoreKind};
use crate::temporary;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use ioloom_exchange::{Line, Record, State};
use ioloom_failure::Operation;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::sync::Once;
use xxhash_rust::xxh3::xxh3_128;

/// Marks the database as a store; includes the table version.
const MARK: &[u8] = b"ioloom-stock 2";
/// File that identifies a directory as a fjall database.
const VERSION_FILE: &str = "version";

pub(super) struct Fjall {
    tables: Tables,
    proof: Proof,
    mode: PersistMode,
    path: PathBuf,
}

fn failed(error: impl Into<fjall::Error>) -> io::Error {
    let error = error.into();
    cause(&error).unwrap_or_else(|| io::Error::other(error))
}

struct Tables {
    // Declared before the database, which must be dropped last.
    stocks: Keyspace,
    orders: Keyspace,
    about: Keyspace,
    database: Database,
}

impl Tables {
    fn open(path: &Path) -> fjall::Result<Self> {
        let database = Database::builder(path).manual_journal_persist(true).open()?;
        let keyspace = |name: &str| database.keyspace(name, KeyspaceCreateOptions::default);
        let (stocks, orders, about) = (keyspace("stock")?, keyspace("orders")?, keyspace("about")?);
        Ok(Self { stocks, orders, about, database })
    }

    fn load(&self, each: EachOrder<'_>) -> io::Result<(State, Proof)> {
        let of = |name: &str| self.about.get(name).map_err(failed);
        if of("mark")?.as_deref() != Some(MARK) {
            return Err(foreign());
        }
        let number = |name: &str| Ok::<_, io::Error>(of(name)?.as_deref().and_then(bytes::seq));
        let Some((latest, seal)) = number("latest")?.zip(number("seal")?) else {
            return Err(invalid("the latest order number is missing"));
        };
        let mut lines = Vec::new();
        for entry in self.stocks.iter() {
            let (key, value) = entry.into_inner().map_err(failed)?;
            let id = <[u8; 4]>::try_from(&*key).ok().map(u32::from_be_bytes);
            let stock = id.zip(bytes::left_and_price(&value));
            let (id, (left, price)) = stock.ok_or_else(|| invalid("the stock table is damaged"))?;
            lines.push(Line { id, left, price });
        }
        let mut reading = Reading::new(lines, latest, seal)?;
        for entry in self.orders.iter() {
            let (key, value) = entry.into_inner().map_err(failed)?;
            let record = bytes::record(&key, &value);
            let record = record.ok_or_else(|| invalid("an order is damaged"))?;
            reading.order(&record)?;
            each(&record);
        }
        reading.end()
    }
}

impl Tables {
    fn hashes(&self) -> fjall::Result<Vec<u64>> {
        let value = self.about.get("hashes")?;
        Ok(value.and_then(|value| bytes::hashes_of(&value)).unwrap_or_default())
    }
}

/// Returns true if a directory contains a database.
pub(super) fn is_database(path: &Path) -> bool {
    path.join(VERSION_FILE).exists()
}

/// Creates a database in a new directory.
pub(super) fn make(path: &Path, beginning: &Beginning<'_>) -> io::Result<()> {
    let tables = Tables::open(path).map_err(failed)?;
    let mut batch = tables.database.batch().durability(Some(PersistMode::SyncAll));
    for line in beginning.stocks.lines() {
        let value = bytes::stock(line.left, line.price);
        batch.insert(&tables.stocks, line.id.to_be_bytes(), value);
    }
    let seal = Proof::new(beginning.stocks).seal(0);
    batch.insert(&tables.about, "mark", MARK);
    batch.insert(&tables.about, "latest", bytes::key(0));
    batch.insert(&tables.about, "seal", bytes::key(seal));
    batch.insert(&tables.about, "hashes", bytes::hashes(&[beginning.file_hash]));
    batch.commit().map_err(failed)
}

/// Reads and verifies an existing database.
pub(super) fn prove(
    path: &Path,
    durability: Durability,
    each: EachOrder<'_>,
) -> Result<Proven, StoreError> {
    check(path)?;
    let unusable = |operation| StoreError::unusable(operation, path);
    remove_leftovers(path).map_err(unusable(Operation::Remove))?;
    let copy = temporary::name_for(path);
    let copied = copy_tree(path, &copy, true).map_err(unusable(Operation::Copy));
    let contents = copied.and_then(|()| read(&copy, path, each));
    let removed = remove(&copy).map_err(unusable(Operation::Remove));
    let contents = contents?;
    removed?;
    Ok(proven(path, durability, contents))
}

/// Like [`prove`], for a program that does not use the database. If its directory cannot have a copy
/// with linked trees, a full copy in the directory for temporary files is verified.
pub(super) fn prove_to_read(path: &Path, each: EachOrder<'_>) -> Result<Proven, StoreError> {
    check(path)?;
    // The next server removes what remains.
    let _ = remove_leftovers(path);
    let linked = temporary::name_for(path);
    let contents = if copy_tree(path, &linked, true).is_ok() {
        let contents = read(&linked, path, each);
        let removed = remove(&linked).map_err(StoreError::unusable(Operation::Remove, path));
        let contents = contents?;
        removed?;
        contents
    } else {
        let _ = remove(&linked);
        let copy = TemporaryCopy::of(StoreKind::Fjall, path)?;
        read(&copy.path(), path, each)?
    };
    Ok(proven(path, Durability::Os, contents))
}

/// Refuses anything that is not a database, which remains untouched.
fn check(path: &Path) -> Result<(), StoreError> {
    let not_ours = |what| StoreError::new(Operation::Open, path, invalid(what), OTHER_PATH);
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_dir()) {
        return Err(not_ours("it is a file, but a fjall store is a directory"));
    }
    if !is_database(path) {
        return Err(not_ours("the directory contains something else"));
    }
    Ok(())
}

/// Opens a copy of a database, reads its state and the hashes of stock files, and closes it.
fn read(
    copy: &Path,
    original: &Path,
    each: EachOrder<'_>,
) -> Result<(State, Vec<u64>), StoreError> {
    let (tables, state, _) = open_with_proof(copy, original, each)?;
    let hashes = tables.hashes().map_err(failed);
    Ok((state, hashes.map_err(StoreError::unusable(Operation::Read, original))?))
}

fn proven(path: &Path, durability: Durability, (state, hashes): (State, Vec<u64>)) -> Proven {
    let (path, latest) = (path.to_owned(), state.seq());
    let begin = move || begin(&path, durability, latest);
    let position = Position::default();
    Proven { state, hashes, unreadable: None, position, begin: Box::new(begin) }
}

/// Opens a database, of which a copy was verified.
fn begin(path: &Path, durability: Durability, latest: u64) -> Result<Box<dyn Store>, StoreError> {
    let mode = match durability {
        Durability::None | Durability::Os => PersistMode::Buffer,
        Durability::Group | Durability::Each => PersistMode::SyncData,
    };
    let (tables, state, proof) = open_with_proof(path, path, &mut |_| {})?;
    if state.seq() != latest {
        let changed = invalid("the database changed while it was verified");
        return Err(StoreError::unusable(Operation::Read, path)(changed));
    }
    Ok(Box::new(Fjall { tables, proof, mode, path: path.to_owned() }))
}

/// Opens the database at `path` and loads its contents. Errors name the `original`.
fn open_with_proof(
    path: &Path,
    original: &Path,
    each: EachOrder<'_>,
) -> Result<(Tables, State, Proof), StoreError> {
    let unusable = |operation| StoreError::unusable(operation, original);
    verify_lists(path).map_err(unusable(Operation::Read))?;
    let opened = catch_damage(|| {
        let tables = Tables::open(path).map_err(|error| match error {
            fjall::Error::Locked => StoreError::locked(original, None),
            error => unusable(Operation::Open)(failed(error)),
        })?;
        let (state, proof) = tables.load(each).map_err(unusable(Operation::Read))?;
        Ok((tables, state, proof))
    });
    let damaged = || Err(unusable(Operation::Open)(invalid("the database is damaged")));
    opened.unwrap_or_else(damaged)
}

/// Verifies the file list of each tree against the checksum that fjall stores in the file `current`
/// but does not check itself: a corrupted list would cause a panic during a panic, which aborts the
/// program. Missing files are left to fjall.
fn verify_lists(path: &Path) -> io::Result<()> {
    let trees = std::fs::read_dir(path.join("keyspaces")).into_iter().flatten().flatten();
    for tree in trees.map(|entry| entry.path()) {
        let Ok(current) = std::fs::read(tree.join("current")) else { continue };
        let entry = current.split_first_chunk::<8>().and_then(|(number, rest)| {
            let (sum, _) = rest.split_first_chunk::<16>()?;
            Some((u64::from_le_bytes(*number), u128::from_le_bytes(*sum)))
        });
        let (number, sum) = entry.ok_or_else(|| invalid("truncated file list number"))?;
        let Ok(list) = std::fs::read(tree.join(format!("v{number}"))) else { continue };
        if xxh3_128(&list) != sum {
            return Err(invalid("damaged file list"));
        }
    }
    Ok(())
}

thread_local! {
    /// Whether a panic on this thread is reported as a refusal.
    static IS_REFUSAL: Cell<bool> = const { Cell::new(false) };
}

/// Opens a database. fjall panics on some types of damage that it considers impossible, such as a
/// wrong number of levels in its file list. Such a panic is reported like any other damage, without
/// its message: returns `None`.
fn catch_damage<T>(open: impl FnOnce() -> T) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_REFUSAL.get() {
                others(info);
            }
        }));
    });
    IS_REFUSAL.set(true);
    let opened = catch_unwind(AssertUnwindSafe(open)).ok();
    IS_REFUSAL.set(false);
    opened
}

impl Fjall {
    fn write(&mut self, records: &[Record]) -> io::Result<()> {
        let Some(latest) = records.last().map(|record| record.outcome.seq()) else { return Ok(()) };
        let tables = &self.tables;
        let mut batch = tables.database.batch().durability(Some(self.mode));
        for record in records {
            let seq = record.outcome.seq();
            batch.insert(&tables.orders, bytes::key(seq), bytes::value(record));
            if let Some(old) = seq.checked_sub(ORDERS_KEPT) {
                batch.remove(&tables.orders, bytes::key(old));
            }
        }
        for line in self.proof.apply(records).ok_or_else(|| invalid("a stock is missing"))? {
            let value = bytes::stock(line.left, line.price);
            batch.insert(&tables.stocks, line.id.to_be_bytes(), value);
        }
        batch.insert(&tables.about, "latest", bytes::key(latest));
        batch.insert(&tables.about, "seal", bytes::key(self.proof.seal(latest)));
        batch.commit().map_err(failed)
    }

    fn set_hashes(&self, hashes: &[u64]) -> fjall::Result<()> {
        let mut batch = self.tables.database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&self.tables.about, "hashes", bytes::hashes(hashes));
        batch.commit()
    }

    fn stopped(&self, error: io::Error) -> StoreError {
        StoreError::stopped(&self.path, error)
    }
}

impl Store for Fjall {
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.write(records).map_err(|error| self.stopped(error))
    }

    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
        self.set_hashes(hashes).map_err(|error| self.stopped(failed(error)))
    }
}
