//! A store in an SQLite database.
//!
//! There is one writer, with a write-ahead log. With durability `os`, a commit is written but not
//! synced (`synchronous = NORMAL`: the log is synced before a checkpoint, so a power failure loses
//! the latest commits but does not damage the database). With stricter durability, every commit is
//! synced (`FULL`), and the blocks of the write-ahead log are allocated on opening: syncing a
//! growing file also commits its new length, and every commit would wait for this until the log has
//! been filled once. The latest [`ORDERS_KEPT`] orders are retained in a table, for repeated orders
//! and for inspection. Opening checks the structure of the file; otherwise, damage would be noticed
//! only on a write.

use super::copying::TemporaryCopy;
use super::interface::{
    Beginning, CAUSE, EachOrder, ORDERS_KEPT, Position, Proven, Store, StoreError, foreign, invalid,
};
use super::path::with_suffix;
use super::proof::{Proof, Reading, order_sum};
use super::sqlite_log;
use super::words::{refusal_of, refusal_word, side_word};
use crate::choice::{Durability, StoreKind};
use ioloom_exchange::{Line, Order, OrderOutcome, Record, RequestId, Side, State};
use ioloom_failure::Operation;
use ioloom_sys::file::{self, WriteMode, write_full_at};
use ioloom_sys::transfer::sync_all;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Marks the database as a store ("stck").
const APPLICATION: i64 = 0x7374_636b;
/// Table version.
const VERSION: i64 = 2;
/// Old orders are deleted whenever this many new ones have been stored.
const TRIM_EVERY: u64 = 50_000;
/// Number of pages in the write-ahead log that triggers a checkpoint.
const LOG_PAGES: u64 = 1000;
/// Size of the log at that point: a page and its header for each, plus a tenth for the commit that
/// exceeds it.
const LOG_BYTES: u64 = LOG_PAGES * (4096 + 24) / 10 * 11;
/// Size of a zero-filling write in bytes.
const ZEROS: usize = 256 << 10;
/// How long to wait for a lock, for example if a user is inspecting the database.
const LOCKED_MAX: Duration = Duration::from_secs(2);

const TABLES: &str = "
    CREATE TABLE stock (id INTEGER PRIMARY KEY, left INTEGER NOT NULL, price INTEGER NOT NULL);
    CREATE TABLE orders (
        seq INTEGER PRIMARY KEY, side TEXT NOT NULL, stock INTEGER NOT NULL,
        count INTEGER NOT NULL, left INTEGER, refused TEXT, client TEXT, request INTEGER,
        sum INTEGER NOT NULL);
    CREATE TABLE latest (seq INTEGER NOT NULL, seal INTEGER NOT NULL);
    CREATE TABLE stock_file (hash INTEGER NOT NULL);";

pub(super) struct Sqlite {
    connection: Connection,
    path: PathBuf,
    proof: Proof,
    synchronous: &'static str,
    trimmed: u64,
}

/// Creates a database in a new file.
pub(super) fn make(path: &Path, beginning: &Beginning<'_>) -> io::Result<()> {
    create(path, beginning).map_err(io::Error::other)
}

fn create(path: &Path, beginning: &Beginning<'_>) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    set_up(&connection, FULL)?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    for line in beginning.stocks.lines() {
        let values = params![line.id, line.left, line.price];
        transaction.execute("INSERT INTO stock VALUES (?, ?, ?)", values)?;
    }
    // SQLite has no unsigned integers; the bits are preserved.
    let seal = Proof::new(beginning.stocks).seal(0) as i64;
    transaction.execute("INSERT INTO latest VALUES (0, ?)", [seal])?;
    let hash = beginning.file_hash as i64;
    transaction.execute("INSERT INTO stock_file VALUES (?)", [hash])?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    // Closing the database moves the log into the file, which is then complete.
    connection.close().map_err(|(_, error)| error)
}

/// Reads and verifies an existing database.
pub(super) fn prove(
    path: &Path,
    durability: Durability,
    each: EachOrder<'_>,
) -> Result<Proven, StoreError> {
    let (store, state) = reopen(path, durability, each)?;
    proven(store, state)
}

/// Like [`prove`], for a program that does not use the database. SQLite needs write access even to
/// read it; without this access, a copy is verified.
pub(super) fn prove_to_read(path: &Path, each: EachOrder<'_>) -> Result<Proven, StoreError> {
    let durability = Durability::Os;
    let connection = match connect(path, durability) {
        Err(error) if is_unopenable(&error) => {
            let copy = TemporaryCopy::of(StoreKind::Sqlite, path)?;
            let connection = connect(&copy.path(), durability);
            let connection = connection.map_err(|error| refused(path, Operation::Open, error))?;
            let (store, state) = read(connection, path, durability, each)?;
            return Ok(proven(store, state)?.of_copy(path));
        }
        connected => connected.map_err(|error| refused(path, Operation::Open, error))?,
    };
    let (store, state) = read(connection, path, durability, each)?;
    proven(store, state)
}

