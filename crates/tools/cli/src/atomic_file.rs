//! Atomic file creation: a file gets its name only when it is complete. What is not a file, such as
//! `/dev/stdout`, is written as it is: root could replace a device.

use crate::exit::Failure;
use ioloom_failure::{Operation, PathError};
use std::fs::{File, OpenOptions};
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
    let failed = |error| Failure::failed(PathError::new(Operation::Write, path, error));
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let opened = OpenOptions::new().write(true).open(path);
        return opened.and_then(|opened| fill_with(opened, fill)).map_err(failed);
    }
    // A link stays, and the file to which it leads is replaced.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut part = target.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let written = File::create(&part)
        .and_then(|created| fill_with(created, fill))
        .and_then(|()| std::fs::rename(&part, &target));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        failed(error)
    })
}

fn fill_with(file: File, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    out.flush()
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

    #[test]
    fn links_and_pipes_stay_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        write(&at("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        write(&at("link"), "new").unwrap();
        assert!(at("link").is_symlink());
        assert_eq!(std::fs::read(at("file")).unwrap(), b"new");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        let pipe = at("pipe");
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        write(&at("pipe"), "through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(!std::fs::metadata(at("pipe")).unwrap().is_file());
        let refused = write(dir.path(), "onto a directory").unwrap_err();
        assert!(refused.message.ends_with("Is a directory"), "{}", refused.message);
    }
}
