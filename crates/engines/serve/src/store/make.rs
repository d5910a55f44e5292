//! Creates a store under a temporary name in the same directory and then renames it.
//!
//! The caller holds the lock of the store, the temporary name is unique, and the rename replaces
//! nothing, so two servers that start at the same time cannot disturb each other. A store is either
//! complete or absent, even if its creation is interrupted, and an empty file is a damaged store rather than a new one. This matters: if a truncated store silently
//! started over, it would execute orders again that clients merely repeat.

use super::copying::{SQLITE_ENDS, remove, remove_leftovers};
use super::interface::{Beginning, StoreError};
use super::path::{directory_of, with_suffix};
use super::{fjall, log, redb, sqlite};
use crate::choice::StoreKind;
use crate::temporary;
use ioloom_failure::{Operation, quoted};
use ioloom_sys::dir::Dir;
use ioloom_sys::fault;
use ioloom_sys::file::{self, Kind};
use ioloom_sys::make::{private_file, rename};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Advice if a file of a removed database remains.
const LEFT_OVER: &str = "move it away, or specify another file with --store-path";

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
    // Opening a pipe would wait for its writer.
    let kind = file::kind_of(path)?;
    if kind != Kind::Regular {
        let what = format!("it is {}, but a store is a regular file or a directory", kind.word());
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
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

/// Fails, with this advice, if a file exists that SQLite would take for part of a new database at
/// this path: it would apply the log of a database that was removed to the new one.
pub(super) fn check_alone(
    kind: StoreKind,
    path: &Path,
    advice: &'static str,
) -> Result<(), StoreError> {
    if kind != StoreKind::Sqlite {
        return Ok(());
    }
    for end in SQLITE_ENDS {
        let left = with_suffix(path, end);
        let is_free = match fault::call("stat", || fs::symlink_metadata(&left)) {
            Err(e) if e.kind() == ErrorKind::NotFound => true,
            // SQLite ignores an empty log.
            found => found
                .map(|meta| meta.is_file() && meta.len() == 0)
                .map_err(StoreError::unusable(Operation::Create, path))?,
        };
        if !is_free {
            let what = format!("{} of another database exists", quoted(&left));
            let what = io::Error::new(ErrorKind::AlreadyExists, what);
            return Err(StoreError::new(Operation::Create, path, what, advice));
        }
    }
    Ok(())
}

/// Creates a store, whose lock the caller holds.
pub(super) fn make(
    kind: StoreKind,
    path: &Path,
    beginning: &Beginning<'_>,
) -> Result<(), StoreError> {
    check_alone(kind, path, LEFT_OVER)?;
    let unusable = StoreError::unusable(Operation::Create, path);
    remove_leftovers(path).map_err(&unusable)?;
    let temp = temporary::name_for(path);
    let placed = fill(kind, &temp, beginning).and_then(|()| put(kind, &temp, path));
    if placed.is_err() {
        let _ = remove(&temp);
    }
    placed.map_err(unusable)
}

/// Creates a store at a path that does not exist, for which no server competes.
pub(super) fn fill(kind: StoreKind, path: &Path, beginning: &Beginning<'_>) -> io::Result<()> {
    match kind {
        StoreKind::Sqlite => {
            // SQLite uses an existing empty file, and its mode also for its log.
            private_file(path)?;
            sqlite::make(path, beginning)
        }
        StoreKind::Redb => {
            private_file(path)?;
            redb::make(path, beginning)
        }
        StoreKind::Fjall => {
            fault::call("create", || DirBuilder::new().mode(0o700).create(path))?;
            fjall::make(path, beginning)
        }
        StoreKind::Log | StoreKind::LogDsync | StoreKind::LogDirect | StoreKind::LogUring => {
            log::make(kind, path, beginning)
        }
    }
}

/// Moves a complete store to its path durably, without replacing another store. If the directory
/// cannot be synced, the store gets its temporary name back: removing a directory in place could be
/// interrupted and leave an incomplete store.
pub(super) fn put(kind: StoreKind, temp: &Path, path: &Path) -> io::Result<()> {
    fault::call("place-store", || {
        File::open(temp)?.sync_all()?;
        if kind == StoreKind::Fjall {
            // An empty directory is not a store; a rename would not replace it. Fails if it is not
            // empty.
            let _ = fs::remove_dir(path);
        }
        let dir = Dir::open(directory_of(path))?;
        let (old, new) = (name_of(temp)?, name_of(path)?);
        rename(&dir, &old, &dir, &new, false)?;
        dir.sync().inspect_err(|_| {
            let _ = rename(&dir, &new, &dir, &old, false);
        })
    })
}

fn name_of(path: &Path) -> io::Result<CString> {
    let name = path.file_name().ok_or(ErrorKind::InvalidFilename)?;
    Ok(CString::new(name.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_testbed::alone;

    #[test]
    fn a_store_whose_directory_cannot_be_synced_does_not_remain() {
        if !alone("store::make::tests::a_store_whose_directory_cannot_be_synced_does_not_remain") {
            return;
        }
        for kind in [StoreKind::Log, StoreKind::Fjall] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            if kind == StoreKind::Fjall {
                fs::create_dir(at("temp")).unwrap();
            }
            fs::write(at(if kind == StoreKind::Fjall { "temp/1" } else { "temp" }), "1").unwrap();
            // Not of this store.
            fs::write(at("store-wal"), "").unwrap();
            fault::set("fsync:1:5");
            let placed = put(kind, &at("temp"), &at("store"));
            fault::set("");
            assert_eq!(placed.unwrap_err().raw_os_error(), Some(5));
            let left = ["temp", "store", "store-wal"].map(|name| at(name).exists());
            assert_eq!(left, [true, false, true], "{kind:?}");
        }
    }

    #[test]
    fn pipes_and_devices_are_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe.as_path(), Path::new("/dev/null")] {
            let error = found(path).unwrap_err().to_string();
            assert!(error.contains("regular file or a directory"), "{error}");
        }
    }

    #[test]
    fn a_log_that_its_file_system_cannot_write_is_not_created() {
        let stocks = ioloom_exchange::Exchange::from_text("1 2 3\n").unwrap();
        let beginning = Beginning { stocks: &stocks, file_hash: 1 };
        for dir in [tempfile::tempdir().unwrap(), ioloom_testbed::in_memory()] {
            for kind in [StoreKind::LogDirect, StoreKind::LogUring] {
                let path = dir.path().join(kind.name());
                let made = make(kind, &path, &beginning);
                assert_eq!(made.is_ok(), log::probe(kind, dir.path()).is_ok(), "{made:?}");
                assert_eq!(made.is_ok(), path.exists());
            }
        }
    }

    #[test]
    fn the_log_of_a_removed_database_is_not_applied_to_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let stocks = ioloom_exchange::Exchange::from_text("1 2 3\n").unwrap();
        let beginning = Beginning { stocks: &stocks, file_hash: 1 };
        for end in SQLITE_ENDS {
            let left = with_suffix(&at("store"), end);
            fs::write(&left, "of a removed database").unwrap();
            let error = make(StoreKind::Sqlite, &at("store"), &beginning).unwrap_err().to_string();
            assert!(error.contains(end) && error.contains("move it away"), "{error}");
            assert_eq!(fs::read(&left).unwrap(), b"of a removed database");
            make(StoreKind::Log, &at("store"), &beginning).unwrap();
            fs::remove_file(at("store")).unwrap();
            fs::write(&left, "").unwrap();
        }
        make(StoreKind::Sqlite, &at("store"), &beginning).unwrap();
    }

    #[test]
    fn a_store_replaces_nothing_and_leftovers_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (kind, name) in [(StoreKind::Log, "log"), (StoreKind::Fjall, "fjall")] {
            let stocks = ioloom_exchange::Exchange::from_text("1 2 3\n").unwrap();
            let beginning = Beginning { stocks: &stocks, file_hash: 1 };
            let digits = "0123456789abcde";
            for leftover in ["0", "0-wal"] {
                fs::write(at(&format!("{name}.new-{digits}{leftover}")), "").unwrap();
            }
            fs::create_dir(at(&format!("{name}.new-{digits}1"))).unwrap();
            // Of the user.
            for other in [".new", ".new-monday", ".new-0123", ".newest"] {
                fs::write(at(&format!("{name}{other}")), "").unwrap();
            }
            fs::create_dir(at(&format!("{name}.new-dir"))).unwrap();
            make(kind, &at(name), &beginning).unwrap();
            let error = make(kind, &at(name), &beginning).unwrap_err().to_string();
            assert!(error.contains("exists") || error.contains("not empty"), "{error}");
            let left = fs::read_dir(dir.path()).unwrap();
            let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let left: Vec<_> = left.filter(|left| left.starts_with(name)).collect();
            assert_eq!(left.len(), 6, "the store and what belongs to the user: {left:?}");
        }
    }
}
