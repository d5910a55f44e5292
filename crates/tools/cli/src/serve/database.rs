//! Flags of `serve` for a PostgreSQL database.

use crate::exit::Failure;
use clap::Args;
use ioloom_serve::{DATABASE_VARIABLE, DatabaseChoice, Durability, Model, OrderStore};

#[derive(Debug, Clone, Args)]
pub(super) struct DatabaseArgs {
    /// Database for --store postgres
    ///
    /// A URL (postgresql://USER@HOST/NAME) or keywords (host=... dbname=... user=...). Default: the
    /// environment variable IOLOOM_DATABASE. Other users can read a command line, but not the
    /// variable. sslmode=verify-full encrypts the connection and verifies the server's certificate,
    /// with the CA certificates in sslrootcert=FILE or those of the system.
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,

    /// Number of database connections
    ///
    /// 1 to 64. Default: 2, or 1 with durability each or the model io-threads.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    database_connections: Option<u16>,
}

impl DatabaseArgs {
    /// Returns the selected database, or an error for conflicting flags.
    pub(super) fn choice(
        &self,
        store: Option<OrderStore>,
        durability: Durability,
        model: Model,
    ) -> Result<Option<DatabaseChoice>, Failure> {
        if store != Some(OrderStore::Postgres) {
            let asked = [
                (self.database.is_some(), "--database"),
                (self.database_connections.is_some(), "--database-connections"),
            ];
            return match asked.iter().find(|(is_asked, _)| *is_asked) {
                Some((_, flag)) => Err(Failure::usage(format!("{flag} needs --store postgres"))),
                None => Ok(None),
            };
        }
        let words = self.database.clone().or_else(|| std::env::var(DATABASE_VARIABLE).ok());
        let words = words.ok_or_else(|| {
            Failure::usage(format!(
                "--store postgres needs a database; use --database or the environment variable \
                 {DATABASE_VARIABLE}"
            ))
        })?;
        let usual = DatabaseChoice::usual_connections(durability, model);
        let connections = self.database_connections.map_or(usual, usize::from);
        Ok(Some(DatabaseChoice { connection_string: words, connections }))
    }
}
