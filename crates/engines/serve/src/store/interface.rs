//! The interface of every store.

use crate::lock::holder_text;
use ioloom_exchange::{Exchange, Record, State};
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

/// Advice for a store in which acknowledged orders are missing.
pub(super) const LOST: &str = "restore a backup, or continue without them with --accept-loss; to \
     start over from the stock file, remove the store and its mark";
/// Advice for a store that another server uses.
const IN_USE: &str = "stop that server, or specify another store with --store-path";

/// Advice for reading a store that a server uses.
const BACK_UP: &str = "stop that server, or read a copy made by 'ioloom store backup'";

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

    /// Replaces the advice.
    pub(super) fn with_advice(self, advice: &'static str) -> Self {
        Self { advice, ..self }
    }

    /// Returns a closure for `map_err` on a store that cannot be opened.
    pub(super) fn unusable(
        operation: Operation,
        path: &Path,
    ) -> impl Fn(io::Error) -> Self + use<'_> {
        move |source| Self::new(operation, path, source, NOT_OURS)
    }

    /// Returns an error for a store that another server uses.
    pub(super) fn locked(path: &Path, holder: Option<u32>) -> Self {
        let source = io::Error::other(holder_text(holder));
        Self::new(Operation::Open, path, source, IN_USE)
    }

    /// Like [`locked`](Self::locked), for programs that only read a store.
    pub(super) fn in_use(path: &Path, holder: Option<u32>) -> Self {
        let source = io::Error::other(holder_text(holder));
        Self::new(Operation::Read, path, source, BACK_UP)
    }

    /// Returns an error for a store that cannot be locked.
    pub(super) fn unlockable(path: &Path, source: io::Error) -> Self {
        let operation = match source.kind() {
            io::ErrorKind::NotFound => Operation::Create,
            _ => Operation::Open,
        };
        Self::new(operation, path, source, "specify another file with --store-path")
    }

    /// Returns an error for a store that lacks acknowledged orders.
    pub(super) fn lost(path: &Path, what: String) -> Self {
        Self::new(Operation::Open, path, io::Error::other(what), LOST)
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

    /// Records that stock files with these hashes may exist from now on. Syncs the hashes and all
    /// earlier orders at any durability, because the stock file is synced too.
    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError>;

    /// Returns the position in a raw log.
    fn position(&self) -> Position {
        Position::default()
    }
}

/// A position in a raw log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    /// The log number.
    pub(crate) log: u64,
    /// End of the written bytes.
    pub(crate) written: u64,
    /// End of the synced bytes.
    pub(crate) synced: u64,
}

/// Bytes that should be part of a store but cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The file.
    pub(crate) file: PathBuf,
    /// Offset of the first byte.
    pub(crate) from: u64,
    /// Their number.
    pub(crate) bytes: u64,
    /// Number of the latest order found in them, or 0.
    pub(crate) latest: u64,
    /// Why they must have been readable before, or `None` if they may be the rest of an
    /// interrupted write.
    pub(crate) damage: Option<&'static str>,
}

/// A store whose contents were read and verified. Nothing has been modified yet.
pub(super) struct Proven {
    /// The state.
    pub(super) state: State,
    /// Hashes of stock files that may exist.
    pub(super) hashes: Vec<u64>,
    /// Bytes after the contents that cannot be read.
    pub(super) unreadable: Option<Unreadable>,
    /// The position in a raw log.
    pub(super) position: Position,
    /// Starts to use the store, and modifies it.
    pub(super) begin: Box<dyn FnOnce() -> Result<Box<dyn Store>, StoreError>>,
}

/// Called for each order that a store retains.
pub(super) type EachOrder<'a> = &'a mut dyn FnMut(&Record);

/// The contents of a new store.
pub(super) struct Beginning<'a> {
    /// The stocks.
    pub(super) stocks: &'a Exchange,
    /// Hash of the stock file that they were read from.
    pub(super) file_hash: u64,
}
