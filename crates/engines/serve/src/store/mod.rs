//! Where orders are kept.
//!
//! A store takes batches of records, each batch one commit: after a crash it holds all of it or
//! nothing. What it holds is the stocks, their latest orders with the answers (so that a repeated
//! order gets the same answer after a restart), and which stock files were written from it. A new
//! one is made beside its place (`make`), and what it holds is proved when it is opened (`proof`).

mod bytes;
mod fjall;
mod interface;
mod log;
mod make;
mod path;
mod proof;
mod redb;
mod sqlite;
pub(crate) mod words;

use crate::choice::{Durability, StoreKind};
use interface::Beginning;
pub use interface::StoreError;
pub(crate) use interface::{ORDERS_KEPT, Store};
use ioloom_exchange::{Exchange, Record, State};
use ioloom_failure::Operation;
use ioloom_sys::fault;
use std::path::{Path, PathBuf};

/// A store and what it held.
pub(crate) struct Opened {
    /// The store.
    pub(crate) store: Box<dyn Store>,
    /// The state that it holds.
    pub(crate) state: State,
    /// Whether it was made now.
    pub(crate) is_new: bool,
}

/// Opens a store, or makes a new one that holds these stocks, which come from a file of this hash.
pub(crate) fn open(
    kind: StoreKind,
    path: &Path,
    durability: Durability,
    stocks: &Exchange,
    file_hash: u64,
) -> Result<Opened, StoreError> {
    let unusable = StoreError::unusable(Operation::Open, path);
    let is_new = make::is_missing(kind, path).map_err(unusable)?;
    if is_new {
        make::make(kind, path, &Beginning { stocks, file_hash })?;
    }
    let (store, mut state) = match kind {
        StoreKind::Sqlite => sqlite::open(path, durability),
        StoreKind::Redb => redb::open(path),
        StoreKind::Fjall => fjall::open(path, durability),
        StoreKind::Log | StoreKind::LogDsync | StoreKind::LogDirect | StoreKind::LogUring => {
            log::open(kind, path, durability)
        }
    }?;
    if state.seq() > ORDERS_KEPT {
        state.forget_older();
    }
    let store = Box::new(Seam { store, path: path.to_owned() });
    Ok(Opened { store, state, is_new })
}

/// Which kind of store lies at a path, by its first bytes; `None` if nothing is there or it is none of
/// ours. Raw logs differ only in how they are written, so each of them is found as [`StoreKind::Log`].
///
/// # Errors
/// It cannot be looked at.
pub fn detect_store(path: &Path) -> Result<Option<StoreKind>, StoreError> {
    make::found(path).map_err(StoreError::unusable(Operation::Open, path))
}

/// Why a store of this kind cannot be had below a directory, found by trying.
pub fn probe_store(kind: StoreKind, dir: &Path) -> Result<(), String> {
    log::probe(kind, dir)
}

/// A store whose calls pass the fault seam: those of an engine to the system are its own.
struct Seam {
    store: Box<dyn Store>,
    path: PathBuf,
}

impl Seam {
    fn pass(&self, operation: &'static str) -> Result<(), StoreError> {
        fault::call(operation, || Ok(())).map_err(|e| StoreError::stopped(&self.path, e))
    }
}

impl Store for Seam {
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.pass("commit")?;
        self.store.commit(records)
    }

    fn stock_hashes(&mut self) -> Result<Vec<u64>, StoreError> {
        self.pass("stock-hashes")?;
        self.store.stock_hashes()
    }

    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
        self.pass("set-stock-hashes")?;
        self.store.set_stock_hashes(hashes)
    }
}
