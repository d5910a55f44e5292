//! Opening a database: creates its tables if they do not exist.
//!
//! Everything happens in one transaction under a single lock on the whole database. If several
//! servers start at the same time, one of them fills the database and the others find it filled. A
//! stock file fills an empty database but never changes a filled one. If the file lists different
//! stocks than the database, one of the two is wrong, and nothing is changed.

use super::link::{connect, runtime, shown};
use super::{Access, CHECK_OPTION, DatabaseChoice, Opened, reason, tables};
use crate::choice::Durability;
use crate::error::{DatabaseOperation, ServeError};
use crate::stock_file;
use ioloom_exchange::{Exchange, Line, Shown};
use ioloom_failure::quoted;
use std::io::ErrorKind;
use std::path::Path;
use tokio_postgres::{Client, Error};

/// Why a database could not be opened.
enum OpenError {
    /// The database reported an error.
    Database(Error),
    /// The database is not suitable.
    Refused(String),
    /// The stock file has an error.
    File(ServeError),
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

/// Opens the database, and fills it from the stock file if it is empty.
pub(crate) fn open(
    choice: &DatabaseChoice,
    durability: Durability,
    stock: &Path,
) -> Result<Opened, ServeError> {
    let access = Access::read(&choice.connection_string, durability)?;
    let opened = runtime()?.block_on(async {
        let connected = connect(&access).await;
        let (client, task) = connected
            .map_err(|reason| access.error(DatabaseOperation::Connect, reason, CHECK_OPTION))?;
        let opened = begin(&client, durability, stock).await;
        // Dropping the connection rolls the transaction back.
        drop(task);
        opened.map_err(|error| match error {
            OpenError::Database(error) => {
                access.error(DatabaseOperation::Open, reason(&error), CHECK_OPTION)
            }
            OpenError::Refused(reason) => {
                ServeError::Refused(format!("database {}: {reason}", access.name()))
            }
            OpenError::File(error) => error,
        })
    });
    let (shown, is_new) = opened?;
    let stocks = shown.lines.into_iter().collect();
    Ok(Opened { access, stocks, seq: shown.seq, is_new })
}

async fn begin(
    client: &Client,
    durability: Durability,
    stock: &Path,
) -> Result<(Shown, bool), OpenError> {
    check_server(client, durability).await?;
    client.batch_execute(tables::BEGIN).await?;
    client.execute(tables::OPENING, &[]).await?;
    let is_there: bool = client.query_one(tables::IS_THERE, &[]).await?.try_get(0)?;
    if !is_there {
        make(client, stock).await?;
    }
    let version: Option<i32> = client
        .query_opt("SELECT version FROM ioloom_exchange.version", &[])
        .await?
        .map(|row| row.try_get(0))
        .transpose()?;
    if version != Some(tables::VERSION) {
        return Err(OpenError::Refused(
            "its schema ioloom_exchange has a different version; specify another database with \
             --database"
                .to_owned(),
        ));
    }
    if client.query_one(tables::HAS_OLD_FUNCTION, &[]).await?.try_get(0)? {
        client.batch_execute(tables::MAKE_FUNCTION).await?;
    }
    let now = shown(&client.query(tables::SHOW, &[]).await?)?;
    if is_there {
        compare(&now, stock)?;
    }
    // The new tables are durable even if other commits do not wait for the disk.
    client.batch_execute("SET LOCAL synchronous_commit = on; COMMIT").await?;
    Ok((now, !is_there))
}

/// Rejects a database server that cannot provide the requested durability.
async fn check_server(client: &Client, durability: Durability) -> Result<(), OpenError> {
    let row = client.query_one(tables::SERVER, &[]).await?;
    let (syncs, is_standby): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    if is_standby {
        return Err(OpenError::Refused(
            "it is a read-only standby; specify the primary server with --database".to_owned(),
        ));
    }
    let promised = matches!(durability, Durability::Group | Durability::Each);
    if promised && !syncs {
        return Err(OpenError::Refused(format!(
            "its server runs with fsync = off, so it cannot provide durability {durability}; turn \
             fsync on, or use durability os"
        )));
    }
    Ok(())
}

async fn make(client: &Client, stock: &Path) -> Result<(), OpenError> {
    let (stocks, _) = stock_file::read(stock).map_err(OpenError::File)?;
    client.batch_execute(tables::MAKE).await?;
    client.batch_execute(tables::MAKE_FUNCTION).await?;
    client.execute("INSERT INTO ioloom_exchange.version VALUES ($1)", &[&tables::VERSION]).await?;
    let column = |f: fn(&Line) -> u32| stocks.lines().map(move |line| f(&line) as i32);
    let ids: Vec<i64> = stocks.lines().map(|line| line.id.into()).collect();
    let left: Vec<i32> = column(|line| line.left).collect();
    let prices: Vec<i32> = column(|line| line.price).collect();
    client.execute(tables::FILL, &[&ids, &left, &prices]).await?;
    Ok(())
}

/// Rejects a stock file that lists different stocks. The number of shares may differ, because the
/// database is authoritative.
fn compare(now: &Shown, stock: &Path) -> Result<(), OpenError> {
    let listed = match stock_file::read(stock) {
        Ok((listed, _)) => listed,
        Err(ServeError::ReadStock(error)) if error.source.kind() == ErrorKind::NotFound => {
            return Ok(());
        }
        Err(error) => return Err(OpenError::File(error)),
    };
    let names = |stocks: &Exchange| -> Vec<(u32, u32)> {
        stocks.lines().map(|line| (line.id, line.price)).collect()
    };
    if names(&listed) == names(&now.lines.iter().copied().collect()) {
        return Ok(());
    }
    Err(OpenError::Refused(format!(
        "its stocks or prices differ from those in the stock file {}, which never changes a filled \
         database; use --stock with the matching or a nonexistent file, or --database with an \
         empty database",
        quoted(stock)
    )))
}