/// Returns whether an error may be due to missing write access to a database or its directory.
fn is_unopenable(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::CannotOpen
                | ErrorCode::DiskFull
                | ErrorCode::PermissionDenied
                | ErrorCode::ReadOnly
                | ErrorCode::SystemIoFailure
        )
    )
}

fn proven(mut store: Sqlite, state: State) -> Result<Proven, StoreError> {
    let unreadable = sqlite_log::unreadable(&with_suffix(&store.path, "-wal"));
    let unreadable = unreadable.map_err(StoreError::unusable(Operation::Read, &store.path))?;
    let hashes = store.stock_hashes()?;
    let begin = move || -> Result<Box<dyn Store>, StoreError> {
        store.begin()?;
        Ok(Box::new(store))
    };
    let position = Position::default();
    Ok(Proven { state, hashes, unreadable, position, begin: Box::new(begin) })
}

/// Moves the write-ahead log of a copy into its file.
pub(super) fn settle(path: &Path) -> io::Result<()> {
    let settled = Connection::open(path).and_then(|connection| {
        set_up(&connection, FULL)?;
        connection.close().map_err(|(_, error)| error)
    });
    settled.map_err(io::Error::other)
}

/// Opens a database and loads its contents without modifying it.
fn reopen(
    path: &Path,
    durability: Durability,
    each: EachOrder<'_>,
) -> Result<(Sqlite, State), StoreError> {
    let connection = connect(path, durability);
    let connection = connection.map_err(|error| refused(path, Operation::Open, error))?;
    read(connection, path, durability, each)
}

fn refused(path: &Path, operation: Operation, error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::locked(path, None),
        // Errors without a code are about the contents.
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) | None => {
            StoreError::unusable(operation, path)(io::Error::other(error))
        }
        Some(_) => StoreError::new(operation, path, io::Error::other(error), CAUSE),
    }
}

fn synchronous_of(durability: Durability) -> &'static str {
    match durability {
        Durability::None | Durability::Os => "NORMAL",
        Durability::Group | Durability::Each => FULL,
    }
}

/// Opens and locks a database without modifying it.
fn connect(path: &Path, durability: Durability) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    // Closing a refused database must not move what is readable of its log into the file, and
    // delete the rest.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    lock(&connection)?;
    // Loading refuses any other database, whose journal mode must not change.
    if kind(&connection)? == (APPLICATION, VERSION) {
        set_up(&connection, synchronous_of(durability))?;
    }
    Ok(connection)
}

/// Loads the contents of an open database. Errors name `path`.
fn read(
    connection: Connection,
    path: &Path,
    durability: Durability,
    each: EachOrder<'_>,
) -> Result<(Sqlite, State), StoreError> {
    let synchronous = synchronous_of(durability);
    let loaded = load(&connection, each);
    let loaded = loaded.map_err(|error| refused(path, Operation::Read, error))?;
    let (state, proof) = loaded.map_err(StoreError::unusable(Operation::Read, path))?;
    // Computed from the log number rather than counted, so many short runs trim in the same way as
    // one long run.
    let (path, trimmed) = (path.to_owned(), state.seq() - state.seq() % TRIM_EVERY);
    Ok((Sqlite { connection, path, proof, synchronous, trimmed }, state))
}

/// Makes every commit sync.
const FULL: &str = "FULL";

/// Keeps every lock until the connection is closed.
fn lock(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(LOCKED_MAX)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")
}

/// Returns the application and the table version.
fn kind(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get(0));
    Ok((pragma("application_id")?, pragma("user_version")?))
}

fn set_up(connection: &Connection, synchronous: &str) -> rusqlite::Result<()> {
    lock(connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES as i64)?;
    connection.pragma_update(None, "synchronous", synchronous)
}

/// Writes zeros after the contents of the write-ahead log. They do not form frames, because page
/// numbers start at one.
fn fill_log(path: &Path) -> io::Result<()> {
    let file = file::open_to_write(&with_suffix(path, "-wal"), WriteMode::Buffered)?;
    let zeros = vec![0; ZEROS];
    let mut at = file::size(&file)?;
    while at < LOG_BYTES {
        let count = (LOG_BYTES - at).min(ZEROS as u64);
        write_full_at(&file, &zeros[..count as usize], at)?;
        at += count;
    }
    sync_all(&file)
}

