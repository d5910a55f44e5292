//! PostgreSQL in place of a store: for those who outgrow one machine.
//!
//! The stocks, the orders with their answers and the numbers of the log live in the database, so
//! several servers may stand in front of it, and a server holds nothing that could be lost with it. The
//! log that a store keeps cannot do that: it knows only the orders of its own process. So this is no
//! store behind the journal but a sharing of its own (`crate::sharing::database`), which hands what has
//! gathered to a connection and waits for the commit.
//!
//! What is safe is PostgreSQL's word: `group` and `each` set `synchronous_commit` to `on` and are refused
//! on a server that does not sync (`fsync = off`). `os` sets it to `off`: an acknowledged order survives
//! the end of this program, but not that of the database server, which may lose the latest fraction of
//! a second (three times its `wal_writer_delay`); stocks and orders still agree then.
//!
//! The connection is not encrypted.

mod link;
mod opening;
mod tables;

use crate::choice::{Durability, Model, Sharing, ShowMode};
use crate::error::{DatabaseOperation, ServeError};
use crate::options::{DatabaseChoice, ServeOptions};
use ioloom_exchange::Exchange;
pub(crate) use link::{Link, NamedOrder, Unanswered};
pub(crate) use opening::open;
use std::fmt;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};

/// Connections at most.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may take to be made, where nothing else was asked for.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a network may swallow what was sent, where nothing else was asked for.
const SWALLOWED: Duration = Duration::from_secs(10);
/// After how much silence a network is asked whether the other side is still there.
const SILENCE: Duration = Duration::from_secs(30);

/// How long the database may work on a statement; shorter than anybody here waits for it.
const STATEMENT_MS: u32 = 900;
/// How long a statement may wait for a lock: who waits longer waits for somebody's hands.
const LOCK_MS: u32 = 800;

const CORRECT: &str = "correct --database, which takes a URL (postgresql://USER@HOST/NAME) or connection_string \
     (host=… port=… dbname=… user=…), or start the database server";

/// A database that was opened.
pub(crate) struct Opened {
    /// How it is reached.
    pub(crate) access: Access,
    /// The stocks in it.
    pub(crate) stocks: Exchange,
    /// The number of the latest order in it.
    pub(crate) seq: u64,
    /// Whether its tables were made now.
    pub(crate) is_new: bool,
}

/// How a database is reached, and what each connection sets.
#[derive(Clone)]
pub(crate) struct Access {
    config: tokio_postgres::Config,
    name: String,
    set_up: String,
}

/// What `synchronous_commit` is with a durability.
pub(crate) fn synchronous_commit(durability: Durability) -> &'static str {
    match durability {
        Durability::None | Durability::Os => "off",
        Durability::Group | Durability::Each => "on",
    }
}

/// Why a server cannot be had in front of a database, if it cannot.
pub(crate) fn refusal(options: &ServeOptions, connections: usize) -> Option<String> {
    let durability = options.durability;
    if durability == Durability::None {
        return Some(
            "a database keeps every order, so durability none cannot be had with store postgres; \
             use os, group or each"
                .to_owned(),
        );
    }
    if options.sharing != Sharing::Database {
        return Some(format!(
            "with store postgres the database shares the stocks, between processes too; leave \
             --sharing {} out",
            options.sharing
        ));
    }
    if options.show == ShowMode::PerStock {
        return Some(
            "store postgres lists all stocks in one statement, so a list is of one moment; leave \
             --show per-stock out"
                .to_owned(),
        );
    }
    if !(1..=CONNECTIONS_MAX).contains(&connections) {
        return Some(format!(
            "{connections} connections to a database cannot be had; use 1 to {CONNECTIONS_MAX}"
        ));
    }
    let alone = match (durability, options.model) {
        (Durability::Each, _) => "durability each commits one order after the other",
        (_, Model::IoThreads) => "model io-threads means one thread that carries out all requests",
        _ => return None,
    };
    (connections > 1).then(|| {
        format!("{alone}, so it has one connection to the database; use --database-connections 1")
    })
}

