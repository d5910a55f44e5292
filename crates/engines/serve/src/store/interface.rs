//! The interface of every store.

use ioloom_exchange::{Exchange, Record};
use ioloom_failure::{Operation, quoted, reason};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Number of orders that a store retains.
pub(crate) const ORDERS_KEPT: u64 = 1_000_000;

/// Advice after a failed write.
pub(super) const STOPPED: &str = "the server stopped: acknowledged orders are in the store, but \
     the outcome of others is unknown to their clients; fix the cause and restart the server";
/// Advice for a store that cannot be opened.
pub(super) const NOT_OURS: &str = "specify another file with --store-path, or remove this one to \
     start over from the stock file";

/// A store that is unusable or has become unusable.
#[derive(Debug, Error)]
#[error("cannot {operation} store {}: {}; {advice}", quoted(path), reason(source))]
pub struct StoreError {
    operation: Operation,
    path: PathBuf,
    source: io::Error,
    advice: &'static str,
}

impl StoreError {
    /// Creates an error of `operation` on the store at `path`.
    pub(crate) fn new(
        operation: Operation,
        path: &Path,
        source: io::Error,
        advice: &'static str,
    ) -> Self {
        Self { operation, path: path.to_owned(), source, advice }
    }

    /// Returns a closure for `map_err` on a store that cannot be opened.
    pub(super) fn unusable(
        operation: Operation,
        path: &Path,
    ) -> impl Fn(io::Error) -> Self + use<'_> {
        move |source| Self::new(operation, path, source, NOT_OURS)
    }

    /// Returns an error for a store that failed while in use.
    pub(super) fn stopped(path: &Path, source: io::Error) -> Self {
        Self::new(Operation::Write, path, source, STOPPED)
    }
}

/// Returns an error for invalid contents.
pub(super) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// An open store.
pub(crate) trait Store: Send {
    /// Stores records, in order, in one commit. Returns when they are as safe as the durability
    /// promises.
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError>;

    /// Returns the hashes of stock files that may exist, namely those most recently written from
    /// this store.
    fn stock_hashes(&mut self) -> Result<Vec<u64>, StoreError>;

    /// Records that stock files with these hashes may exist from now on. Syncs the hashes and all
    /// earlier orders at any durability, because the stock file is synced too.
    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError>;
}

/// The contents of a new store.
pub(super) struct Beginning<'a> {
    /// The stocks.
    pub(super) stocks: &'a Exchange,
    /// Hash of the stock file that they were read from.
    pub(super) file_hash: u64,
}
