//! Copies of store files: evidence of damage, backups, and copies to verify.
//!
//! Stores preallocate, so holes are skipped; copying writes only the data. New files are private.

use super::interface::{StoreError, TEMPORARY};
use super::path::{directory_of, with_suffix};
use crate::choice::StoreKind;
use crate::temporary;
use ioloom_failure::Operation;
use ioloom_sys::file::{self, OpenHow, read_full_at, write_full_at};
use ioloom_sys::make::{private_file, try_lock};
use ioloom_sys::transfer::{next_data, set_len, sync_all};
use ioloom_sys::{attr, fault};
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Size of one read and write in bytes.
const PIECE: usize = 1 << 20;
/// Maximum number of sets of damaged bytes per store; more are an error rather than a full disk.
const DAMAGED_MAX: u32 = 1000;
/// Files of an SQLite database in addition to the main one.
pub(super) const SQLITE_ENDS: [&str; 2] = ["-wal", "-journal"];
/// Directory of the immutable files of a tree in a fjall database.
const TABLES: &str = "tables";

/// Copies a range of bytes to a new file.
pub(super) fn copy_bytes(from: &Path, to: &Path, range: Range<u64>) -> io::Result<()> {
    let from = file::open(from, OpenHow::default())?;
    let to = private_file(to)?;
    copy_range(&from, &to, range.clone(), range.start)?;
    set_len(&to, range.end - range.start)?;
    sync_all(&to)
}

fn copy_range(from: &OwnedFd, to: &OwnedFd, range: Range<u64>, origin: u64) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let mut at = range.start;
    while at < range.end {
        let most = usize::try_from(range.end - at).unwrap_or(PIECE).min(PIECE);
        let count = read_full_at(from, &mut buffer[..most], at)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        write_full_at(to, &buffer[..count], at - origin)?;
        at += count as u64;
    }
    Ok(())
}

/// Copies a file, with its holes, to a new file.
pub(super) fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let from = file::open(from, OpenHow::default())?;
    let size = file::size(&from)?;
    let to = private_file(to)?;
    let mut at = 0;
    while let Some(data) = next_data(&from, at)? {
        copy_range(&from, &to, data.start..data.end.min(size), 0)?;
        at = data.end;
    }
    set_len(&to, size)?;
    sync_all(&to)
}

/// Copies a store, which no server is using, to a path that does not exist.
pub(super) fn copy_store(kind: StoreKind, from: &Path, to: &Path) -> io::Result<()> {
    if kind == StoreKind::Fjall {
        return copy_tree(from, to, false);
    }
    copy_file(from, to)?;
    if kind == StoreKind::Sqlite {
        for end in SQLITE_ENDS {
            match copy_file(&with_suffix(from, end), &with_suffix(to, end)) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
    }
    sync_directory(to)
}

/// Copies a directory to a new one. With `link_tables`, files that fjall never modifies are hard
/// links.
pub(super) fn copy_tree(from: &Path, to: &Path, link_tables: bool) -> io::Result<()> {
    fault::call("create", || fs::DirBuilder::new().mode(0o700).create(to))?;
    for entry in fault::call("read-directory", || fs::read_dir(from))? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let is_table = from.file_name().is_some_and(|name| name == TABLES);
        if entry.file_type()?.is_dir() {
            copy_tree(&path, &target, link_tables)?;
        } else if link_tables && is_table {
            fault::call("link", || fs::hard_link(&path, &target))?;
        } else {
            copy_file(&path, &target)?;
        }
    }
    fault::call("sync-directory", || fs::File::open(to)?.sync_all())
}

/// Syncs the directory that contains a path.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    fault::call("sync-directory", || fs::File::open(directory_of(path))?.sync_all())
}

/// Returns the first free name of the form `STORE.damaged-N`.
pub(super) fn damaged_path(store: &Path) -> io::Result<PathBuf> {
    let names = (1..=DAMAGED_MAX).map(|n| with_suffix(store, &format!(".damaged-{n}")));
    for name in names {
        match attr::of_path(&name, false) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(name),
            found => drop(found?),
        }
    }
    Err(io::Error::other(format!("more than {DAMAGED_MAX} files of damaged bytes exist")))
}

/// Removes what interrupted creations and copies of this store left behind.
pub(super) fn remove_leftovers(path: &Path) -> io::Result<()> {
    temporary::left_over(path)?.iter().try_for_each(|left| remove(left))
}

