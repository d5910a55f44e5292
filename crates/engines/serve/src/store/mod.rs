//! Order stores.
//!
//! A store accepts batches of records. Each batch is one commit: after a crash, the store contains
//! all of it or nothing. A store contains the stocks, the latest orders with their answers (so a
//! repeated order gets the same answer after a restart), and the hashes of the stock files written
//! from it. Stores are created under a temporary name (`make`) and verified when opened (`proof`).

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

/// A store and the state that it contained.
pub(crate) struct Opened {
    /// The store.
    pub(crate) store: Box<dyn Store>,
    /// The state.
    pub(crate) state: State,
    /// Whether this call created the store.
    pub(crate) is_new: bool,
}

/// Opens a store, or creates one with these stocks from a file with this hash.
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
    let store = Box::new(Seam { store, path: path.to_owned(), latest: state.seq() });
    Ok(Opened { store, state, is_new })
}

/// Detects the type of a store from its first bytes. Returns `None` if there is no store. Raw logs
/// differ only in how they are written, so all of them are detected as [`StoreKind::Log`].
///
/// # Errors
/// Returns an error if the path cannot be read.
pub fn detect_store(path: &Path) -> Result<Option<StoreKind>, StoreError> {
    make::found(path).map_err(StoreError::unusable(Operation::Open, path))
}

/// Tests whether a store of this type works below a directory.
///
/// # Errors
/// Returns the reason why it does not work.
pub fn probe_store(kind: StoreKind, dir: &Path) -> Result<(), String> {
    log::probe(kind, dir)
}

/// Passes calls through the fault injection layer, because system calls made by a storage engine
/// bypass it, and checks that commits are consecutive.
struct Seam {
    store: Box<dyn Store>,
    path: PathBuf,
    /// Log number of the latest stored order.
    latest: u64,
}

impl Seam {
    fn pass(&self, operation: &'static str) -> Result<(), StoreError> {
        fault::call(operation, || Ok(())).map_err(|e| StoreError::stopped(&self.path, e))
    }
}

impl Store for Seam {
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let Some((first, last)) = records.first().zip(records.last()) else { return Ok(()) };
        let (first, last) = (first.outcome.seq(), last.outcome.seq());
        assert_eq!(first, self.latest + 1, "a store with gaps between orders cannot be reopened");
        debug_assert_eq!(
            last - first + 1,
            records.len() as u64,
            "a store with gaps between orders cannot be reopened"
        );
        self.pass("commit")?;
        self.store.commit(records)?;
        self.latest = last;
        Ok(())
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
