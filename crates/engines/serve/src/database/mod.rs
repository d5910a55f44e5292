//! PostgreSQL instead of a store, to let several servers share one database.
//!
//! The database contains stocks, orders with their answers, and log numbers, so several servers can
//! share it, and a server holds nothing that a crash could lose. The log of a store cannot do this
//! because it knows only the orders of its own process. The database is therefore not a store
//! behind the journal but a sharing strategy (`crate::sharing::database`), which passes gathered
//! orders to a connection and waits for the commit.
//!
//! PostgreSQL determines what is durable: `group` and `each` set `synchronous_commit` to `on` and
//! are rejected on a server that does not sync (`fsync = off`). `os` sets it to `off`: an
//! acknowledged order survives a crash of this program, but a crash of the database server can lose
//! the last fraction of a second (three times `wal_writer_delay`). Stocks and orders remain
//! consistent even then.
//!
//! The connection is encrypted as `sslmode` requires (`sealed`).

mod link;
mod opening;
mod sealed;
mod tables;
mod words;

use crate::choice::{Durability, Model, Sharing, ShowMode};
use crate::error::{DatabaseOperation, ServeError};
use crate::options::{DatabaseChoice, ServeOptions};
use ioloom_exchange::Exchange;
pub(crate) use link::{Link, NamedOrder, Unanswered};
pub(crate) use opening::open;
use sealed::Sealer;
use std::fmt;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use words::{Protection, Words};

/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 64;
/// Default time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Default time limit for the network to acknowledge sent data.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// Idle time after which keepalive probes are sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// Time limit for a statement in the database; shorter than the time for which clients in this
/// process wait.
const STATEMENT_MS: u32 = 900;
/// Time limit for a lock. A longer wait means that an interactive session holds it.
const LOCK_MS: u32 = 800;

const CHECK_OPTION: &str = "check --database, which takes a URL (postgresql://USER@HOST/NAME) or a connection string \
     (host=… port=… dbname=… user=…), or start the database server";

/// An open database.
pub(crate) struct Opened {
    /// How to connect.
    pub(crate) access: Access,
    /// The stocks in the database.
    pub(crate) stocks: Exchange,
    /// Log number of the latest order.
    pub(crate) seq: u64,
    /// Whether this start created the tables.
    pub(crate) is_new: bool,
}

/// How to connect to a database, and the session options.
#[derive(Clone)]
pub(crate) struct Access {
    config: tokio_postgres::Config,
    sealer: Sealer,
    name: String,
    set_up: String,
}

/// Returns the value of `synchronous_commit` for a durability.
pub(crate) fn synchronous_commit(durability: Durability) -> &'static str {
    match durability {
        Durability::None | Durability::Os => "off",
        Durability::Group | Durability::Each => "on",
    }
}

/// Returns why the options cannot be used with a database, or `None` if they can.
pub(crate) fn refusal(options: &ServeOptions, connections: usize) -> Option<String> {
    let durability = options.durability;
    if durability == Durability::None {
        return Some(
            "store postgres does not support durability none: a database keeps every order; use \
             os, group or each"
                .to_owned(),
        );
    }
    if options.sharing != Sharing::Database {
        return Some(format!(
            "store postgres does not support --sharing {}: the database shares the stocks, even \
             between processes; omit it",
            options.sharing
        ));
    }
    if options.show == ShowMode::PerStock {
        return Some(
            "store postgres does not support --show per-stock: it lists all stocks in one \
             statement; omit it"
                .to_owned(),
        );
    }
    if !(1..=CONNECTIONS_MAX).contains(&connections) {
        return Some(format!(
            "invalid number of database connections: {connections}; must be 1 to {CONNECTIONS_MAX}"
        ));
    }
    let alone = match (durability, options.model) {
        (Durability::Each, _) => "durability each commits one order at a time",
        (_, Model::IoThreads) => "model io-threads executes all requests on one thread",
        _ => return None,
    };
    (connections > 1).then(|| {
        format!("{alone}, so it can use only one database connection; use --database-connections 1")
    })
}

