//! The stock file: read at the start, written whole and at once.

use crate::error::ServeError;
use ioloom_exchange::Exchange;
use ioloom_sys::fault;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The largest stock file that is read, bytes.
const BYTES_MAX: u64 = 256 << 20;

/// Reads a stock file; gives its hash too.
pub(crate) fn read(path: &Path) -> Result<(Exchange, u64), ServeError> {
    let text = read_text(path)
        .map_err(|reason| ServeError::ReadStock { path: path.to_owned(), reason })?;
    let bad = |reason| ServeError::BadStock { path: path.to_owned(), reason };
    Ok((Exchange::from_text(&text).map_err(bad)?, hash(&text)))
}

fn read_text(path: &Path) -> io::Result<String> {
    let about = fault::call("stat", || std::fs::metadata(path))?;
    if !about.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if about.len() > BYTES_MAX {
        return Err(io::Error::other("it is larger than 256 MiB"));
    }
    fault::call("read", || std::fs::read_to_string(path))
}

/// The hash by which a text is known again.
pub(crate) fn hash(text: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

/// Writes a stock file: beside it, synced, renamed, so that it is the old one or the new one
/// whatever happens.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), ServeError> {
    let fail = |reason| ServeError::WriteStock { path: path.to_owned(), reason };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let written = fault::call("write-stock", || {
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written.map_err(fail)
}
