//! A new store: made beside its place and put there when it is complete.
//!
//! So a store is there whole or not at all, whenever its making is interrupted, and what is there
//! and holds nothing is no new store but a damaged one. That matters: a store that was cut to nothing
//! would else begin anew and carry out orders again that its clients only repeat.

use super::interface::{Beginning, StoreError};
use super::path::with_suffix;
use super::{fjall, log, redb, sqlite};
use crate::choice::StoreKind;
use ioloom_failure::Operation;
use ioloom_sys::fault;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Whether a store has to be made: nothing is there, or an empty directory where it is to be one.
pub(super) fn is_missing(kind: StoreKind, path: &Path) -> io::Result<bool> {
    let meta = match fault::call("stat", || fs::metadata(path)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
        meta => meta?,
    };
    Ok(kind == StoreKind::Fjall && meta.is_dir() && fs::read_dir(path)?.next().is_none())
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
    let unusable = StoreError::unusable(Operation::Create, path);
    let temp = with_suffix(path, ".new");
    // Of a making that was interrupted.
    remove(&temp).map_err(&unusable)?;
    let made = match kind {
        StoreKind::Sqlite => sqlite::make(&temp, beginning),
        StoreKind::Redb => redb::make(&temp, beginning),
        StoreKind::Fjall => fjall::make(&temp, beginning),
        StoreKind::Log | StoreKind::LogDsync | StoreKind::LogDirect | StoreKind::LogUring => {
            log::make(kind, &temp, beginning)
        }
    };
    let placed = made.and_then(|()| put(kind, &temp, path));
    if placed.is_err() {
        let _ = remove(&temp);
    }
    placed.map_err(unusable)
}

/// Puts a complete store into its place, durably, and never over another one.
fn put(kind: StoreKind, temp: &Path, path: &Path) -> io::Result<()> {
    fault::call("place-store", || {
        File::open(temp)?.sync_all()?;
        if kind == StoreKind::Fjall {
            // Of directories only an empty one is replaced.
            fs::rename(temp, path)?;
        } else {
            fs::hard_link(temp, path)?;
            fs::remove_file(temp)?;
        }
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    })
}

/// Removes a store that is not complete, with the files that SQLite puts beside one.
fn remove(temp: &Path) -> io::Result<()> {
    let unless_missing = |result: io::Result<()>| match result {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    if temp.is_dir() {
        return unless_missing(fs::remove_dir_all(temp));
    }
    for end in ["", "-wal", "-shm", "-journal"] {
        unless_missing(fs::remove_file(with_suffix(temp, end)))?;
    }
    Ok(())
}
