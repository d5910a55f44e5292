//! The stock file: read at startup, replaced atomically, locked by the server that writes it.
//!
//! The lock is on the file itself, so it needs no other file and works in a directory without
//! write permission. A replacement is locked before it gets the name, so the name always refers to
//! a locked file. Its temporary name is one that only this program uses (`temporary`).

use crate::error::ServeError;
use crate::lock::{self, Sharing, Taken, holder_text};
use crate::temporary;
use ioloom_exchange::Exchange;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::file::{self, OpenHow};
use ioloom_sys::make::private_file;
use ioloom_sys::{attr, fault};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Maximum size of a stock file in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// Reads a stock file. Returns the stocks and the hash of the file.
pub(crate) fn read(path: &Path) -> Result<(Exchange, u64), ServeError> {
    let failed = PathError::on(Operation::Read, path);
    let text = read_text(path).map_err(|e| ServeError::ReadStock(failed(e)))?;
    let bad = |source| ServeError::BadStock { path: path.to_owned(), source };
    Ok((Exchange::from_text(&text).map_err(bad)?, hash(&text)))
}

fn read_text(path: &Path) -> io::Result<String> {
    let meta = fault::call("stat", || std::fs::metadata(path))?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if meta.len() > BYTES_MAX {
        return Err(io::Error::other("larger than 256 MiB"));
    }
    let bytes = fault::call("read", || std::fs::read(path))?;
    // A line that is not UTF-8 is invalid in any case, and is reported with its number.
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Returns a hash that identifies a text.
pub(crate) fn hash(text: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

/// The lock on a stock file.
pub(crate) struct StockLock {
    path: PathBuf,
    sharing: Sharing,
    /// The locked file; `None` if it does not exist.
    file: Mutex<Option<OwnedFd>>,
}

impl StockLock {
    /// Locks a stock file, which need not exist if it is shared.
    #[cfg(test)]
    pub(crate) fn take(path: &Path, sharing: Sharing) -> Result<Self, ServeError> {
        Self::take_or_keep(path, sharing, &mut Vec::new())
    }

    /// Locks a stock file, unless it is among the files that are locked already.
    pub(crate) fn take_or_keep(
        path: &Path,
        sharing: Sharing,
        handed: &mut Vec<OwnedFd>,
    ) -> Result<Self, ServeError> {
        if let Some(file) = lock::take_handed(path, handed) {
            return Ok(Self::locked(path, sharing, Some(file)));
        }
        let failed = PathError::on(Operation::Open, path);
        let taken = lock::take(path, sharing, || file::open(path, OpenHow::default()));
        let file = match taken {
            Ok(Taken::Ours(file)) => Some(file),
            Ok(Taken::Held(holder)) => {
                return Err(ServeError::StockInUse {
                    path: path.to_owned(),
                    holder: holder_text(holder),
                });
            }
            Err(e) if e.kind() == ErrorKind::NotFound && sharing == Sharing::Shared => None,
            Err(e) => return Err(ServeError::ReadStock(failed(e))),
        };
        Ok(Self::locked(path, sharing, file))
    }

    /// Removes what a killed server left behind. What belongs to one that shares the lock is locked.
    fn locked(path: &Path, sharing: Sharing, file: Option<OwnedFd>) -> Self {
        let locked = Self { path: path.to_owned(), sharing, file: Mutex::new(file) };
        for left in temporary::left_over(&locked.target()).unwrap_or_default() {
            // It only takes up space, so a failure is not an error.
            if sharing == Sharing::Alone || is_unused(&left) {
                let _ = std::fs::remove_file(left);
            }
        }
        locked
    }

    /// Returns the file to which symlinks lead. If it was removed, it is created at its original path.
    fn target(&self) -> PathBuf {
        std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone())
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another descriptor of the locked file, which also keeps it locked.
    pub(crate) fn keep(&self) -> io::Result<Option<OwnedFd>> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().map(|file| fault::call("fcntl", || file.try_clone())).transpose()
    }

    /// Writes the stock file to a temporary file in the same directory, syncs it and renames it, so
    /// a crash leaves either the old or the new file; after [`sync_name`](Self::sync_name), the new
    /// one. Owner and permissions are preserved as far as the system allows, and a symlink remains a
    /// symlink.
    pub(crate) fn write(&self, text: &str) -> Result<(), ServeError> {
        let failed = PathError::on(Operation::Write, &self.path);
        let target = self.target();
        let temp = temporary::name_for(&target);
        let written = fault::call("write-stock", || self.replace(&target, &temp, text));
        if written.is_err() {
            let _ = std::fs::remove_file(&temp);
        }
        written.map_err(|e| ServeError::WriteStock(failed(e)))
    }

    /// Syncs the directory, so that the file keeps its name after a power failure.
    pub(crate) fn sync_name(&self) -> Result<(), ServeError> {
        let target = self.target();
        let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        let synced = fault::call("sync-stock-name", || File::open(dir)?.sync_all());
        synced.map_err(|e| ServeError::WriteStock(PathError::on(Operation::Write, &self.path)(e)))
    }

    fn replace(&self, target: &Path, temp: &Path, text: &str) -> io::Result<()> {
        let file = private_file(temp)?;
        if !lock::try_take(&file, self.sharing)? {
            return Err(io::Error::other("another process locked the new file"));
        }
        if let Ok(old) = attr::of_path(target, true) {
            // Only root may give a file away; a member of the group may keep the group.
            if attr::set_owner(&file, old.user, old.group).is_err() {
                let _ = attr::set_owner(&file, attr::own_ids().0, old.group);
            }
            attr::set_mode(&file, old.mode)?;
        }
        let mut file = File::from(file);
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(temp, target)?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file.into());
        Ok(())
    }
}

