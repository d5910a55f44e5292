//! Atomic file creation: a file gets its name only when it is complete.

use crate::exit::Failure;
use ioloom_failure::{Operation, PathError};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes `bytes` to `path`, creating missing parent directories.
///
/// # Errors
/// A directory or the file cannot be written; the old file, if any, is unchanged.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)
            .map_err(PathError::on(Operation::CreateDir, parent))
            .map_err(Failure::failed)?;
    }
    write_with(path, |out| out.write_all(bytes.as_ref()))
}

/// Writes the output of `fill` to `path` through a temporary file in the same directory.
///
/// # Errors
/// The file cannot be written; the old file, if any, is unchanged.
pub(crate) fn write_with(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let written = File::create(&part).and_then(|created| {
        let mut out = BufWriter::new(created);
        fill(&mut out)?;
        out.flush()?;
        drop(out);
        std::fs::rename(&part, path)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        Failure::failed(PathError::new(Operation::Write, path, error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/report");
        write(&path, "old").unwrap();
        let failed = write_with(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("stopped"))
        });
        assert!(failed.unwrap_err().message.ends_with("stopped"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