/// Loads the contents of the database, or returns why they are invalid.
fn load(
    connection: &Connection,
    each: EachOrder<'_>,
) -> rusqlite::Result<io::Result<(State, Proof)>> {
    if kind(connection)? != (APPLICATION, VERSION) {
        return Ok(Err(foreign()));
    }
    let check: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if check != "ok" {
        return Ok(Err(invalid("the file structure is damaged")));
    }
    let mut stocks = connection.prepare("SELECT id, left, price FROM stock")?;
    let line = |row: &Row<'_>| Ok(Line { id: row.get(0)?, left: row.get(1)?, price: row.get(2)? });
    let lines: Vec<Line> = stocks.query_map([], line)?.collect::<rusqlite::Result<_>>()?;
    let latest = "SELECT seq, seal FROM latest";
    let numbers = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let Some((latest, seal)) = connection.query_row(latest, [], numbers).optional()? else {
        return Ok(Err(invalid("the latest order number is missing")));
    };
    let mut reading = match Reading::new(lines, latest as u64, seal as u64) {
        Ok(reading) => reading,
        Err(damage) => return Ok(Err(damage)),
    };
    let mut orders = connection.prepare(
        "SELECT seq, side, stock, count, left, refused, client, request, sum FROM orders
         ORDER BY seq",
    )?;
    let mut rows = orders.query([])?;
    while let Some(row) = rows.next()? {
        let Some(record) = record(row)? else { return Ok(Err(invalid("an order is damaged"))) };
        if let Err(damage) = reading.order(&record) {
            return Ok(Err(damage));
        }
        each(&record);
    }
    Ok(reading.end())
}

impl Sqlite {
    /// Starts to use the database.
    fn begin(&mut self) -> Result<(), StoreError> {
        let config = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        self.connection.set_db_config(config, false).map_err(|error| self.stopped(error))?;
        if self.synchronous == FULL {
            // Preallocation only saves time; a commit that runs out of space reports it.
            fill_log(&self.path).ok();
        }
        Ok(())
    }

    fn write(&mut self, records: &[Record]) -> rusqlite::Result<()> {
        let Some(latest) = records.last().map(|record| record.outcome.seq()) else { return Ok(()) };
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction
                .prepare_cached("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
            for record in records {
                let order = &record.order;
                let (left, refused) = match record.outcome {
                    OrderOutcome::Done { left, .. } => (Some(left), None),
                    OrderOutcome::Refused { why, .. } => (None, Some(refusal_word(why))),
                };
                let client = record.request_id.as_ref().map(|request_id| &*request_id.client);
                // SQLite has no unsigned integers; the bits are preserved.
                let request =
                    record.request_id.as_ref().map(|request_id| request_id.request as i64);
                insert.execute(params![
                    record.outcome.seq() as i64,
                    side_word(order.side()),
                    order.stock(),
                    order.count(),
                    left,
                    refused,
                    client,
                    request,
                    order_sum(record),
                ])?;
            }
            let mut update =
                transaction.prepare_cached("UPDATE stock SET left = ? WHERE id = ?")?;
            let changed = self.proof.apply(records).ok_or(rusqlite::Error::QueryReturnedNoRows)?;
            for line in changed {
                update.execute(params![line.left, line.id])?;
            }
            let seal = self.proof.seal(latest);
            transaction
                .prepare_cached("UPDATE latest SET seq = ?, seal = ?")?
                .execute([latest as i64, seal as i64])?;
            if latest - self.trimmed >= TRIM_EVERY {
                let old = latest.saturating_sub(ORDERS_KEPT);
                transaction
                    .prepare_cached("DELETE FROM orders WHERE seq <= ?")?
                    .execute([old as i64])?;
                self.trimmed = latest - latest % TRIM_EVERY;
            }
        }
        transaction.commit()
    }

    fn stock_hashes(&self) -> Result<Vec<u64>, StoreError> {
        let read = || {
            let mut select = self.connection.prepare("SELECT hash FROM stock_file")?;
            let hashes = select.query_map([], |row| row.get::<_, i64>(0))?;
            hashes.map(|hash| Ok(hash? as u64)).collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|error| self.stopped(error))
    }

    fn stopped(&self, error: rusqlite::Error) -> StoreError {
        StoreError::stopped(&self.path, io::Error::other(error))
    }
}