/// Reports whether no server is writing a temporary file. Such a file is empty until it is locked.
fn is_unused(path: &Path) -> bool {
    let opened = file::open(path, OpenHow { nofollow: true, ..OpenHow::default() });
    let is_unlocked = |file: &OwnedFd| {
        let has_bytes = file::size(file).is_ok_and(|bytes| bytes > 0);
        has_bytes && lock::try_take(file, Sharing::Alone).unwrap_or(false)
    };
    opened.is_ok_and(|file| is_unlocked(&file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn take(path: &Path) -> StockLock {
        StockLock::take(path, Sharing::Alone).unwrap()
    }

    #[test]
    fn a_line_that_is_not_utf_8_is_reported_with_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stock.txt");
        std::fs::write(&path, b"1 2 3\n2 \xff 3\n").unwrap();
        let error = read(&path).unwrap_err();
        assert!(matches!(error, ServeError::BadStock { .. }), "{error}");
        assert!(error.to_string().contains("line 2: "), "{error}");
    }

    #[test]
    fn links_owners_and_permissions_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "1 2 3\n").unwrap();
        let permissions = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, permissions(0o640)).unwrap();
        let is_root = attr::own_ids().0 == 0;
        if is_root {
            std::os::unix::fs::chown(&file, Some(65_534), Some(65_533)).unwrap();
        }
        symlink("file", &link).unwrap();
        let lock = take(&link);
        lock.write("1 1 3\n").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1 1 3\n");
        let meta = std::fs::metadata(&file).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o640);
        if is_root {
            assert_eq!((meta.uid(), meta.gid()), (65_534, 65_533));
        }
        // A removed file is created again, for its owner only.
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(&link).unwrap();
        lock.write("1 0 3\n").unwrap();
        let meta = std::fs::metadata(&link).unwrap();
        assert_eq!(std::fs::read_to_string(&link).unwrap(), "1 0 3\n");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_temporary_files_of_a_killed_server_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mine = ["stock.txt.new", "stock.txt.new-monday"];
        for name in ["stock.txt", "stock.txt.new-0123456789abcdef"].iter().chain(&mine) {
            std::fs::write(at(name), "1 2 3\n").unwrap();
        }
        std::fs::create_dir(at("stock.txt.new-0123456789abcde0")).unwrap();
        let temp = at("stock.txt.new-0123456789abcdef");
        let remains = || {
            drop(StockLock::take(&at("stock.txt"), Sharing::Shared).unwrap());
            temp.exists()
        };
        // Another server that shares the lock is writing, or has not locked its file yet.
        let writing = file::open(&temp, OpenHow::default()).unwrap();
        assert!(lock::try_take(&writing, Sharing::Shared).unwrap() && remains());
        drop(writing);
        assert!(!remains());
        std::fs::write(&temp, "").unwrap();
        assert!(remains());
        let lock = take(&at("stock.txt"));
        assert!(!temp.exists());
        lock.write("1 1 3\n").unwrap();
        assert_eq!(std::fs::read_to_string(at("stock.txt")).unwrap(), "1 1 3\n");
        for name in mine {
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), "1 2 3\n", "{name}");
        }
        // The directory remains.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
    }

    #[test]
    fn the_lock_stays_with_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stock.txt");
        std::fs::write(&path, "1 2 3\n").unwrap();
        let lock = take(&path);
        for text in ["1 1 3\n", "1 0 3\n"] {
            let refused = StockLock::take(&path, Sharing::Alone).err().unwrap().to_string();
            let pid = std::process::id().to_string();
            assert!(refused.contains(&pid) && refused.contains("--stock"), "{refused}");
            lock.write(text).unwrap();
        }
        drop(lock);
        drop(take(&path));
        let shared = || StockLock::take(&path, Sharing::Shared);
        let both = (shared().unwrap(), shared().unwrap());
        both.0.write("1 9 3\n").unwrap();
        assert!(StockLock::take(&path, Sharing::Alone).is_err());
        drop(both);
        std::fs::remove_file(&path).unwrap();
        assert!(shared().is_ok() && StockLock::take(&path, Sharing::Alone).is_err());
    }
}