impl Access {
    /// Reads how a database is reached. A password in it is never told.
    fn read(connection_string: &str, durability: Durability) -> Result<Self, ServeError> {
        // The reason of the parser is not told: it may hold a piece of a password.
        let mut config: tokio_postgres::Config = connection_string.parse().map_err(|_| {
            ServeError::Refused(format!(
                "the connection_string of --database cannot be understood; {CORRECT}; sslmode is disable or \
                 prefer, and values with spaces stand in single quotes"
            ))
        })?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(ServeError::Refused(
                "sslmode=require cannot be had: the connection to the database is not encrypted; \
                 use a Unix socket, a loopback address or a tunnel, and sslmode=disable"
                    .to_owned(),
            ));
        }
        config.ssl_mode(SslMode::Disable);
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host("/var/run/postgresql");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SWALLOWED);
        }
        if config.get_application_name().is_none() {
            config.application_name("ioloom serve");
        }
        config.keepalives_idle(config.get_keepalives_idle().min(SILENCE));
        let name = name_of(&config);
        let set_up = format!(
            "SET synchronous_commit = {}; SET lock_timeout = {LOCK_MS}; \
             SET statement_timeout = {STATEMENT_MS}; \
             SET default_transaction_isolation = 'read committed'; SET search_path = pg_catalog; \
             SET client_min_messages = error",
            synchronous_commit(durability)
        );
        Ok(Self { config, name, set_up })
    }

    /// What it is called: where it is and its name, without a password.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn error(
        &self,
        operation: DatabaseOperation,
        reason: String,
        advice: &'static str,
    ) -> ServeError {
        ServeError::Database { operation, database: self.name.clone(), reason, advice }
    }

    /// The error of a database that was opened and cannot be connected to again.
    pub(crate) fn unreached(&self, reason: String) -> ServeError {
        self.error(DatabaseOperation::Connect, reason, CORRECT)
    }

    /// The error of a stock file that the database does not give the stocks for.
    pub(crate) fn unwritten(&self, reason: String) -> ServeError {
        self.error(
            DatabaseOperation::List,
            reason,
            "every acknowledged order is in the database; the stock file is older, and is written \
             at the next end",
        )
    }
}

fn name_of(config: &tokio_postgres::Config) -> String {
    let ports = config.get_ports();
    let host = |(at, host): (usize, &Host)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    };
    let mut hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    if hosts.is_empty() {
        hosts.extend(config.get_hostaddrs().iter().map(ToString::to_string));
    }
    let name = config.get_dbname().or(config.get_user()).unwrap_or("named as its user");
    format!("{name} at {}", hosts.join(","))
}

/// The reason of an error in one line.
fn reason(error: &tokio_postgres::Error) -> String {
    let mut text = match error.as_db_error() {
        Some(db_error) => db_error.message().to_owned(),
        None => error.to_string(),
    };
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if error.as_db_error().is_none() && !text.contains(&inner_text) {
            let _ = fmt::Write::write_fmt(&mut text, format_args!(": {inner_text}"));
        }
        source = inner.source();
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_told() {
        for connection_string in [
            "postgresql://me:hush-hush@127.0.0.1:5433/stocks",
            "host=127.0.0.1 port=5433 dbname=stocks user=me password=hush-hush",
            "postgresql://me:hush-hush@127.0.0.1:nonsense/stocks",
            "host=127.0.0.1 password='hush-hush",
            "host=127.0.0.1 password=hush hush-hush=1",
            "postgresql://me:hush-hush@127.0.0.1/stocks?sslmode=require",
        ] {
            let text = match Access::read(connection_string, Durability::Group) {
                Ok(access) => access.name().to_owned(),
                Err(error) => error.to_string(),
            };
            assert!(!text.contains("hush"), "{text}");
        }
    }

    #[test]
    fn a_database_is_called_by_its_place() {
        let name = |connection_string| {
            Access::read(connection_string, Durability::Os).unwrap().name().to_owned()
        };
        assert_eq!(name("postgresql://me:x@127.0.0.1:5433/stocks"), "stocks at 127.0.0.1:5433");
        assert_eq!(name("host=/run/pg dbname=stocks"), "stocks at /run/pg:5432");
        assert_eq!(name("dbname=stocks"), "stocks at /var/run/postgresql:5432");
        assert_eq!(name("host=a,b port=1,2 user=me"), "me at a:1,b:2");
    }
}