impl Store for Sqlite {
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.write(records).map_err(|error| self.stopped(error))
    }

    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
        let synchronous = self.synchronous;
        let write = |connection: &mut Connection| {
            connection.pragma_update(None, "synchronous", FULL)?;
            let transaction = connection.transaction()?;
            transaction.execute("DELETE FROM stock_file", [])?;
            for hash in hashes {
                transaction.execute("INSERT INTO stock_file VALUES (?)", [*hash as i64])?;
            }
            transaction.commit()?;
            connection.pragma_update(None, "synchronous", synchronous)
        };
        write(&mut self.connection).map_err(|error| self.stopped(error))
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<Option<Record>> {
    let side = match row.get_ref(1)?.as_str()? {
        "buy" => Side::Buy,
        "sell" => Side::Sell,
        _ => return Ok(None),
    };
    let Some(order) = Order::new(side, row.get(2)?, row.get(3)?) else { return Ok(None) };
    let Ok(seq) = u64::try_from(row.get::<_, i64>(0)?) else { return Ok(None) };
    let (left, refused): (Option<u32>, Option<String>) = (row.get(4)?, row.get(5)?);
    let outcome = match (left, refused.as_deref().map(refusal_of)) {
        (Some(left), None) => OrderOutcome::Done { left, seq },
        (None, Some(Some(why))) => OrderOutcome::Refused { why, seq },
        _ => return Ok(None),
    };
    let (client, request): (Option<String>, Option<i64>) = (row.get(6)?, row.get(7)?);
    let request_id = client
        .zip(request)
        .map(|(client, request)| RequestId { client: Arc::from(client), request: request as u64 });
    let record = Record { order, outcome, request_id };
    let is_whole = row.get::<_, u32>(8)? == order_sum(&record);
    Ok(is_whole.then_some(record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_exchange::Exchange;

    fn reopen(path: &Path, durability: Durability) -> Result<(Sqlite, State), StoreError> {
        let (mut store, state) = super::reopen(path, durability, &mut |_| {})?;
        store.begin()?;
        Ok((store, state))
    }

    /// Returns the size of a store's write-ahead log, and the size of its blocks.
    fn log_bytes(path: &Path) -> (u64, u64) {
        use std::os::unix::fs::MetadataExt;
        let log = std::fs::metadata(with_suffix(path, "-wal"));
        log.map_or((0, 0), |log| (log.len(), log.blocks() * 512))
    }

    #[test]
    fn the_log_of_synced_commits_is_preallocated_and_does_not_grow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let stocks = Exchange::from_text("1 0 1\n").unwrap();
        make(&path, &Beginning { stocks: &stocks, file_hash: 0 }).unwrap();
        let order = Order::new(Side::Sell, 1, 1).unwrap();
        let run = |durability| {
            let (mut store, mut state) = reopen(&path, durability).unwrap();
            let before = log_bytes(&path);
            for _ in 0..400 {
                store.commit(&[state.trade(&order, None).1.unwrap()]).unwrap();
            }
            (before, log_bytes(&path), state.seq())
        };
        let (before, _, _) = run(Durability::Os);
        assert!(before.0 < LOG_BYTES, "without syncs, it is not preallocated");
        let (before, after, seq) = run(Durability::Group);
        assert_eq!((before.0, after.0, seq), (LOG_BYTES, LOG_BYTES, 800));
        assert!(before.1 >= LOG_BYTES, "{before:?}");
        // A killed server leaves frames followed by zeros; both must be read correctly.
        let left = dir.path().join("left");
        let (mut store, mut state) = reopen(&path, Durability::Group).unwrap();
        store.commit(&[state.trade(&order, None).1.unwrap()]).unwrap();
        for end in ["", "-wal"] {
            std::fs::copy(with_suffix(&path, end), with_suffix(&left, end)).unwrap();
        }
        drop(store);
        assert_eq!(reopen(&left, Durability::Group).unwrap().1.seq(), 801);
    }

    #[test]
    fn a_database_of_another_program_is_not_modified() {
        for version in [0, VERSION] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("other");
            let other = Connection::open(&path).unwrap();
            other.execute_batch("CREATE TABLE names (name TEXT)").unwrap();
            other.pragma_update(None, "user_version", version).unwrap();
            other.close().unwrap();
            let before = std::fs::read(&path).unwrap();
            let error = reopen(&path, Durability::Group).err().expect("it must be refused");
            assert!(error.to_string().contains("not a store"), "{error}");
            assert!(std::fs::read(&path).unwrap() == before, "the file was modified");
            let other = Connection::open(&path).unwrap();
            let mode: String =
                other.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
            assert_eq!(mode, "delete");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn many_short_runs_trim_like_one_long_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let stocks = Exchange::from_text("1 0 1\n").unwrap();
        make(&path, &Beginning { stocks: &stocks, file_hash: 0 }).unwrap();
        let order = Order::new(Side::Sell, 1, 1).unwrap();
        let mut trimmed = Vec::new();
        for _ in 0..3 {
            let (mut store, mut state) = reopen(&path, Durability::Os).unwrap();
            let orders = TRIM_EVERY / 2 - 1;
            let records: Vec<Record> =
                (0..orders).filter_map(|_| state.trade(&order, None).1).collect();
            for batch in records.chunks(5000) {
                store.commit(batch).unwrap();
            }
            trimmed.push(store.trimmed);
        }
        assert_eq!(trimmed, [0, 0, TRIM_EVERY]);
    }
}
