//! The interface of every store.

use crate::lock::holder_text;
use ioloom_exchange::{Exchange, Record, State};
use ioloom_failure::{Operation, is_out_of_descriptors, quoted, reason};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Number of orders that a store retains.
pub(crate) const ORDERS_KEPT: u64 = 1_000_000;

/// Advice after a failed write.
pub(super) const STOPPED: &str = "the server stopped: acknowledged orders are in the store, but \
     the outcome of others is unknown to their clients; fix the cause and restart the server";
/// Advice for a store whose contents cannot be used.
const NOT_OURS: &str = "restore a backup, specify another file with --store-path, or remove the \
     store and its mark to start over from the stock file";

/// Advice for a path that is not a store.
pub(super) const OTHER_PATH: &str = "specify another file with --store-path";
/// Advice for a store of another type.
pub(super) const OTHER_KIND: &str = "omit --store, or specify another file with --store-path";
/// Advice for a store that the system does not open.
pub(super) const CAUSE: &str = "fix the cause, or specify another file with --store-path";
/// Advice for a store of another user.
const OWNER: &str = "start the server as the user who owns the store, or specify another file with \
     --store-path";
/// The same for programs that only read a store.
const READER: &str = "start the program as the user who owns the store";
/// Advice for a process without free file descriptors.
const DESCRIPTORS: &str = "raise the limit of open files with 'ulimit -n'";
/// Advice of programs that only read a store, if the system does not let them.
const FIX: &str = "fix the cause";
/// Advice for a store that cannot be copied to the directory for temporary files.
pub(super) const TEMPORARY: &str = "set TMPDIR to a directory with space for a copy of the store";
/// Advice of programs that only read a store, if its contents cannot be used.
pub(super) const INTACT: &str = "specify an intact store";

/// Advice for a store in which acknowledged orders are missing.
pub(super) const LOST: &str = "restore a backup, or continue without them with --accept-loss; to \
     start over from the stock file, remove the store and its mark";
/// Advice for a store that was moved while a server used it.
pub(super) const MOVED: &str = "the server stopped, because acknowledged orders are not at this \
     path; move the store back, or restore a backup of it";
/// Advice for a store that another server uses.
const IN_USE: &str = "stop that server, or specify another store with --store-path";
/// The same for programs that only read a store.
const STOP: &str = "stop that server";

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

    /// Removes the advice to remove a file that is not known to be a store.
    pub(super) fn of_unknown_file(self) -> Self {
        if self.advice == NOT_OURS { self.with_advice(OTHER_PATH) } else { self }
    }

    /// Replaces advice that is only useful for a server.
    pub(super) fn of_reader(self) -> Self {
        match self.advice {
            NOT_OURS | OTHER_PATH | OTHER_KIND => self.with_advice(INTACT),
            CAUSE => self.with_advice(FIX),
            OWNER => self.with_advice(READER),
            IN_USE => self.with_advice(STOP),
            _ => self,
        }
    }

    /// Returns a closure for `map_err` on a store that cannot be opened.
    pub(super) fn unusable(
        operation: Operation,
        path: &Path,
    ) -> impl Fn(io::Error) -> Self + use<'_> {
        move |source| {
            let advice = advice(operation, &source);
            Self::new(operation, path, source, advice)
        }
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
            ErrorKind::NotFound => Operation::Create,
            _ => Operation::Open,
        };
        let advice =
            if source.raw_os_error().is_some() { advice(operation, &source) } else { OTHER_PATH };
        Self::new(operation, path, source, advice)
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

/// Returns the advice for a store that cannot be opened. Only damaged contents are a reason to
/// remove it.
fn advice(operation: Operation, error: &io::Error) -> &'static str {
    match error.kind() {
        _ if is_out_of_descriptors(error) => DESCRIPTORS,
        _ if operation == Operation::Create => OTHER_PATH,
        ErrorKind::PermissionDenied => OWNER,
        ErrorKind::InvalidInput | ErrorKind::Unsupported => OTHER_PATH,
        _ if error.raw_os_error().is_some() => CAUSE,
        _ => NOT_OURS,
    }
}

/// Returns the system error that caused an error of a library.
pub(super) fn cause(error: &(dyn std::error::Error + 'static)) -> Option<io::Error> {
    let mut next = error.source();
    while let Some(inner) = next {
        let code = inner.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if let Some(code) = code {
            return Some(io::Error::from_raw_os_error(code));
        }
        next = inner.source();
    }
    None
}

/// Returns whether an error means that a path does not exist.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Returns an error for a valid database of another program or version.
pub(super) fn foreign() -> io::Error {
    io::Error::new(ErrorKind::Unsupported, "not a store of this version")
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

    /// Fails if another program has removed stored orders, as far as the store can notice it without
    /// reading them.
    fn verify(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

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

impl Proven {
    /// Refuses to use the store at `path`, of which only a copy was verified, and closes the copy.
    pub(super) fn of_copy(self, path: &Path) -> Self {
        let path = path.to_owned();
        let begin = move || -> Result<Box<dyn Store>, StoreError> {
            let error = ErrorKind::ReadOnlyFilesystem.into();
            Err(StoreError::new(Operation::Open, &path, error, CAUSE))
        };
        Self { begin: Box::new(begin), ..self }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unusable_contents_are_to_be_removed() {
        let text = |operation, error| StoreError::unusable(operation, Path::new("s"))(error);
        let text = |operation, error| text(operation, error).to_string();
        let os = io::Error::from_raw_os_error;
        for (operation, error, word) in [
            (Operation::Open, os(13), "as the user who owns"),
            (Operation::Open, os(24), "ulimit -n"),
            (Operation::Open, os(21), "fix the cause"),
            (Operation::Create, os(13), "--store-path"),
            (Operation::Read, foreign(), "--store-path"),
        ] {
            let text = text(operation, error);
            assert!(text.contains(word) && !text.contains("remove"), "{text}");
        }
        for code in [5, 28, 30] {
            let error = StoreError::unusable(Operation::Read, Path::new("s"))(os(code));
            let text = error.of_reader().to_string();
            assert!(text.ends_with("; fix the cause"), "{text}");
        }
        let locked = StoreError::locked(Path::new("s"), None).of_reader().to_string();
        assert!(locked.ends_with("; stop that server"), "{locked}");
        let damaged = StoreError::unusable(Operation::Open, Path::new("s"))(invalid("damaged"));
        let advice = damaged.to_string();
        // A mark without its store would be refused.
        assert!(advice.contains("restore a backup"), "{advice}");
        assert!(advice.contains("remove the store and its mark"), "{advice}");
        assert!(!damaged.of_unknown_file().to_string().contains("remove"));
    }
}
