//! The store as an SQLite database.
//!
//! One writer, write-ahead log. With durability `os` a commit is written and not synced
//! (`synchronous = NORMAL`: the log is synced before a checkpoint, so a power cut loses the latest
//! commits and damages nothing); above it every commit is synced (`FULL`). The latest
//! [`ORDERS_KEPT`] orders stay in a table, for repeated orders and for whoever wants to look.

use super::{NOT_OURS, ORDERS_KEPT, Opened, STOPPED, Store, StoreError};
use crate::choice::Durability;
use ioloom_exchange::{Exchange, Kept, Line, Order, Record, Refused, Side, State, Who};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Marks a database as ours ("stck").
const APPLICATION: i64 = 0x7374_636b;
/// The version of the tables.
const VERSION: i64 = 1;
/// Orders after which old ones are taken out.
const TRIM_EVERY: u64 = 50_000;
/// How long a database may be locked by somebody who looks at it.
const LOCKED_MAX: Duration = Duration::from_secs(2);

const TABLES: &str = "
    CREATE TABLE stock (id INTEGER PRIMARY KEY, left INTEGER NOT NULL, price INTEGER NOT NULL);
    CREATE TABLE orders (
        seq INTEGER PRIMARY KEY, side TEXT NOT NULL, stock INTEGER NOT NULL,
        count INTEGER NOT NULL, left INTEGER, refused TEXT, client TEXT, request INTEGER);
    CREATE TABLE latest (seq INTEGER NOT NULL);
    CREATE TABLE stock_file (hash INTEGER NOT NULL);";

pub(super) struct Sqlite {
    connection: Connection,
    path: PathBuf,
    trimmed: u64,
}

pub(super) fn open(
    path: &Path,
    durability: Durability,
    initial: &Exchange,
) -> Result<Opened, StoreError> {
    let fail = |operation, advice| {
        let path = path.to_owned();
        move |error: rusqlite::Error| StoreError {
            operation,
            path,
            reason: error.to_string(),
            advice,
        }
    };
    let connection = Connection::open(path).map_err(fail("open", NOT_OURS))?;
    set_up(&connection, durability).map_err(fail("open", NOT_OURS))?;
    let mut sqlite = Sqlite { connection, path: path.to_owned(), trimmed: 0 };
    let state = match sqlite.kind().map_err(fail("open", NOT_OURS))? {
        Kind::Ours => {
            let state = sqlite.load().map_err(fail("read", NOT_OURS))?;
            let state = state.map_err(|reason| sqlite.damaged(reason))?;
            sqlite.trimmed = state.seq();
            Some(state)
        }
        Kind::Empty => {
            sqlite.create(initial).map_err(fail("make", NOT_OURS))?;
            None
        }
        Kind::Other => return Err(sqlite.damaged("it is no store of this version".to_owned())),
    };
    Ok(Opened { store: Box::new(sqlite), state })
}

fn set_up(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.busy_timeout(LOCKED_MAX)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::None | Durability::Os => "NORMAL",
        Durability::Group | Durability::Each => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous)
}

enum Kind {
    Empty,
    Ours,
    Other,
}

impl Sqlite {
    fn damaged(&self, reason: String) -> StoreError {
        StoreError { operation: "read", path: self.path.clone(), reason, advice: NOT_OURS }
    }

    fn kind(&self) -> rusqlite::Result<Kind> {
        let pragma = |name| self.connection.pragma_query_value(None, name, |row| row.get(0));
        let (application, version): (i64, i64) =
            (pragma("application_id")?, pragma("user_version")?);
        let tables: i64 =
            self.connection
                .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
        Ok(match (application, version, tables) {
            (APPLICATION, VERSION, _) => Kind::Ours,
            (0, 0, 0) => Kind::Empty,
            _ => Kind::Other,
        })
    }