/// Removes a file or directory and the additional files of SQLite; they need not exist.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let unless_missing = |result: io::Result<()>| match result {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        return unless_missing(fs::remove_dir_all(path));
    }
    unless_missing(fs::remove_file(path))?;
    temporary::SQLITE_ENDS
        .iter()
        .try_for_each(|end| unless_missing(fs::remove_file(with_suffix(path, end))))
}

/// A copy of a store in the directory for temporary files, for stores that cannot be read in place.
/// Removed when dropped, or by the next copy if this process is killed.
pub(super) struct TemporaryCopy {
    dir: PathBuf,
    /// Shows others that this process exists; `None` if the file system does not lock directories.
    _lock: Option<OwnedFd>,
}

impl TemporaryCopy {
    /// Copies a store, which no server is using.
    pub(super) fn of(kind: StoreKind, store: &Path) -> Result<Self, StoreError> {
        let no_space = |error| StoreError::new(Operation::Copy, store, error, TEMPORARY);
        let copy = Self::empty().map_err(no_space)?;
        copy_store(kind, store, &copy.path()).map_err(|error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => no_space(error),
            _ => StoreError::unusable(Operation::Copy, store)(error),
        })?;
        Ok(copy)
    }

    /// Creates a private directory. Removes those of killed processes.
    fn empty() -> io::Result<Self> {
        let base = std::env::temp_dir().join("ioloom-store");
        for left in temporary::left_over(&base).unwrap_or_default() {
            if let Ok(Some(_lock)) = lock_directory(&left) {
                let _ = remove(&left);
            }
        }
        loop {
            let dir = temporary::name_for(&base);
            fault::call("create", || fs::DirBuilder::new().mode(0o700).create(&dir))?;
            match lock_directory(&dir) {
                // Another process removes it, because it was not locked yet.
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                lock => return Ok(Self { dir, _lock: lock.ok().flatten() }),
            }
        }
    }

    /// Returns the path of the copy.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.join("store")
    }
}

impl Drop for TemporaryCopy {
    fn drop(&mut self) {
        let _ = remove(&self.dir);
    }
}

/// Locks a directory. Returns `None` if another process is using or removing it.
fn lock_directory(dir: &Path) -> io::Result<Option<OwnedFd>> {
    // Only directories are created under such a name; opening other files could wait.
    if !fs::symlink_metadata(dir)?.is_dir() {
        return Ok(None);
    }
    let opened = file::open(dir, OpenHow { nofollow: true, ..OpenHow::default() })?;
    if !try_lock(&opened)? {
        return Ok(None);
    }
    // Its name is random, so what exists is this one; otherwise another process has removed it.
    file::stat(dir)?;
    Ok(Some(opened))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn copies_are_private_keep_holes_and_replace_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        let file = private_file(&from).unwrap();
        write_full_at(&file, b"start", 0).unwrap();
        write_full_at(&file, b"far", 40 << 20).unwrap();
        set_len(&file, 64 << 20).unwrap();
        copy_file(&from, &to).unwrap();
        let meta = fs::metadata(&to).unwrap();
        assert_eq!((meta.len(), meta.permissions().mode() & 0o777), (64 << 20, 0o600));
        assert!(meta.blocks() * 512 <= 1 << 20, "{} blocks", meta.blocks());
        assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap());
        assert_eq!(copy_file(&from, &to).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let tail = dir.path().join("tail");
        copy_bytes(&from, &tail, 2..5).unwrap();
        assert_eq!(fs::read(&tail).unwrap(), b"art");
        assert!(copy_bytes(&from, &dir.path().join("c"), 0..65 << 20).is_err(), "a short file");
        let copy = TemporaryCopy::of(StoreKind::Log, &tail).unwrap();
        let copied = copy.path();
        let killed = temporary::name_for(&std::env::temp_dir().join("ioloom-store"));
        fs::create_dir(&killed).unwrap();
        drop(TemporaryCopy::of(StoreKind::Log, &tail).unwrap());
        assert!(!killed.exists(), "of a killed process");
        assert_eq!(fs::read(&copied).unwrap(), b"art", "of a running process");
        let mode = fs::metadata(directory_of(&copied)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(copy);
        assert!(!directory_of(&copied).exists());
        for n in 1..3 {
            let name = damaged_path(&from).unwrap();
            assert_eq!(name, dir.path().join(format!("a.damaged-{n}")));
            fs::write(name, "").unwrap();
        }
    }
}
