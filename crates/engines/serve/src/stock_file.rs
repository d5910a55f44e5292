//! The stock file: read at startup, replaced atomically.

use crate::error::ServeError;
use ioloom_exchange::Exchange;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::fault;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
    fault::call("read", || std::fs::read_to_string(path))
}

/// Returns a hash that identifies a text.
pub(crate) fn hash(text: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

/// Writes a stock file to a temporary file in the same directory, syncs it and renames it, so a
/// crash leaves either the old or the new file. Permissions are preserved, and a symlink remains a
/// symlink.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), ServeError> {
    let failed = PathError::on(Operation::Write, path);
    // If the file was removed, it is created at its original path.
    let target = std::fs::canonicalize(path);
    let permissions = target.as_ref().ok().and_then(|target| std::fs::metadata(target).ok());
    let path = target.as_deref().unwrap_or(path);
    let mut temp = path.as_os_str().to_owned();
    temp.push(".new");
    let temp = PathBuf::from(temp);
    let written = fault::call("write-stock", || {
        let mut file = File::create(&temp)?;
        if let Some(meta) = permissions {
            file.set_permissions(meta.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temp, path)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&temp);
    }
    written.map_err(|e| ServeError::WriteStock(failed(e)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn links_and_permissions_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "1 2 3\n").unwrap();
        let permissions = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, permissions(0o640)).unwrap();
        symlink("file", &link).unwrap();
        write(&link, "1 1 3\n").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1 1 3\n");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        // A removed file is created again.
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(&link).unwrap();
        write(&file, "1 0 3\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1 0 3\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
