//! How `serve` reaches a database in place of a store.

use crate::exit::Failure;
use clap::Args;
use ioloom_serve::{DATABASE_VARIABLE, DatabaseChoice, Durability, Model, OrderStore};

#[derive(Debug, Args)]
pub(super) struct DatabaseArgs {
    /// With --store postgres: the database, as a URL (postgresql://USER@HOST/NAME) or in words
    /// (host=… dbname=… user=…) [default: $IOLOOM_DATABASE, which others cannot read]
    #[arg(long, value_name = "WORDS")]
    database: Option<String>,

    /// Connections to the database [default: 2; 1 with durability each and model io-threads]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    database_connections: Option<u16>,
}

impl DatabaseArgs {
    /// The database that is meant; what does not go together is refused.
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
                Some((_, flag)) => Err(Failure::usage(format!(
                    "{flag} is for --store postgres; add that, or leave {flag} out"
                ))),
                None => Ok(None),
            };
        }
        let words = self.database.clone().or_else(|| std::env::var(DATABASE_VARIABLE).ok());
        let words = words.ok_or_else(|| {
            Failure::usage(format!(
                "store postgres needs a database; name it with --database or in the environment \
                 variable {DATABASE_VARIABLE}"
            ))
        })?;
        let usual = DatabaseChoice::usual_connections(durability, model);
        let connections = self.database_connections.map_or(usual, usize::from);
        Ok(Some(DatabaseChoice { connection_string: words, connections }))
    }
}
