//! Where orders are kept.
//!
//! A store takes batches of records, each batch one commit: after a crash it holds all of it or
//! nothing. What it holds is the stocks, their latest orders with the answers (so that a repeated
//! order gets the same answer after a restart), and which stock files were written from it.

mod bytes;
mod fjall;
mod redb;
mod sqlite;

use crate::choice::{Durability, StoreKind};
use ioloom_exchange::{Exchange, Record, State};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Orders that stay in a store.
const ORDERS_KEPT: u64 = 1_000_000;

const STOPPED: &str = "the server stopped: what it had acknowledged is in the store, what it had not \
     is unknown to its clients; correct the cause and start it again";
const NOT_OURS: &str = "name another file with --store-path, or remove this one to begin anew from \
     the stock file";

/// A store that cannot be used, or not any more.
#[derive(Debug, Error)]
#[error("{operation} the store {}: {reason}; {advice}", path.display())]
pub struct StoreError {
    pub(crate) operation: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
    pub(crate) advice: &'static str,
}

/// A store that was opened.
pub(crate) trait Store: Send {
    /// Keeps records, in their order, in one commit; returns when they are as safe as the durability
    /// says.
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError>;

    /// The hashes of stock files that may be found: those that were written from this store last.
    fn stock_hashes(&mut self) -> Result<Vec<u64>, StoreError>;

    /// Notes that stock files of these hashes may be found from now on.
    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError>;
}

/// A store and what it held.
pub(crate) struct Opened {
    /// The store.
    pub(crate) store: Box<dyn Store>,
    /// The state that it held; `None` if it is new.
    pub(crate) state: Option<State>,
}

/// Opens a store, or makes a new one that holds these stocks.
pub(crate) fn open(
    kind: StoreKind,
    path: &Path,
    durability: Durability,
    initial: &Exchange,
) -> Result<Opened, StoreError> {
    match kind {
        StoreKind::Sqlite => sqlite::open(path, durability, initial),
        StoreKind::Redb => redb::open(path, initial),
        StoreKind::Fjall => fjall::open(path, durability, initial),
    }
}