impl Access {
    /// Parses a connection string. A password in it is never printed.
    fn read(connection_string: &str, durability: Durability) -> Result<Self, ServeError> {
        // The parser's message is not shown because it may contain part of a password.
        let invalid = || {
            ServeError::Refused(format!(
                "invalid connection string for --database; {CHECK_OPTION}; values with spaces must \
                 be in single quotes"
            ))
        };
        let words = Words::read(connection_string).map_err(|name| {
            ServeError::Refused(format!(
                "invalid value of {name} in the connection string for --database; use disable, \
                 require, verify-ca or verify-full"
            ))
        })?;
        let mut config: tokio_postgres::Config = words.rest.parse().map_err(|_| invalid())?;
        let sealer = Self::protect(&mut config, &words)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host("/var/run/postgresql");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNACKNOWLEDGED);
        }
        if config.get_application_name().is_none() {
            config.application_name("ioloom serve");
        }
        config.keepalives_idle(config.get_keepalives_idle().min(KEEPALIVE_IDLE));
        if config.get_hosts().len() > 1 {
            // Only one of them is the primary server.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let name = name_of(&config);
        let set_up = format!(
            "SET synchronous_commit = {}; SET lock_timeout = {LOCK_MS}; \
             SET statement_timeout = {STATEMENT_MS}; \
             SET default_transaction_isolation = 'read committed'; SET search_path = pg_catalog; \
             SET client_min_messages = error",
            synchronous_commit(durability)
        );
        Ok(Self { config, sealer, name, set_up })
    }

    /// Sets up encryption. As in libpq, Unix sockets are never encrypted.
    fn protect(config: &mut tokio_postgres::Config, words: &Words) -> Result<Sealer, ServeError> {
        let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)))
            && config.get_hostaddrs().is_empty();
        if words.protection == Protection::None || is_local {
            config.ssl_mode(SslMode::Disable);
            return Ok(Sealer::default());
        }
        config.ssl_mode(SslMode::Require);
        if config.get_hosts().is_empty() {
            return Err(ServeError::Refused(
                "an encrypted connection to the database needs the name of its host; add host=NAME, \
                 next to hostaddr"
                    .to_owned(),
            ));
        }
        let hosts = config.get_hosts().iter().filter_map(|host| match host {
            Host::Tcp(name) => Some(name.as_str()),
            Host::Unix(_) => None,
        });
        Sealer::new(words.protection, words.authorities.as_deref(), hosts)
            .map_err(|error| ServeError::Refused(format!("--database: {error}")))
    }

    /// Returns the location and name of the database, without the password.
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

    /// Returns the error for a database that was open but can no longer be reached.
    pub(crate) fn unreached(&self, reason: String) -> ServeError {
        self.error(DatabaseOperation::Connect, reason, CHECK_OPTION)
    }

    /// Returns the error for a stock file that cannot be written because the stocks cannot be read
    /// from the database.
    pub(crate) fn unwritten(&self, reason: String) -> ServeError {
        self.error(
            DatabaseOperation::List,
            reason,
            "every acknowledged order is in the database; the stock file is outdated until the \
             next clean stop",
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
    let name = config.get_dbname().or(config.get_user()).unwrap_or("default database");
    format!("{name} at {}", hosts.join(","))
}

/// Returns an error and its sources on one line.
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
    fn passwords_are_never_printed() {
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
    fn databases_are_named_by_location() {
        let name = |connection_string| {
            Access::read(connection_string, Durability::Os).unwrap().name().to_owned()
        };
        assert_eq!(name("postgresql://me:x@127.0.0.1:5433/stocks"), "stocks at 127.0.0.1:5433");
        assert_eq!(name("host=/run/pg dbname=stocks"), "stocks at /run/pg:5432");
        assert_eq!(name("dbname=stocks"), "stocks at /var/run/postgresql:5432");
        assert_eq!(name("host=a,b port=1,2 user=me"), "me at a:1,b:2");
    }
}