    fn create(&mut self, initial: &Exchange) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        transaction.execute_batch(TABLES)?;
        for line in initial.lines() {
            transaction.execute(
                "INSERT INTO stock VALUES (?, ?, ?)",
                params![line.id, line.left, line.price],
            )?;
        }
        transaction.execute("INSERT INTO latest VALUES (0)", [])?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()
    }

    fn load(&self) -> rusqlite::Result<Result<State, String>> {
        let mut stocks = self.connection.prepare("SELECT id, left, price FROM stock")?;
        let line =
            |row: &Row<'_>| Ok(Line { id: row.get(0)?, left: row.get(1)?, price: row.get(2)? });
        let exchange: Exchange = stocks.query_map([], line)?.collect::<rusqlite::Result<_>>()?;
        let latest = "SELECT seq FROM latest";
        let seq: Option<i64> =
            self.connection.query_row(latest, [], |row| row.get(0)).optional()?;
        let Some(seq) = seq.and_then(|seq| u64::try_from(seq).ok()) else {
            return Ok(Err("the number of the latest order is missing".to_owned()));
        };
        let mut state = State::new(exchange, seq);
        let mut orders = self.connection.prepare(
            "SELECT seq, side, stock, count, left, refused, client, request FROM orders
             WHERE client IS NOT NULL ORDER BY seq",
        )?;
        let mut rows = orders.query([])?;
        while let Some(row) = rows.next()? {
            match record(row)? {
                Some(record) if record.kept.seq() <= seq => state.remember(&record),
                _ => return Ok(Err("the table of orders is damaged".to_owned())),
            }
        }
        Ok(Ok(state))
    }

    fn write(&mut self, records: &[Record]) -> rusqlite::Result<()> {
        let Some(latest) = records.last().map(|record| record.kept.seq()) else { return Ok(()) };
        let transaction = self.connection.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
            let mut update =
                transaction.prepare_cached("UPDATE stock SET left = ? WHERE id = ?")?;
            for record in records {
                let order = &record.order;
                let (left, refused) = match record.kept {
                    Kept::Done { left, .. } => (Some(left), None),
                    Kept::Refused { why, .. } => (None, Some(refusal_word(why))),
                };
                let client = record.who.as_ref().map(|who| &*who.client);
                // SQLite has signed numbers only; the bits are what counts.
                let request = record.who.as_ref().map(|who| who.request as i64);
                insert.execute(params![
                    record.kept.seq() as i64,
                    side_word(order.side()),
                    order.stock(),
                    order.count(),
                    left,
                    refused,
                    client,
                    request,
                ])?;
                if let Some(left) = left {
                    update.execute(params![left, order.stock()])?;
                }
            }
            transaction.prepare_cached("UPDATE latest SET seq = ?")?.execute([latest as i64])?;
            if latest - self.trimmed >= TRIM_EVERY {
                let old = latest.saturating_sub(ORDERS_KEPT);
                transaction
                    .prepare_cached("DELETE FROM orders WHERE seq <= ?")?
                    .execute([old as i64])?;
                self.trimmed = latest;
            }
        }
        transaction.commit()
    }

    fn stopped(&self, error: &rusqlite::Error) -> StoreError {
        let (path, reason) = (self.path.clone(), error.to_string());
        StoreError { operation: "write to", path, reason, advice: STOPPED }
    }
}

impl Store for Sqlite {
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.write(records).map_err(|error| self.stopped(&error))
    }

    fn stock_hashes(&mut self) -> Result<Vec<u64>, StoreError> {
        let read = || {
            let mut select = self.connection.prepare("SELECT hash FROM stock_file")?;
            let hashes = select.query_map([], |row| row.get::<_, i64>(0))?;
            hashes.map(|hash| Ok(hash? as u64)).collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|error| self.stopped(&error))
    }

    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
        let write = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            transaction.execute("DELETE FROM stock_file", [])?;
            for hash in hashes {
                transaction.execute("INSERT INTO stock_file VALUES (?)", [*hash as i64])?;
            }
            transaction.commit()
        };
        write(&mut self.connection).map_err(|error| self.stopped(&error))
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
    let kept = match (left, refused.as_deref().map(refusal_of)) {
        (Some(left), None) => Kept::Done { left, seq },
        (None, Some(Some(why))) => Kept::Refused { why, seq },
        _ => return Ok(None),
    };
    let (client, request): (Option<String>, Option<i64>) = (row.get(6)?, row.get(7)?);
    let who = client
        .zip(request)
        .map(|(client, request)| Who { client: Arc::from(client), request: request as u64 });
    Ok(Some(Record { order, kept, who }))
}

fn side_word(side: Side) -> &'static str {
    match side {
        Side::Buy => "buy",
        Side::Sell => "sell",
    }
}

fn refusal_word(why: Refused) -> &'static str {
    match why {
        Refused::NotEnough => "not-enough",
        Refused::UnknownStock => "unknown-stock",
        Refused::TooMany => "too-many",
    }
}

fn refusal_of(word: &str) -> Option<Refused> {
    [Refused::NotEnough, Refused::UnknownStock, Refused::TooMany]
        .into_iter()
        .find(|why| refusal_word(*why) == word)
}
