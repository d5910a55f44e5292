//! Which store `serve` has, and how it reaches a database in place of one.

use crate::exit::Failure;
use clap::Args;
use ioloom_serve::{DATABASE_CONNECTIONS, DatabaseChoice, Durability, Model, StoreKind};
use std::str::FromStr;

/// What names the database where no flag does. Flags of a program can be read by everybody on the
/// machine, so this is the place for a password.
const VARIABLE: &str = "IOLOOM_DATABASE";

/// The word for a database.
pub(super) const POSTGRES: &str = "postgres";

/// Where orders are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    /// In a file or a directory of this server alone.
    Own(StoreKind),
    /// In a PostgreSQL database.
    Postgres,
}

impl FromStr for Store {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            POSTGRES => Ok(Self::Postgres),
            _ => word.parse().map(Self::Own).map_err(|e: String| format!("{e}, {POSTGRES}")),
        }
    }
}

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
        store: Option<Store>,
        durability: Durability,
        model: Model,
    ) -> Result<Option<DatabaseChoice>, Failure> {
        if store != Some(Store::Postgres) {
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
        let words = self.database.clone().or_else(|| std::env::var(VARIABLE).ok());
        let words = words.ok_or_else(|| {
            Failure::usage(format!(
                "store postgres needs a database; name it with --database or in the environment \
                 variable {VARIABLE}"
            ))
        })?;
        let one = durability == Durability::Each || model == Model::IoThreads;
        let usual = if one { 1 } else { DATABASE_CONNECTIONS };
        let connections = self.database_connections.map_or(usual, usize::from);
        Ok(Some(DatabaseChoice { words, connections }))
    }
}
