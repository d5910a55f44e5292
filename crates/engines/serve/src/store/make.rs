//! A new store: made beside its place and put there when it is complete.
//!
//! So a store is there whole or not at all, whenever its making is interrupted, and what is there
//! and holds nothing is no new store but a damaged one. That matters: a store that was cut to nothing
//! would else begin anew and carry out orders again that its clients only repeat.

use super::{NOT_OURS, StoreError, fjall, log, redb, sqlite};
use crate::choice::StoreKind;
use ioloom_exchange::Exchange;
use ioloom_sys::fault;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// What a new store holds.
pub(super) struct Beginning<'a> {
    /// The stocks.
    pub(super) stocks: &'a Exchange,
    /// The hash of the stock file that they come from.
    pub(super) file_hash: u64,
}

/// Whether a store has to be made: nothing is there, or an empty directory where it is to be one.
pub(super) fn is_missing(kind: StoreKind, path: &Path) -> io::Result<bool> {
    let about = match fault::call("stat", || fs::metadata(path)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
        about => about?,
    };
    Ok(kind == StoreKind::Fjall && about.is_dir() && fs::read_dir(path)?.next().is_none())
}

/// The kind of what is there, if it is a store.
pub(super) fn found(path: &Path) -> io::Result<Option<StoreKind>> {
    let is_there = |kind| is_missing(kind, path).map(|missing| !missing);
    if path.is_dir() {
        return Ok(is_there(StoreKind::Fjall)?.then_some(StoreKind::Fjall));
    }
    if !is_there(StoreKind::Sqlite)? {
        return Ok(None);
    }
    let mut first = Vec::new();
    fault::call("read", || File::open(path)?.take(16).read_to_end(&mut first))?;
    let marks = [
        (&b"SQLite format 3\0"[..], StoreKind::Sqlite),
        (&b"redb\x1a\x0a\xa9\x0d\x0a"[..], StoreKind::Redb),
        (&log::MARK[..], StoreKind::Log),
    ];
    Ok(marks.into_iter().find(|(mark, _)| first.starts_with(mark)).map(|(_, kind)| kind))
}

/// Makes a store.
pub(super) fn make(
    kind: StoreKind,
    path: &Path,
    beginning: &Beginning<'_>,
) -> Result<(), StoreError> {
    let fail = |reason: String| StoreError {
        operation: "make",
        path: path.to_owned(),
        reason,
        advice: NOT_OURS,
    };
    let beside = with(path, ".new");
    // Of a making that was interrupted.
    remove(&beside).map_err(|e| fail(e.to_string()))?;
    let made = match kind {
        StoreKind::Sqlite => sqlite::make(&beside, beginning),
        StoreKind::Redb => redb::make(&beside, beginning),
        StoreKind::Fjall => fjall::make(&beside, beginning),
        StoreKind::Log | StoreKind::LogDsync | StoreKind::LogDirect | StoreKind::LogUring => {
            log::make(kind, &beside, beginning)
        }
    };
    let placed = made.and_then(|()| put(kind, &beside, path).map_err(|e| e.to_string()));
    if placed.is_err() {
        let _ = remove(&beside);
    }
    placed.map_err(fail)
}

/// Puts a complete store into its place, durably, and never over another one.
fn put(kind: StoreKind, beside: &Path, path: &Path) -> io::Result<()> {
    fault::call("place-store", || {
        File::open(beside)?.sync_all()?;
        if kind == StoreKind::Fjall {
            // Of directories only an empty one is replaced.
            fs::rename(beside, path)?;
        } else {
            fs::hard_link(beside, path)?;
            fs::remove_file(beside)?;
        }
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    })
}

/// Removes a store that is not complete, with the files that SQLite puts beside one.
fn remove(beside: &Path) -> io::Result<()> {
    let gone = |result: io::Result<()>| match result {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    if beside.is_dir() {
        return gone(fs::remove_dir_all(beside));
    }
    for end in ["", "-wal", "-shm", "-journal"] {
        gone(fs::remove_file(with(beside, end)))?;
    }
    Ok(())
}

/// A path with something added to its name.
pub(super) fn with(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}
