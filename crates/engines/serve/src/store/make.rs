//! Creates a store under a temporary name in the same directory and then renames it.
//!
//! A store is therefore either complete or absent, even if its creation is interrupted, and an
//! empty file is a damaged store rather than a new one. This matters: if a truncated store silently
//! started over, it would execute orders again that clients merely repeat.

use super::interface::{Beginning, StoreError};
use super::path::with_suffix;
use super::{fjall, log, redb, sqlite};
use crate::choice::StoreKind;
use ioloom_failure::Operation;
use ioloom_sys::fault;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Returns true if a store must be created: the path does not exist, or it is an empty directory
/// and the store is a directory.
pub(super) fn is_missing(kind: StoreKind, path: &Path) -> io::Result<bool> {
    let meta = match fault::call("stat", || fs::metadata(path)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
        meta => meta?,
    };
    Ok(kind == StoreKind::Fjall && meta.is_dir() && fs::read_dir(path)?.next().is_none())
}

/// Returns the type of an existing store, or `None` if there is none.
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

/// Creates a store.
pub(super) fn make(
    kind: StoreKind,
    path: &Path,
    beginning: &Beginning<'_>,
) -> Result<(), StoreError> {
    let unusable = StoreError::unusable(Operation::Create, path);
    let temp = with_suffix(path, ".new");
    // Left over from an interrupted creation.
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

/// Moves a complete store to its path durably, without replacing another store.
fn put(kind: StoreKind, temp: &Path, path: &Path) -> io::Result<()> {
    fault::call("place-store", || {
        File::open(temp)?.sync_all()?;
        if kind == StoreKind::Fjall {
            // A rename can only replace an empty directory.
            fs::rename(temp, path)?;
        } else {
            fs::hard_link(temp, path)?;
            fs::remove_file(temp)?;
        }
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    })
}

/// Removes an incomplete store, including the additional files of SQLite.
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
